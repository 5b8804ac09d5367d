"""Waiting of asyncio tasks: one thread watches the store for all of them.

A task tries in an executor, then waits for its event; the watcher sleeps on the word of all streams
and sets the events of those whose streams changed. What it does for a commit grows with the buckets
that are waited for (see ``shm.wait_words``), not with the waiters: thousands may be idle.

Invariants: a waiter registers, which loads the words of its streams, before it tries, and clears
its event before each try, so no wake-up is lost. Of the waiters that found all waiter records taken
and would take the same, only the first is woken, and who leaves wakes the next. The watcher renews
that somebody waits, and looks once a slice (``PACE``) whether a writer died between publishing and
waking; it begins with the first waiter, and ends when none is left or the store is closed. A
time-out is never early.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from logstore.aio.waiter import Waiter, wake_all
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.control_block import Wake
from logstore.engine.shm.wait_words import EVERY
from logstore.engine.shm.waiters import PACE
from logstore.engine.waiting.stream_wait import POLL_S, over
from logstore.engine.waiting.wait_queue import Ticket
from logstore.errors import ClosedError
from logstore.log import file_names as files

R = TypeVar("R")


class _Bucket:
    """The tasks that wait for streams of a bucket, and its word when they were woken last."""

    def __init__(self, word: int) -> None:
        self.word = word
        self.waiters: set[Waiter] = set()


class Watcher:
    """The thread that watches one store for the waiters of this process."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self.engine = engine
        self._mutex = threading.Lock()
        self._buckets: dict[int, _Bucket] = {}
        self._queued: set[Waiter] = set()  # those with tickets
        # Those that found no free waiter record, by what they take: group and minimum idle time.
        self._overflow: dict[tuple[int, int], deque[Waiter]] = {}
        self._beat_s = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def waiting(
        self,
        names: Sequence[bytes],
        queue: tuple[int, int] | None = None,
        ticket: Ticket | None = None,
    ) -> Iterator[Waiter]:
        """A waiter that is woken whenever one of the streams changes, or with a ticket, when
        somebody calls it and now and then; try after this. In a ``queue`` of this process only the
        first is woken, and who leaves wakes the next.
        """
        engine = self.engine()
        with self._mutex:
            if self._closed:
                raise closed()
            same = None if queue is None else self._overflow.setdefault(queue, deque())
            waiter = Waiter(names, same, ticket)
            if same is not None:
                same.append(waiter)
            for bucket in waiter.buckets:
                if bucket not in self._buckets:
                    self._buckets[bucket] = _Bucket(_word(engine, bucket))
                self._buckets[bucket].waiters.add(waiter)
            if ticket is not None:
                self._queued.add(waiter)
            if self._thread is None:
                seen = _seen(engine)
                self._thread = threading.Thread(
                    target=self._watch, args=(engine, seen), name="logstore-aio-watch", daemon=True
                )
                self._thread.start()
        try:
            yield waiter
        finally:
            following = None
            with self._mutex:
                self._queued.discard(waiter)
                if queue is not None and same is not None:
                    same.remove(waiter)
                    if same:
                        following = same[0]
                    else:
                        del self._overflow[queue]
                for bucket in waiter.buckets:
                    self._buckets[bucket].waiters.discard(waiter)
                    if not self._buckets[bucket].waiters:
                        del self._buckets[bucket]
            if following is not None:
                following.wake()  # in its own loop, which may be another one

    def close(self) -> None:
        """Wake every waiter, to find the store closed; the thread ends soon."""
        with self._mutex:
            self._closed = True
            waiters, watched = self._all(), self._thread is not None
        wake_all(waiters)
        engine = self.engine() if watched else None
        if engine is not None and engine.follow is None:
            engine.wake.waits.poke()

    def join(self) -> None:
        """Wait for the end of the thread: at once, or in a read-only store a slice at most."""
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
                self._call(engine)
                if engine.closed:
                    break
        finally:
            with self._mutex:
                if self._thread is threading.current_thread():
                    self._thread = None
                waiters = self._all()
            wake_all(waiters)  # whatever ended it: they look, and find out

    def _all(self) -> set[Waiter]:
        return self._queued.union(*(bucket.waiters for bucket in self._buckets.values()))

    def _goes_on(self) -> bool:
        with self._mutex:
            if (self._buckets or self._queued) and not self._closed:
                return True
            self._thread = None
            return False

    def _notify(self, engine: Engine, *, everybody: bool) -> None:
        """Wake whose streams changed; everybody, if that cannot be told."""
        everybody = everybody or engine.follow is not None
        changed: set[Waiter] = set()
        with self._mutex:
            for number, bucket in self._buckets.items():
                word = _word(engine, number)
                if everybody or word != bucket.word:
                    bucket.word = word
                    changed |= bucket.waiters
        wake_all(waiter for waiter in changed if not waiter.behind)

    def _call(self, engine: Engine) -> None:
        """Wake those whose tickets were called; once a slice beat for all, and wake those who may
        find something that nobody called them for: an offer of one that died, or whose turn it can
        be, what was committed since they looked, or left by who stands before them elsewhere.
        """
        now = time.monotonic()
        beats = now - self._beat_s >= PACE.slice_s
        called: set[Waiter] = set()
        first: dict[tuple[int, int], tuple[int, Waiter]] = {}
        applied = engine.wake.applied
        with self._mutex:
            for waiter in self._queued:
                ticket = waiter.ticket
                assert ticket is not None
                word = ticket.word()
                if word != waiter.word:
                    waiter.word = word
                    called.add(waiter)
                if beats:
                    ticket.stir()
                    if ticket.offered():
                        called.add(waiter)
                    among = ticket.key, ticket.min_idle_ms
                    if among not in first or ticket.number < first[among][0]:
                        first[among] = ticket.number, waiter
        if first:
            lowest = engine.wake.waits.waiters.lowest()
            for (key, _), (number, waiter) in first.items():
                if waiter.applied != applied or lowest.get(key, number) < number:
                    waiter.applied = applied
                    called.add(waiter)
        if beats:
            self._beat_s = now
        wake_all(called)


