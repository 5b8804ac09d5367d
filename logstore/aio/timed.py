"""What a stream of an AsyncStore does in time: entries that are scheduled, streams that expire.

Invariants: as of ``AsyncStream``, which is made of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Generic, Literal, TypeVar, overload

from logstore.aio.host import Host
from logstore.aio.pages import PAGE_ENTRIES, pages
from logstore.api.scheduling import ScheduledEntry, ScheduleKey
from logstore.api.stream import Stream
from logstore.codec import Row
from logstore.engine.features.expiry import Condition
from logstore.options import Sync

R = TypeVar("R")
T = TypeVar("T", bytes, str)


class TimedStream(Generic[T]):
    """Scheduling and expiring; the arguments are those of :class:`logstore.Stream`."""

    def __init__(self, store: Host[T], stream: Stream[T]) -> None:
        self._store: Host[T] = store
        self._stream: Stream[T] = stream
        self._run = store._run

    # -- scheduling and expiring --------------------------------------------------------------
    @overload
    async def schedule(
        self,
        fields: Row,
        *,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
        every: timedelta | float | None = None,
        cron: str | None = None,
        tz: str | None = None,
        name: str | None = None,
        create: Literal[True] = True,
        sync: Sync | None = None,
    ) -> ScheduleKey: ...
    @overload
    async def schedule(
        self,
        fields: Row,
        *,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
        every: timedelta | float | None = None,
        cron: str | None = None,
        tz: str | None = None,
        name: str | None = None,
        create: bool,
        sync: Sync | None = None,
    ) -> ScheduleKey | None: ...
    async def schedule(
        self,
        fields: Row,
        *,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
        every: timedelta | float | None = None,
        cron: str | None = None,
        tz: str | None = None,
        name: str | None = None,
        create: bool = True,
        sync: Sync | None = None,
    ) -> ScheduleKey | None:
        """Keep an entry until its time, as ``Stream.schedule``; its key."""
        return await self._run(
            lambda: self._stream.schedule(
                fields,
                at=at,
                after=after,
                every=every,
                cron=cron,
                tz=tz,
                name=name,
                create=create,
                sync=sync,
            )
        )

    async def cancel(
        self,
        key: ScheduleKey | str | None = None,
        *,
        name: str | None = None,
        sync: Sync | None = None,
    ) -> bool:
        """Schedule an entry no longer, as ``Stream.cancel``."""
        return await self._run(self._stream.cancel, key, name=name, sync=sync)

    def scheduled(self) -> AsyncIterator[ScheduledEntry[T]]:
        """What is scheduled and was not added yet, lazily, as ``Stream.scheduled``."""
        return self._pages(self._stream.scheduled())

    async def expire(
        self,
        *,
        after: timedelta | float | None = None,
        at: datetime | int | None = None,
        only: Condition | None = None,
        sync: Sync | None = None,
    ) -> bool:
        """Let the stream expire, as ``Stream.expire``."""
        return await self._run(self._stream.expire, after=after, at=at, only=only, sync=sync)

    async def persist(self, *, sync: Sync | None = None) -> bool:
        """Let the stream expire no longer, as ``Stream.persist``."""
        return await self._run(self._stream.persist, sync=sync)

    async def expires_at(self) -> datetime | None:
        """When the stream expires, as ``Stream.expires_at``."""
        return await self._run(lambda: self._stream.expires_at)

    async def ttl(self) -> timedelta | None:
        """How long it is until the stream expires, as ``Stream.ttl``."""
        return await self._run(lambda: self._stream.ttl)

    def _pages(self, found: Iterator[R], size: int = PAGE_ENTRIES) -> AsyncIterator[R]:
        return pages(self._run, found, size)
