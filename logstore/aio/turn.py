"""Waiting of asyncio tasks for entries of a group: the steps of ``waiting.session``, awaited.

Each step runs in an executor; in between the task waits for its event, which the thread that
watches the store sets when its ticket was called (``aio.wait``). So tasks stand in one queue with
threads and other processes.

Invariants: a task that is cancelled gives its place back, but not while a step of it still runs;
what such a step finds is in its consumer's backlog. A deadline is never early.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from logstore.aio.wait import Watcher, wait_for
from logstore.aio.waiter import Waiter
from logstore.engine.groups.deliver import Delivered
from logstore.engine.waiting.session import GroupRead, Moved, WaitSession
from logstore.engine.waiting.wait import over
from logstore.tuples import NamedTuple

R = TypeVar("R")
RETRY_MIN_S = 0.001  # between two looks for what became idle


class Tasks(NamedTuple):
    """Where the tasks of one event loop wait: who watches the store for them, and their threads."""

    watcher: Watcher
    run: Callable[[Callable[[], Any]], Awaitable[Any]]  # calls in a thread

    async def read(
        self, read: GroupRead, owner: tuple[object, bytes], deadline: float | None, *,
        alive: Callable[[], Awaitable[object]] | None = None,
        begun: Callable[[Waiter], object] = bool, most_s: float | None = None,
    ) -> list[Delivered]:  # fmt: skip
        """What the read gives; [] at the deadline (of ``time.monotonic``; None: none).

        Args:
            read: the read.
            owner: who keeps a place in the queue over time-outs: somebody, and its consumer.
            deadline: when it ends without entries.
            alive: raises when waiting is over; asked whenever it was woken.
            begun: told once it stands in the queue; what it is given wakes it, to ask ``alive``.
            most_s: no sleep is longer, because nobody wakes it when ``alive`` would raise.
        """
        shown = False
        while not over(deadline):
            session = await self.run(partial(read.session, owner))
            if session is None:
                break  # the group is gone: reading says so
            turn = _Turn(self, session, alive, begun, most_s)
            try:
                found = await turn.take(read.stream, deadline)
            except Moved:
                turn.leave()
                continue
            except BaseException:
                turn.leave()
                raise
            if found or found is None:
                return found or []
            shown = True  # what it was handed was deleted since
        last: list[Delivered] = await self.run(partial(read.last, shown=shown))
        return last


class _Turn:
    """One wait of a task in the queue."""

    def __init__(
        self, tasks: Tasks, session: WaitSession,
        alive: Callable[[], Awaitable[object]] | None, begun: Callable[[Waiter], object],
        most_s: float | None,
    ) -> None:  # fmt: skip
        self._tasks = tasks
        self._session = session
        self._alive = alive
        self._begun = begun
        self._most_s = most_s
        self._mutex = threading.Lock()
        self._runs = False  # a step, in a thread
        self._gone = False

    async def take(self, stream: bytes, deadline: float | None) -> list[Delivered] | None:
        """Read at once, or in turn; None at the deadline."""
        session, watcher = self._session, self._tasks.watcher
        found = await self._do(session.begin)
        if found:
            return found
        if session.ticket is None:  # more waiters than waiters: in order only among themselves
            queue = watcher.overflow.setdefault(session.key, deque())
            try:
                return await wait_for(
                    watcher, [stream], lambda: self._do(session.out_of_turn), deadline, queue=queue,
                    pause_s=lambda: self._most_s, alive=self._alive, begun=self._begun,
                )  # fmt: skip
            finally:
                if not queue:
                    watcher.overflow.pop(session.key, None)
        with watcher.waiting((), ticket=session.ticket) as waiter:
            self._begun(waiter)
            while True:
                waiter.event.clear()
                found = await self._do(session.step)
                if found is not None:
                    return found
                if over(deadline):
                    return await self._do(session.give_up)
                if self._alive is not None:
                    try:
                        await self._alive()
                    except Exception:
                        if (had := await self._do(session.stop)) is not None:
                            return had
                        raise
                await self._sleep(waiter, deadline)

    async def _sleep(self, waiter: Waiter, deadline: float | None) -> None:
        engine, due_ms = self._tasks.watcher.engine(), self._session.due_ms
        most_s = self._most_s
        if due_ms is not None:
            left_s = max(RETRY_MIN_S, (due_ms - engine.clock.now_ms()) / 1000)
            most_s = left_s if most_s is None else min(most_s, left_s)
        await waiter.wait(deadline, most_s)
        if waiter.event.is_set():
            engine.metrics.count("wakeups")

    async def _do(self, call: Callable[[], R]) -> R:
        """One step, in a thread: who is cancelled meanwhile does not end it."""
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
                self._session.leave()

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
            self._session.leave()
