"""Consumer groups for asyncio: the names of :class:`logstore.Group`, awaited.

Invariants: only the first task in the queue of a group tries, and each try looks at a snapshot
before it commits, so that waiting writes nothing to the log but once that the consumer was seen; a
worker settles entries exactly as ``logstore.worker`` does, whose steps it takes. See ``aio``.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from logstore import arguments, groupwait, worker
from logstore.aiowait import RETRY_S, wait_for
from logstore.delivery import Autoclaimed, Delivery
from logstore.group import Group
from logstore.ids import IDLike
from logstore.info import ConsumerInfo, GroupInfo, PendingInfo
from logstore.reading import deadline_of
from logstore.settings import GroupSettings

if TYPE_CHECKING:
    from logstore.aio import AsyncStore

Name = str | bytes
Timeout = float | timedelta | None
Handler = Callable[[Delivery[Any]], object]


class AsyncGroup:
    """One consumer group; the options are those of :class:`logstore.Group`."""

    def __init__(self, store: AsyncStore, group: Group[Any]) -> None:
        self._store = store
        self._group = group
        self._run = store._run

    @property
    def name(self) -> Any:
        """The group's name, as bytes or in the store's encoding."""
        return self._group.name

    async def create(self, start: IDLike = "$", **options: Any) -> None:
        """Make the group; GroupExistsError if there is one."""
        await self._run(self._group.create, start, **options)

    async def destroy(self, **options: Any) -> bool:
        """Remove the group with all that is pending; False if there is none."""
        return await self._run(self._group.destroy, **options)

    async def read(
        self, consumer: Name, *, count: int | None = None, timeout: Timeout = 0,
        noack: bool = False, claim_idle: timedelta | float | None = None,
    ) -> list[Delivery[Any]]:  # fmt: skip
        """Entries that no consumer of the group got before, as ``Group.read``."""
        idle_ms = None if claim_idle is None else arguments.milliseconds(claim_idle, "claim_idle")
        who, limit = self._group._consumer(consumer), arguments.read_count(count)
        deadline = deadline_of(timeout)
        if timeout == 0:
            return await self._run(
                self._group._read, who, limit, deadline, noack=noack, claim_idle_ms=idle_ms
            )
        return await self._wait(who, limit, deadline, noack, idle_ms, idle_ms)

    async def _wait(
        self, who: bytes, limit: int, deadline: float | None, noack: bool, idle_ms: int | None,
        place: object, alive: Callable[[], object] | None = None,
    ) -> list[Delivery[Any]]:  # fmt: skip
        group = self._group
        probe = groupwait.Wait(group._store, group._stream, group._name, who, list, idle_ms, None)

        def show() -> None:
            if not group._view(probe._deliverable):
                group._store._commit(probe._show, None)

        def attempt() -> list[Delivery[Any]]:
            if not group._view(probe._deliverable):
                return []
            return group._read(who, limit, 0.0, noack=noack, claim_idle_ms=idle_ms)

        async def tried() -> list[Delivery[Any]]:
            return await self._run(attempt)

        async def lives() -> None:
            if alive is not None:
                await self._run(alive)

        await self._run(show)
        queues, key = self._store._queues, (group._stream, group._name, place)
        queue = queues.setdefault(key, deque())
        try:
            found = await wait_for(
                self._store._watcher, [group._stream], tried, deadline, queue=queue,
                retry_s=None if idle_ms is None else RETRY_S,
                alive=None if alive is None else lives,
            )  # fmt: skip
        finally:
            if not queue and queues.get(key) is queue:
                del queues[key]
        return found or []

    async def backlog(
        self, consumer: Name, after: IDLike = "0", *, count: int | None = None
    ) -> list[Delivery[Any]]:
        """The consumer's own pending entries above an ID, delivered to it once more."""
        return await self._run(self._group.backlog, consumer, after, count=count)

    async def ack(self, *ids: IDLike, **options: Any) -> int:
        """Done: these are no longer pending; how many were."""
        return await self._run(self._group.ack, *ids, **options)

    async def nack(self, *ids: IDLike, **options: Any) -> int:
        """Not done: give these back to the group; how many were pending."""
        return await self._run(self._group.nack, *ids, **options)

    async def claim(
        self, consumer: Name, ids: Iterable[IDLike], **options: Any
    ) -> list[Delivery[Any]]:
        """Take these over, as ``Group.claim``; those taken."""
        return await self._run(self._group.claim, consumer, ids, **options)

    async def autoclaim(self, consumer: Name, **options: Any) -> Autoclaimed[Any]:
        """Take over what is idle for long, as ``Group.autoclaim``."""
        return await self._run(self._group.autoclaim, consumer, **options)

    async def pending(self) -> PendingInfo[Any]:
        """How much is pending, between which IDs and with whom."""
        return await self._run(self._group.pending)

    async def configure(self, **settings: Any) -> GroupSettings:
        """Set what becomes of entries that nobody acks, as ``Group.configure``."""
        return await self._run(self._group.configure, **settings)

    async def info(self) -> GroupInfo[Any]:
        """All fields of XINFO GROUPS about this group."""
        return await self._run(self._group.info)

    async def consumers(self) -> list[ConsumerInfo[Any]]:
        """All fields of XINFO CONSUMERS, by name."""
        return await self._run(self._group.consumers)

    async def consume(
        self, consumer: Name, handler: Handler, *, batch: int = 10,
        max_deliveries: int | None = None, dead_letter: Name | None = None,
        claim_idle: timedelta | float | None = None, stop: Any = None, timeout: Timeout = None,
        on_dead: Handler | None = None,
    ) -> int:  # fmt: skip
        """Hand entries to ``handler``, as ``Group.consume``, until stopped; how many it handled.

        A coroutine function runs in the event loop, another one in a thread. ``stop`` is an
        ``asyncio.Event`` or a ``threading.Event``; SIGTERM is left to the caller. If the task is
        cancelled, what it had begun or fetched stays pending, in the consumer's backlog.
        ``on_dead`` is a plain function, called in a thread.
        """
        work = worker.Work(
            handler, batch, max_deliveries, dead_letter, claim_idle, stop, timeout, on_dead
        )
        return await _AsyncWorker(self, consumer, work).run()


