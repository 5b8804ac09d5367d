"""Consumer groups for asyncio: the names of :class:`logstore.Group`, awaited.

Invariants: tasks stand in the queue of a group with threads and processes (``aio.tasks``); a worker
takes the same steps as a plain one (``api.worker``). See ``aio``.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from logstore.aio.host import Host, StreamOfGroup
from logstore.api import arguments, worker
from logstore.api.configuring import KEEP, Amount, Keep, Length
from logstore.api.dead_letters import OnDead
from logstore.api.delivery import Autoclaimed, DeletedDelivery, Delivery, deliveries_of
from logstore.api.entry import DeleteOutcome
from logstore.api.group import Group
from logstore.api.handlers import check_callable, not_done
from logstore.api.info import ConsumerInfo, GroupInfo, PendingEntry, PendingInfo
from logstore.ids import IDLike
from logstore.options import NackMode, References, Sync
from logstore.settings import GroupSettings

if TYPE_CHECKING:
    import threading


R = TypeVar("R")
STOP_S = 0.5  # at least so often a worker looks whether it is to stop: nobody wakes it for that
T = TypeVar("T", bytes, str)


class AsyncGroup(Generic[T]):
    """One consumer group; the arguments are those of :class:`logstore.Group`."""

    def __init__(self, store: Host[T], group: Group[T]) -> None:
        self._store: Host[T] = store
        self._group: Group[T] = group
        self._run = store._run

    def __repr__(self) -> str:
        return f"<Async{repr(self._group)[1:]}"

    @property
    def name(self) -> T:
        """The group's name, as bytes or in the store's encoding."""
        return self._group.name

    @property
    def stream(self) -> StreamOfGroup[T]:
        """The stream, an :class:`logstore.aio.AsyncStream`."""
        return self._store.stream(self._group._stream)

    # -- the group itself -----------------------------------------------------------------------
    async def create(
        self,
        start: IDLike = "$",
        *,
        entries_read: int | None = None,
        make_stream: bool = True,
        sync: Sync | None = None,
    ) -> None:
        """Make the group, as ``Group.create``; GroupExistsError if there is one."""
        await self._run(
            self._group.create, start, entries_read=entries_read, make_stream=make_stream, sync=sync
        )

    async def set_id(
        self, last_id: IDLike, *, entries_read: int | None = None, sync: Sync | None = None
    ) -> None:
        """Deliver next what comes after ``last_id``, as ``Group.set_id``."""
        await self._run(self._group.set_id, last_id, entries_read=entries_read, sync=sync)

    async def destroy(self, *, sync: Sync | None = None) -> bool:
        """Remove the group with all that is pending; False if there is none."""
        return await self._run(self._group.destroy, sync=sync)

    async def exists(self) -> bool:
        """Whether there is such a group."""
        return await self._run(self._group.exists)

    async def add_consumer(self, consumer: str | bytes, *, sync: Sync | None = None) -> bool:
        """Make a consumer before its first read; False if there is one."""
        return await self._run(self._group.add_consumer, consumer, sync=sync)

    async def remove_consumer(self, consumer: str | bytes, *, sync: Sync | None = None) -> int:
        """Remove a consumer; how many entries were pending with it, which nobody gets then."""
        return await self._run(self._group.remove_consumer, consumer, sync=sync)

    async def configure(
        self,
        *,
        max_deliveries: Amount = KEEP,
        dead_letter: str | bytes | Literal[Keep.KEEP] | None = KEEP,
        redeliver_after: Length = KEEP,
        backoff: Length = KEEP,
        backoff_max: timedelta | float | Literal[Keep.KEEP] = KEEP,
        sync: Sync | None = None,
    ) -> GroupSettings[T]:
        """Set what becomes of entries that nobody acks, as ``Group.configure``."""
        return await self._run(
            self._group.configure,
            max_deliveries=max_deliveries,
            dead_letter=dead_letter,
            redeliver_after=redeliver_after,
            backoff=backoff,
            backoff_max=backoff_max,
            sync=sync,
        )

    # -- reading --------------------------------------------------------------------------------
    async def read(
        self,
        consumer: str | bytes,
        *,
        count: int | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        timeout: timedelta | float | None = 0,
        noack: bool = False,
        claim_idle: timedelta | float | None = None,
        block: None = None,
    ) -> list[Delivery[T]]:
        """Entries that no consumer of the group got before, as ``Group.read``."""
        ask = arguments.group_read(
            consumer,
            self._store.encoding,
            count=count,
            max_count=max_count,
            max_bytes=max_bytes,
            timeout=timeout,
            noack=noack,
            claim_idle=claim_idle,
            block=block,
        )
        options: dict[str, Any] = {
            "noack": noack,
            "claim_idle_ms": ask.claim_idle_ms,
            "max_bytes": ask.max_bytes,
        }
        if timeout == 0:
            return await self._run(
                self._group._read, ask.consumer, ask.limit, ask.deadline, **options
            )
        return await self._wait(ask.consumer, ask.limit, ask.deadline, **options)

    async def _wait(
        self,
        who: bytes,
        limit: int,
        deadline: float | None,
        alive: Callable[[], object] | None = None,
        **options: Any,
    ) -> list[Delivery[T]]:
        """Read, or wait in the queue of the group; options as of ``Group._waiting``."""
        group = self._group
        wait = group._waiting(who, limit, **options)
        owner = (self._store._reader(), who)
        found = await self._store._tasks.read(
            wait,
            owner,
            deadline,
            alive=alive or group._opened.engine,
            most_s=STOP_S if options.get("worker") else None,
        )
        return deliveries_of(group, who, found)

    async def backlog(
        self, consumer: str | bytes, after: IDLike = "0", *, count: int | None = None
    ) -> list[Delivery[T] | DeletedDelivery[T]]:
        """The consumer's own pending entries above an ID, delivered to it once more."""
        return await self._run(self._group.backlog, consumer, after, count=count)

    # -- done, or not ---------------------------------------------------------------------------
    async def ack(self, *ids: IDLike, sync: Sync | None = None) -> int:
        """Done: these are no longer pending; how many were."""
        return await self._run(self._group.ack, *ids, sync=sync)

    async def nack(
        self,
        *ids: IDLike,
        mode: NackMode = "fail",
        retry_count: int | None = None,
        force: bool = False,
        delay: timedelta | float | None = None,
        error: str = "",
        sync: Sync | None = None,
    ) -> int:
        """Not done: give these back to the group, as ``Group.nack``; how many were pending."""
        return await self._run(
            self._group.nack,
            *ids,
            mode=mode,
            retry_count=retry_count,
            force=force,
            delay=delay,
            error=error,
            sync=sync,
        )

    async def ack_delete(
        self, *ids: IDLike, references: References = "keep", sync: Sync | None = None
    ) -> list[DeleteOutcome]:
        """Done, and delete the entries, as ``Group.ack_delete``; an outcome for each ID."""
        return await self._run(self._group.ack_delete, *ids, references=references, sync=sync)

    # -- taking over ----------------------------------------------------------------------------
    async def claim(
        self,
        consumer: str | bytes,
        ids: Iterable[IDLike],
        *,
        min_idle: timedelta | float,
        idle: timedelta | float | None = None,
        time: datetime | None = None,
        retry_count: int | None = None,
        force: bool = False,
        just_id: bool = False,
        last_id: IDLike | None = None,
        sync: Sync | None = None,
    ) -> list[Delivery[T]]:
        """Take these over, as ``Group.claim``; those taken."""
        return await self._run(
            self._group.claim,
            consumer,
            ids,
            min_idle=min_idle,
            idle=idle,
            time=time,
            retry_count=retry_count,
            force=force,
            just_id=just_id,
            last_id=last_id,
            sync=sync,
        )

    async def autoclaim(
        self,
        consumer: str | bytes,
        *,
        min_idle: timedelta | float,
        start: IDLike | None = None,
        count: int = 100,
        just_id: bool = False,
        sync: Sync | None = None,
    ) -> Autoclaimed[T]:
        """Take over what is idle for long, as ``Group.autoclaim``."""
        return await self._run(
            self._group.autoclaim,
            consumer,
            min_idle=min_idle,
            start=start,
            count=count,
            just_id=just_id,
            sync=sync,
        )

    async def reassign(
        self, min_idle: timedelta | float, alive_within: timedelta | float, *, count: int = 1000
    ) -> dict[T, int]:
        """Hand what is pending for long to consumers that are alive, as ``Group.reassign``."""
        return await self._run(self._group.reassign, min_idle, alive_within, count=count)

    # -- what it tells --------------------------------------------------------------------------
    async def pending(self) -> PendingInfo[T]:
        """How much is pending, between which IDs and with whom."""
        return await self._run(self._group.pending)

    def pending_entries(
        self,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        count: int | None = None,
        consumer: str | bytes | None = None,
        min_idle: timedelta | float = 0,
    ) -> AsyncIterator[PendingEntry[T]]:
        """What is pending, by ID, lazily, as ``Group.pending_entries``."""
        return self.stream._pages(
            self._group.pending_entries(
                start, end, count=count, consumer=consumer, min_idle=min_idle
            )
        )

    async def info(self) -> GroupInfo[T]:
        """All fields of XINFO GROUPS about this group."""
        return await self._run(self._group.info)

    async def settings(self) -> GroupSettings[T]:
        """What is set with ``configure``; GroupNotFoundError if there is no group."""
        return await self._run(lambda: self._group.settings)

    async def consumers(self) -> list[ConsumerInfo[T]]:
        """All fields of XINFO CONSUMERS, by name."""
        return await self._run(self._group.consumers)

    # -- working --------------------------------------------------------------------------------
    async def consume(
        self,
        consumer: str | bytes,
        handler: Callable[[Delivery[T]], object],
        *,
        batch: int = 10,
        max_deliveries: int | None = None,
        dead_letter: str | bytes | None = None,
        claim_idle: timedelta | float | None = None,
        stop: asyncio.Event | threading.Event | None = None,
        timeout: timedelta | float | None = None,
        on_dead: OnDead[T] | None = None,
        backoff: timedelta | float | None = None,
        backoff_max: timedelta | float = 3600,
        concurrency: int = 1,
    ) -> int:
        """Hand entries to ``handler``, as ``Group.consume``, until stopped; how many it handled.

        A coroutine function runs in the event loop, another one in a thread; what it returns is
        awaited, if it can be. At most ``concurrency`` of them run at once, over the entries of one
        batch, which is at least as large; the next batch is read when all of it were handled.
        ``stop`` is an ``asyncio.Event`` or a ``threading.Event``; SIGTERM is left to the caller. If
        the task is cancelled, what it had begun or fetched stays pending, in the consumer's
        backlog. ``on_dead`` is a plain function, called in a thread.
        """
        check_callable(handler, "handler")
        work = worker.Work(
            handler,
            batch,
            max_deliveries,
            dead_letter,
            claim_idle,
            stop,
            timeout,
            on_dead,
            concurrency,
            backoff,
            backoff_max,
        )
        return await _AsyncWorker(self, consumer, work).run()


