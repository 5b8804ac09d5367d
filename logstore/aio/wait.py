"""Waiting of asyncio tasks: one thread watches the store for all of them.

A task tries in an executor, then waits for its event. The watcher sleeps on the word of all streams
and sets the events of those whose streams changed. What it does for a commit grows with the buckets
that are waited for (see ``shm.wait_words``), not with the waiters: thousands may be idle. A task
that waits in the queue of a group takes the steps of ``waiting.wait_session``, each in a thread; in
between it waits for its event, which is set when its waiter record was called. So tasks stand in
one queue with threads and other processes.

Invariants: a waiter registers, which loads the words of its streams, before it tries, and clears
its event before each try, so no wake-up is lost. An event is set in the loop it belongs to. Of the
waiters that found all waiter records taken and would take the same, only the first is woken, and
who leaves wakes the next. The watcher renews that somebody waits, and looks once a slice (``PACE``)
whether a writer died between publishing and waking; it begins with the first waiter, and ends when
none is left or the store is closed. A task that is cancelled gives its place back, but not while a
step of it still runs; what such a step finds is in its consumer's backlog. A deadline is never
early.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from logstore.engine.groups.deliver import Delivered
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.commit_words import Wake
from logstore.engine.shm.wait_words import EVERY, bucket_of
from logstore.engine.shm.waiters import PACE
from logstore.engine.waiting.stream_wait import POLL_S, over
from logstore.engine.waiting.wait_queue import Ticket
from logstore.engine.waiting.wait_session import GroupRead, GroupReplaced, WaitSession
from logstore.errors import ClosedError
from logstore.log import file_names as files
from logstore.tuples import NamedTuple

R = TypeVar("R")

WOKEN_AT_ONCE = 16  # tasks of a loop


# -- one task ---------------------------------------------------------------------------------
class Waiter:
    """A task that waits: for some streams, maybe in a queue, or for its turn in a group."""

    def __init__(
        self, names: Sequence[bytes], queue: deque[Waiter] | None, ticket: Ticket | None
    ) -> None:
        self.buckets = {bucket_of(name) for name in names}
        self.ticket = ticket
        self.word = 0  # of its waiter record, when its event was set last
        self.applied = 0  # how far commits were published when it looked by itself last
        self.event = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self._queue = queue

    def wake(self) -> None:
        """Set its event, from any thread."""
        wake_all((self,))

    @property
    def behind(self) -> bool:
        """Whether another one comes first, of those that take the same; asked from any thread."""
        try:
            return self._queue is not None and self._queue[0] is not self
        except IndexError:  # nobody is in it yet
            return False

    async def wait(self, deadline: float | None, most_s: float | None) -> None:
        """Until woken, until the deadline, at most ``most_s``."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if most_s is not None:
            left = most_s if left is None else min(left, most_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self.event.wait()


def wake_all(waiters: Iterable[Waiter]) -> None:
    """Set the events of waiters, each in its loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.loop, []).append(waiter)
    running = asyncio._get_running_loop()
    for loop, its in by_loop.items():
        if loop is running:
            _set(its)
            continue
        with suppress(RuntimeError):  # it is closed: nobody waits
            loop.call_soon_threadsafe(_set, its)


def _set(waiters: list[Waiter]) -> None:
    """Some now, the rest in the next turn of the loop: thousands that look at once would let
    nobody else have a turn."""
    for waiter in waiters[:WOKEN_AT_ONCE]:
        waiter.event.set()
    if len(waiters) > WOKEN_AT_ONCE:
        asyncio.get_running_loop().call_soon(_set, waiters[WOKEN_AT_ONCE:])


# -- the thread that watches ------------------------------------------------------------------
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
        """Wake the waiters of streams that changed; all of them, if that is not known."""
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


# -- in the queue of a group ------------------------------------------------------------------
class Tasks(NamedTuple):
    """Where the tasks of one event loop wait: who watches the store for them, and their threads."""

    watcher: Watcher
    run: Callable[[Callable[[], Any]], Awaitable[Any]]  # calls in a thread

    async def read(
        self,
        read: GroupRead,
        owner: tuple[object, bytes],
        deadline: float | None,
        *,
        alive: Callable[[], object],
        begun: Callable[[Waiter], object] = bool,
        most_s: float | None = None,
    ) -> list[Delivered]:
        """What the read gives; [] at the deadline (of ``time.monotonic``; None: none).

        Args:
            read: the read.
            owner: who keeps a place in the queue over time-outs: somebody, and its consumer.
            deadline: when it ends without entries.
            alive: raises when waiting is over; asked in a thread, when it begins to wait and
                whenever it was woken.
            begun: called once it stands in the queue, with what wakes it to ask ``alive``.
            most_s: no sleep is longer, because nobody wakes it when ``alive`` would raise.
        """
        shown = False
        while not over(deadline):
            waiting = _TaskSession(_Waiting(self, read, owner, alive, begun, most_s))
            try:
                found = await waiting.take(deadline)
            except GroupReplaced:
                waiting.leave()
                continue
            except BaseException:
                waiting.leave()
                raise
            if waiting.session is None:
                break  # the group is gone: reading says so
            if found or found is None:
                return found or []
            shown = True  # what it was handed was deleted since
        last: list[Delivered] = await self.run(partial(read.last, shown=shown))
        return last


class _Waiting(NamedTuple):
    """What a task waits for; see ``Tasks.read``."""

    tasks: Tasks
    read: GroupRead
    owner: tuple[object, bytes]
    alive: Callable[[], object]
    begun: Callable[[Waiter], object]
    most_s: float | None


class _TaskSession:
    """One wait of a task in the queue."""

    def __init__(self, asked: _Waiting) -> None:
        self.session: WaitSession | None = None  # None before it began, and if the group is gone
        self._asked = asked
        self._mutex = threading.Lock()
        self._runs = False  # a step, in a thread
        self._gone = False

    async def take(self, deadline: float | None) -> list[Delivered] | None:
        """Read at once, or in turn; None at the deadline, and if the group is gone."""
        watcher = self._asked.tasks.watcher
        found = await self._do(self._begin)
        session = self.session
        if found or session is None:
            return found
        if session.ticket is None:
            return await self._without_record(session, deadline)
        step = partial(session.step, self._asked.alive)
        with watcher.waiting((), ticket=session.ticket) as waiter:
            self._asked.begun(waiter)
            while True:
                waiter.event.clear()
                found = await self._do(step)
                if found is not None:
                    return found
                if over(deadline):
                    return await self._do(session.give_up)
                await waiter.wait(deadline, self._pause_s())
                if waiter.event.is_set():
                    watcher.engine().metrics.count("wakeups")

    def _begin(self) -> list[Delivered] | None:
        session = self.session = self._asked.read.session(self._asked.owner)
        return None if session is None else session.begin()

    async def _without_record(
        self, session: WaitSession, deadline: float | None
    ) -> list[Delivered] | None:
        """Wait where all records are taken: in order only among the tasks of this process that
        would take the same.
        """
        return await wait_for(
            self._asked.tasks.watcher,
            [self._asked.read.stream],
            lambda: self._do(session.out_of_turn),
            deadline,
            queue=(session.key, session.min_idle_ms),
            pause_s=self._pause_s,
            alive=lambda: self._do(self._asked.alive),
            begun=self._asked.begun,
        )

    def _pause_s(self) -> float | None:
        """How long to sleep at most."""
        pauses = (self._asked.most_s, None if self.session is None else self.session.pause_s())
        return min((each for each in pauses if each is not None), default=None)

    async def _do(self, call: Callable[[], R]) -> R:
        """One step, in a thread: it goes on if the task is cancelled meanwhile."""
        found: R = await self._asked.tasks.run(partial(self._step, call))
        return found

    def _step(self, call: Callable[[], R]) -> R:
        with self._mutex:
            if self._gone:
                raise asyncio.CancelledError
            self._runs = True
        try:
            return call()
        finally:
            if self._ended():
                self._leave()

    def _ended(self) -> bool:
        """The step is through; whether nobody waits for it any more."""
        with self._mutex:
            self._runs = False
            return self._gone

    def leave(self) -> None:
        """Give the place back, now or when the step is through that still runs: by its thread, as
        the loop may be closed by then.
        """
        with self._mutex:
            self._gone = True
            runs = self._runs
        if not runs:
            self._leave()

    def _leave(self) -> None:
        if self.session is not None:
            self.session.leave()
