"""How asyncio tasks wait in the queue of a group: the steps of ``waiting.wait_session``, awaited.

Each step runs in a thread; in between the task waits for its event, which the thread that watches
the store sets when its waiter record was called (``aio.wait``). So tasks stand in one queue with
threads and other processes.

Invariants: a task that is cancelled gives its place back, but not while a step of it still runs;
what such a step finds is in its consumer's backlog. A deadline is never early.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from logstore.aio.wait import Watcher, wait_for
from logstore.aio.waiter import Waiter
from logstore.engine.groups.deliver import Delivered
from logstore.engine.waiting.stream_wait import over
from logstore.engine.waiting.wait_session import GroupRead, GroupReplaced, WaitSession
from logstore.tuples import NamedTuple

R = TypeVar("R")


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
            begun: told once it stands in the queue; what it is given wakes it, to ask ``alive``.
            most_s: no sleep is longer, because nobody wakes it when ``alive`` would raise.
        """
        shown = False
        while not over(deadline):
            waiting = _TaskSession(self, read, owner, alive, begun, most_s)
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


class _TaskSession:
    """One wait of a task in the queue."""

    def __init__(
        self,
        tasks: Tasks,
        read: GroupRead,
        owner: tuple[object, bytes],
        alive: Callable[[], object],
        begun: Callable[[Waiter], object],
        most_s: float | None,
    ) -> None:
        self.session: WaitSession | None = None  # None before it began, and if the group is gone
        self._tasks = tasks
        self._read = read
        self._owner = owner
        self._alive = alive
        self._begun = begun
        self._most_s = most_s
        self._mutex = threading.Lock()
        self._runs = False  # a step, in a thread
        self._gone = False

    async def take(self, deadline: float | None) -> list[Delivered] | None:
        """Read at once, or in turn; None at the deadline, and if the group is gone."""
        watcher = self._tasks.watcher
        found = await self._do(self._begin)
        session = self.session
        if found or session is None:
            return found
        if session.ticket is None:
            return await self._without_record(session, deadline)
        step = partial(session.step, self._alive)
        with watcher.waiting((), ticket=session.ticket) as waiter:
            self._begun(waiter)
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
        session = self.session = self._read.session(self._owner)
        return None if session is None else session.begin()

    async def _without_record(
        self, session: WaitSession, deadline: float | None
    ) -> list[Delivered] | None:
        """Wait where all records are taken: in order only among the tasks of this process that
        would take the same.
        """
        return await wait_for(
            self._tasks.watcher,
            [self._read.stream],
            lambda: self._do(session.out_of_turn),
            deadline,
            queue=(session.key, session.min_idle_ms),
            pause_s=self._pause_s,
            alive=lambda: self._do(self._alive),
            begun=self._begun,
        )

    def _pause_s(self) -> float | None:
        """How long to sleep at most."""
        pauses = (self._most_s, None if self.session is None else self.session.pause_s())
        return min((each for each in pauses if each is not None), default=None)

    async def _do(self, call: Callable[[], R]) -> R:
        """One step, in a thread: it goes on if the task is cancelled meanwhile."""
        found: R = await self._tasks.run(partial(self._step, call))
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
