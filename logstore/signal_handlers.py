"""Handlers of signals for the length of a block, and signals that ask for an end.

A handler runs in the main thread between any two of its steps, also where that thread holds a lock.
``Event.set`` in a handler waits for ever if the thread was in ``Event.wait`` of the same event, or
in ``set``: so who asks for an end by an event has it set by another thread, which is made here.

Invariants: no handler that is made here takes a lock; it only puts into a queue, and another put of
the same thread may interrupt that. The handlers before are back at the end of a block.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType

PARENT_LOOK_S = 0.5


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object], *numbers: int) -> Iterator[None]:
    """Signals run ``handler`` in the block, which must take no lock.

    Nothing changes in another thread than the main one, which signals do not interrupt, and for a
    signal whose handler Python did not set and cannot put back.
    """
    before: dict[int, Callable[[int, FrameType | None], object] | int] = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            found = signal.getsignal(number)
            if found is not None:
                before[number] = found
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, found in before.items():
            signal.signal(number, found)


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """SIGINT and SIGTERM call ``stop`` in the block, and do nothing else.

    It is called in a thread of its own, once for each signal, and has returned at the end.
    """
    asked: SimpleQueue[bool] = SimpleQueue()

    def call() -> None:
        while asked.get():
            stop()

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    try:
        with handled(lambda *_: asked.put(True), signal.SIGINT, signal.SIGTERM):
            yield
    finally:
        asked.put(False)
        caller.join()


def end_with_parent(stop: threading.Event, parent: int) -> None:
    """Have an event set at each SIGTERM, and when the parent has gone, from now on."""
    asked: SimpleQueue[None] = SimpleQueue()
    signal.signal(signal.SIGTERM, lambda *_: asked.put(None))

    def watch() -> None:
        while os.getppid() == parent:
            with suppress(Empty):
                asked.get(timeout=PARENT_LOOK_S)
                stop.set()
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
