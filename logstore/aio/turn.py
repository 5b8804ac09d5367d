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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.aio.wait import wait_for
from logstore.aio.waiter import Waiter
from logstore.api import group_wait
from logstore.engine.groups.deliver import Delivered
from logstore.engine.waiting.session import Stay
from logstore.engine.waiting.wait import over

if TYPE_CHECKING:
    from logstore.aio.store import AsyncStore

R = TypeVar("R")
RETRY_MIN_S = 0.001  # between two looks for what became idle
STOP_S = 0.5  # at least so often a worker looks whether it is to stop: nobody wakes it for that


async def read(
    store: AsyncStore[Any], wait: group_wait.Wait, deadline: float | None,
    alive: Callable[[], object] | None = None, *, worker: bool = False,
) -> list[Delivered]:  # fmt: skip
    """What the read gives; [] at the deadline (of ``time.monotonic``; None: none)."""
    owner = (_known(store), wait.consumer)
    while not over(deadline):
        stay = await store._run(wait.stay, owner)
        if stay is None:
            break  # the group is gone: reading says so
        turn = _Turn(store, stay)
        try:
            found = await turn.take(wait.stream, deadline, alive, worker=worker)
        except group_wait.Moved:
            turn.leave()
            continue
        except BaseException:
            turn.leave()
            raise
        if found or found is None:
            return found or []
        # What it was handed was deleted since.
    return await store._run(wait.at_once)


class _Turn:
    """One stay of a task in the queue."""

    def __init__(self, store: AsyncStore[Any], stay: Stay[list[Delivered]]) -> None:
        self._store = store
        self._stay = stay
        self._mutex = threading.Lock()
        self._runs = False  # a step, in a thread
        self._gone = False

    async def take(
        self, stream: bytes, deadline: float | None, alive: Callable[[], object] | None, *,
        worker: bool,
    ) -> list[Delivered] | None:  # fmt: skip
        """Read at once, or in turn; None at the deadline."""
        stay, watcher = self._stay, self._store._watcher
        found = await self._do(stay.begin)
        if found:
            return found
        if stay.ticket is None:  # more waiters than slots: without order
            return await wait_for(
                watcher, [stream], lambda: self._do(stay.out_of_turn), deadline,
                pause_s=lambda: STOP_S,
                alive=None if alive is None else lambda: self._store._run(alive),
            )  # fmt: skip
        with watcher.waiting((), ticket=stay.ticket) as waiter:
            while True:
                waiter.event.clear()
                found = await self._do(stay.step)
                if found is not None:
                    return found
                if over(deadline):
                    return await self._do(stay.give_up)
                if alive is not None:
                    try:
                        await self._store._run(alive)
                    except Exception:
                        if (had := await self._do(stay.stop)) is not None:
                            return had
                        raise
                await self._sleep(waiter, deadline, worker)

    async def _sleep(self, waiter: Waiter, deadline: float | None, worker: bool) -> None:
        engine, due_ms = self._store._watcher.engine(), self._stay.due_ms
        most_s = STOP_S if worker else None
        if due_ms is not None:
            left_s = max(RETRY_MIN_S, (due_ms - engine.clock.now_ms()) / 1000)
            most_s = left_s if most_s is None else min(most_s, left_s)
        await waiter.wait(deadline, most_s)
        if waiter.event.is_set():
            engine.metrics.count("wakeups")

    async def _do(self, call: Callable[[], R]) -> R:
        """One step, in a thread: who is cancelled meanwhile does not end it."""
        return await self._store._run(self._step, call)

    def _step(self, call: Callable[[], R]) -> R:
        with self._mutex:
            if self._gone:
                raise asyncio.CancelledError
            self._runs = True
        try:
            return call()
        finally:
            if self._ended():
                self._stay.leave()

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
            self._stay.leave()


def _known(store: AsyncStore[Any]) -> int:
    """The identity of the task at hand, whose places are given back when it is done: many tasks
    that come to a time-out once and end would hold all there are.
    """
    task = asyncio.current_task()
    if task is not None and task not in store._readers:
        places = store._watcher.engine().wake.waits.places
        store._readers.add(task)
        task.add_done_callback(lambda done: places.forget(id(done)))
    return id(task)