class _AsyncWorker(Generic[T]):
    """One run of ``consume``: performs the steps of ``api.worker``; its handlers are awaited."""

    def __init__(self, group: AsyncGroup[T], consumer: str | bytes, work: worker.Work) -> None:
        self._group: AsyncGroup[T] = group
        self._loop: worker.Loop[T] = worker.Loop(group._group, consumer, work)
        handler: Any = work.handler
        called = getattr(type(handler), "__call__", None)  # noqa: B004  an async one
        self._awaits = any(map(inspect.iscoroutinefunction, (handler, called)))

    async def run(self) -> int:
        """The loop."""
        return await self._drive(self._loop.rounds())

    async def _drive(self, steps: Generator[worker.Step, Any, R]) -> R:
        answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: R = end.value
                return result
            answer = await self._perform(step)

    async def _together(self, step: worker.Together) -> list[bool]:
        """Drive what is done for each delivery, some at once; all have ended when this returns."""
        free = asyncio.Semaphore(step.most)

        async def one(delivery: Delivery[Any]) -> bool:
            async with free:
                return await self._drive(step.handle(delivery))

        tasks = [asyncio.ensure_future(one(each)) for each in step.deliveries]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _perform(self, step: worker.Step) -> Any:
        if isinstance(step, worker.Do):
            return await self._group._run(step.call)
        if isinstance(step, worker.Handle):
            return await self._handle(step.delivery)
        if isinstance(step, worker.Together):
            return await self._together(step)
        if isinstance(step, worker.Fetch):
            return await self._fetch(step)
        until = time.monotonic() + step.length_s
        while not self._loop.stop and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(worker.SLEEP_S, left))
        return None

    async def _fetch(self, step: worker.Fetch) -> list[Delivery[T]]:
        loop = self._loop
        try:
            return await self._group._wait(
                loop.consumer,
                loop.batch,
                step.until,
                loop.alive,
                claim_idle_ms=loop.claim_idle_ms,
                worker=True,
                dead=loop.limit,
                on_dead=loop.work.on_dead,
            )
        except worker.Stopped:
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