class _AsyncWorker:
    """One run of ``consume``: the loop of ``worker``, whose handlers are awaited."""

    def __init__(self, group: AsyncGroup, consumer: Name, work: worker.Work) -> None:
        self._handler = work.handler
        self._group = group
        self._work = work._replace(handler=self._replay)
        self._stop = worker._Stop(work.stop)
        who = group._group._consumer(consumer)
        self._steps = worker._Worker(group._group, who, self._work, self._stop)
        self._failed: Exception | None = None

    async def run(self) -> int:
        """The loop."""
        timeout, steps = self._work.timeout, self._steps
        deadline, pause = deadline_of(timeout), worker.PAUSE_S
        while not self._stop:
            fetched = await self._next(deadline)
            before = steps._handled
            went_on = await self._batch(fetched)
            over = deadline is not None and time.monotonic() >= deadline
            if steps._handled > before:
                pause = worker.PAUSE_S
            elif not fetched or not went_on:
                if over:
                    break
                if fetched:
                    await self._sleep(pause)
                    pause = min(2 * pause, worker.PAUSE_MAX_S)
                continue
            deadline = deadline_of(timeout)
        return steps._handled

    async def _sleep(self, length_s: float) -> None:
        until = time.monotonic() + length_s
        while not self._stop and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(worker.SLEEP_S, left))

    async def _next(self, deadline: float | None) -> list[Delivery[Any]]:
        steps, group, run = self._steps, self._group, self._group._run
        count = self._work.batch
        if await run(steps._has_backlog):
            return await run(group._group.backlog, steps._consumer, count=count)
        idle_ms = steps._idle_ms
        if idle_ms is None:  # only what was given back
            now_ms, least = group._group._now_ms(), worker.NOBODYS_MS
            idle_ms = now_ms - least if now_ms > 2 * least else now_ms
        until = time.monotonic() + worker.ROUND_S
        until = until if deadline is None else min(until, deadline)
        place = ("consume", steps._idle_ms)
        try:
            return await group._wait(
                steps._consumer, count, until, False, idle_ms, place, steps._alive
            )
        except worker._Stopped:
            return []

    async def _batch(self, fetched: list[Delivery[Any]]) -> bool:
        """Handle a batch; False if there were failures that will come back without end."""
        steps, run, went_on = self._steps, self._group._run, True
        for place, delivery in enumerate(fetched):
            if self._stop:
                for each in fetched[place:]:
                    await run(steps._give_back, each, each.delivery_count - 1)
                break
            if delivery.deleted:
                await run(delivery.ack)
            elif steps._limit is not None and delivery.delivery_count > steps._limit:
                await run(steps._bury, delivery, "its workers ended without an outcome")
            else:
                went_on = await self._handle(delivery) and went_on
        return went_on or steps._limit is not None

    async def _handle(self, delivery: Delivery[Any]) -> bool:
        """The handler first; then the worker's own step, to which its outcome is told."""
        self._failed = None
        try:
            if inspect.iscoroutinefunction(self._handler):
                await self._handler(delivery)
            else:
                given = await asyncio.to_thread(self._handler, delivery)
                if inspect.isawaitable(given):
                    await given
        except Exception as error:  # noqa: BLE001  the worker's step decides
            self._failed = error
        return await self._group._run(self._steps._handle, delivery)

    def _replay(self, _delivery: Delivery[Any]) -> None:
        if self._failed is not None:
            raise self._failed
