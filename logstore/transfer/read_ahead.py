"""An iterator that runs ahead of its user, in a thread of its own.

Invariants: it is ahead by ``AHEAD`` at most; its errors come where its items would; the thread has
ended when the block is left, however it is left.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")
AHEAD = 2
_END = object()


@contextmanager
def ahead(items: Iterator[T]) -> Iterator[Iterator[T]]:
    """Iterate over ``items`` while a thread makes the next ones."""
    made: queue.Queue[Any] = queue.Queue(AHEAD)
    over = threading.Event()

    def put(item: Any) -> None:
        while not over.is_set():
            with suppress(queue.Full):
                made.put(item, timeout=0.1)
                return

    def run() -> None:
        try:
            for item in items:
                put((item, None))
                if over.is_set():
                    return
            put((_END, None))
        except BaseException as exc:  # noqa: BLE001  (it is raised where it is waited for)
            put((None, exc))

    def taken() -> Iterator[T]:
        while True:
            item, exc = made.get()
            if exc is not None:
                raise exc
            if item is _END:
                return
            yield item

    thread = threading.Thread(target=run, name="logstore-ahead", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        over.set()
        thread.join()
