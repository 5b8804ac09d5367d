"""Consumer groups for asyncio: the names of :class:`logstore.Group`, awaited.

Invariants: tasks stand in the queue of a group with threads and processes (``aioturn``); a worker
takes the same steps as a plain one (``workloop``). See ``aio``.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from logstore import aioturn, arguments, worker, workloop
from logstore.deadletters import OnDead
from logstore.delivery import Autoclaimed, DeletedDelivery, Delivery
from logstore.group import Group
from logstore.handlers import check_callable, not_done
from logstore.ids import IDLike
from logstore.info import ConsumerInfo, GroupInfo, PendingInfo
from logstore.reading import deadline_of, group_limits
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
        self, consumer: Name, *, count: int | None = None, max_count: int | None = None,
        max_bytes: int | None = None, timeout: Timeout = 0, noack: bool = False,
        claim_idle: timedelta | float | None = None,
    ) -> list[Delivery[Any]]:  # fmt: skip
        """Entries that no consumer of the group got before, as ``Group.read``."""
        idle_ms = None if claim_idle is None else arguments.milliseconds(claim_idle, "claim_idle")
        limit, most_bytes = group_limits(count, max_count, max_bytes)
        who, deadline = self._group._consumer(consumer), deadline_of(timeout)
        if timeout == 0:
            return await self._run(
                self._group._read, who, limit, deadline, noack=noack, claim_idle_ms=idle_ms,
                max_bytes=most_bytes,
            )  # fmt: skip
        return await self._wait(
            who, limit, deadline, noack=noack, claim_idle_ms=idle_ms, max_bytes=most_bytes
        )

    async def _wait(
        self, who: bytes, limit: int, deadline: float | None,
        alive: Callable[[], object] | None = None, **options: Any,
    ) -> list[Delivery[Any]]:  # fmt: skip
        """Read, or wait in the queue of the group; options as of ``Group._waiting``."""
        group = self._group
        wait = group._waiting(who, limit, **options)
        worker = bool(options.get("worker"))
        found = await aioturn.read(self._store, wait, deadline, alive, worker=worker)
        return group._deliveries(who, found)

    async def backlog(
        self, consumer: Name, after: IDLike = "0", *, count: int | None = None
    ) -> list[Delivery[Any] | DeletedDelivery[Any]]:
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

    async def configure(self, **settings: Any) -> GroupSettings[Any]:
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
        on_dead: OnDead[Any] | None = None,
    ) -> int:  # fmt: skip
        """Hand entries to ``handler``, as ``Group.consume``, until stopped; how many it handled.

        A coroutine function runs in the event loop, another one in a thread. ``stop`` is an
        ``asyncio.Event`` or a ``threading.Event``; SIGTERM is left to the caller. If the task is
        cancelled, what it had begun or fetched stays pending, in the consumer's backlog.
        ``on_dead`` is a plain function, called in a thread.
        """
        check_callable(handler, "handler")
        work = workloop.Work(
            handler, batch, max_deliveries, dead_letter, claim_idle, stop, timeout, on_dead
        )
        return await _AsyncWorker(self, consumer, work).run()


class _AsyncWorker:
    """One run of ``consume``: performs the steps of ``workloop``; its handlers are awaited."""

    def __init__(self, group: AsyncGroup, consumer: Name, work: workloop.Work) -> None:
        self._group = group
        self._loop = workloop.Loop(group._group, consumer, work)
        handler: Any = work.handler
        called = getattr(type(handler), "__call__", None)  # noqa: B004  an async one
        self._awaits = any(map(inspect.iscoroutinefunction, (handler, called)))

    async def run(self) -> int:
        """The loop."""
        steps, answer = self._loop.rounds(), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                handled: int = end.value
                return handled
            answer = await self._perform(step)

    async def _perform(self, step: workloop.Step) -> Any:
        if isinstance(step, workloop.Do):
            return await self._group._run(step.call)
        if isinstance(step, workloop.Handle):
            return await self._handle(step.delivery)
        if isinstance(step, workloop.Fetch):
            return await self._fetch(step)
        until = time.monotonic() + step.length_s
        while not self._loop.stop and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(worker.SLEEP_S, left))
        return None

    async def _fetch(self, step: workloop.Fetch) -> list[Delivery[Any]]:
        loop = self._loop
        try:
            return await self._group._wait(
                loop.consumer, loop.work.batch, step.until, loop.alive,
                claim_idle_ms=loop.claim_idle_ms, worker=True, dead=loop.limit,
                on_dead=loop.work.on_dead,
            )  # fmt: skip
        except workloop.Stopped:
            return []

    async def _handle(self, delivery: Delivery[Any]) -> Exception | None:
        handler = self._loop.work.handler
        try:
            if self._awaits:
                given = handler(delivery)
            else:
                given = await asyncio.to_thread(handler, delivery)
            if inspect.isawaitable(given):
                given = await given
        except Exception as error:  # noqa: BLE001  the loop decides
            return error
        return not_done(given, "handler", "await it in the handler")