def closed() -> ClosedError:
    """What waiting in a closed store raises."""
    return ClosedError("the store is closed: open it again")


def _word(engine: Engine, bucket: int) -> int:
    return 0 if engine.follow is not None else engine.wake.waits.load(bucket)


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
        engine.wake.waits.sleep(EVERY, word, engine.sleep_within(PACE.slice_s))


async def wait_for(
    watcher: Watcher,
    names: Sequence[bytes],
    attempt: Callable[[], Awaitable[R]],
    deadline: float | None,
    *,
    queue: tuple[int, int] | None = None,
    pause_s: Callable[[], float | None] | None = None,
    alive: Callable[[], Awaitable[object]] | None = None,
    begun: Callable[[Waiter], object] = bool,
) -> R | None:
    """What ``attempt`` finds, tried again whenever one of the streams changed; None at the
    deadline (of ``time.monotonic``; None: none).

    ``pause_s`` says how long to sleep at most where time alone brings something, too. In a
    ``queue`` only the first tries; who leaves it wakes the next. ``alive`` raises when waiting
    is over.
    """
    count, slept = watcher.engine().metrics.count, False
    with watcher.waiting(names, queue) as waiter:
        begun(waiter)  # who gets it may wake it, so that ``alive`` is asked
        while True:
            waiter.event.clear()
            last = over(deadline)
            if alive is not None:
                await alive()
            if not waiter.behind:
                found = await attempt()
                if found:
                    return found
            elif watcher._closed:
                raise closed()
            if last:
                return None
            if not slept:
                count("waits")
                slept = True
            await waiter.wait(deadline, pause_s() if pause_s is not None else None)
            if waiter.event.is_set():
                count("wakeups")
