"""Waiting of asyncio tasks: one thread watches the store for all of them.

A task tries in an executor, then waits for its event; the watcher sleeps on the word of all streams
and sets the events of those whose streams changed.

Invariants: a waiter registers, which loads the words of its streams, before it tries, and clears
its event before each try, so no wake-up is lost; the watcher renews that somebody waits, and looks
once a slice (``pace``) whether a writer died between publishing and waking; it begins with the
first waiter, and ends when none is left or the store is closed. A time-out is never early.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from logstore.engine import dues
from logstore.engine.core import Engine
from logstore.engine.pace import PACE
from logstore.engine.waiting import POLL_S
from logstore.engine.waitwords import EVERY, line_of
from logstore.engine.wake import Wake
from logstore.errors import ClosedError
from logstore.log import names as files

R = TypeVar("R")


class Waiter:
    """A task that waits for some streams."""

    def __init__(self, names: Sequence[bytes]) -> None:
        self.lines = sorted({line_of(name) for name in names})
        self.words: list[int] = []  # of the lines, when its event was set last
        self.event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """Set its event, from any thread."""
        with suppress(RuntimeError):  # its loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self.event.set)

    async def wait(self, deadline: float | None, most_s: float | None) -> None:
        """Until woken, until the deadline, at most ``most_s``."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if most_s is not None:
            left = most_s if left is None else min(left, most_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self.event.wait()


class Watcher:
    """The thread that watches one store for the waiters of this process."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self.engine = engine
        self._mutex = threading.Lock()
        self._waiters: set[Waiter] = set()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def waiting(self, names: Sequence[bytes]) -> Iterator[Waiter]:
        """A waiter that is woken whenever one of the streams changes; try after this."""
        engine, waiter = self.engine(), Waiter(names)
        with self._mutex:
            if self._closed:
                raise closed()
            waiter.words = _words(engine, waiter)
            self._waiters.add(waiter)
            if self._thread is None:
                seen = _seen(engine)
                self._thread = threading.Thread(
                    target=self._watch, args=(engine, seen), name="logstore-aio-watch", daemon=True
                )
                self._thread.start()
        try:
            yield waiter
        finally:
            with self._mutex:
                self._waiters.discard(waiter)

    def close(self) -> None:
        """Wake every waiter, to find the store closed; the thread ends soon."""
        with self._mutex:
            self._closed = True
            waiters = list(self._waiters)
        for waiter in waiters:
            waiter.wake()

    def join(self) -> None:
        """Wait for the end of the thread, a slice at most."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _watch(self, engine: Engine, seen: tuple[int, int | None]) -> None:
        try:
            while self._goes_on():
                _sleep(engine, seen[0])
                now = _seen(engine)
                engine.notice_drops()
                if now != seen:
                    self._notify(engine, everybody=now[0] == seen[0])
                    seen = now
                if engine.closed:
                    break
        finally:
            with self._mutex:
                if self._thread is threading.current_thread():
                    self._thread = None
                waiters = list(self._waiters)
            for waiter in waiters:  # whatever ended it: they look, and find out
                waiter.wake()

    def _goes_on(self) -> bool:
        with self._mutex:
            if self._waiters and not self._closed:
                return True
            self._thread = None
            return False

    def _notify(self, engine: Engine, *, everybody: bool) -> None:
        """Wake whose streams changed; everybody, if that cannot be told."""
        with self._mutex:
            waiters = list(self._waiters)
        for waiter in waiters:
            words = _words(engine, waiter)
            if everybody or engine.follow is not None or words != waiter.words:
                waiter.words = words
                waiter.wake()


def closed() -> ClosedError:
    """What waiting in a closed store raises."""
    return ClosedError("the store is closed: open it again")


def _words(engine: Engine, waiter: Waiter) -> list[int]:
    if engine.follow is not None:
        return []
    return [engine.wake.waits.load(line) for line in waiter.lines]


def _seen(engine: Engine) -> tuple[int, int | None]:
    """The word of all streams, and how far commits are published; announces first."""
    if engine.follow is not None:  # read-only: it may not write that somebody waits
        peeked = Wake.peek(engine.fs, engine.path / files.WAKE)
        tick = int(time.monotonic() / PACE.slice_s)  # and looks at the log now and then
        return tick, None if peeked is None else peeked.applied
    engine.wake.waits.announce(EVERY)
    word = engine.wake.waits.load(EVERY)  # before `applied`, which is published before it
    return word, engine.wake.applied


def _sleep(engine: Engine, word: int) -> None:
    if engine.follow is not None:
        time.sleep(POLL_S)
    else:
        engine.wake.waits.sleep(EVERY, word, dues.within(engine, PACE.slice_s))


async def wait_for(
    watcher: Watcher, names: Sequence[bytes], attempt: Callable[[], Awaitable[R]],
    deadline: float | None, *, queue: deque[Waiter] | None = None,
    pause_s: Callable[[], float | None] | None = None,
    alive: Callable[[], Awaitable[object]] | None = None,
    begun: Callable[[Waiter], object] = bool,
) -> R | None:  # fmt: skip
    """What ``attempt`` finds, tried again whenever one of the streams changed; None at the
    deadline (of ``time.monotonic``; None: none).

    ``pause_s`` says how long to sleep at most where time alone brings something, too. In a
    ``queue`` only the first tries; who leaves it wakes the next. ``alive`` raises when waiting
    is over.
    """
    count, slept = watcher.engine().metrics.count, False
    with watcher.waiting(names) as waiter:
        begun(waiter)  # who gets it may wake it, so that ``alive`` is asked
        if queue is not None:
            queue.append(waiter)
        try:
            while True:
                waiter.event.clear()
                over = deadline is not None and time.monotonic() >= deadline
                if alive is not None:
                    await alive()
                if queue is None or queue[0] is waiter:
                    found = await attempt()
                    if found:
                        return found
                elif watcher._closed:
                    raise closed()
                if over:
                    return None
                if not slept:
                    count("waits")
                    slept = True
                await waiter.wait(deadline, pause_s() if pause_s is not None else None)
                if waiter.event.is_set():
                    count("wakeups")
        finally:
            if queue is not None:
                queue.remove(waiter)
                if queue:
                    queue[0].event.set()
