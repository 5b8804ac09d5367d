"""A stream of an AsyncStore: the same names as :class:`logstore.Stream`, awaited.

Invariants: calls run in the threads of the store; who waits for entries holds none.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from logstore import arguments, reading
from logstore.aiogroup import AsyncGroup
from logstore.codec import Row
from logstore.entry import Entry, IDRuns
from logstore.fullinfo import FullStreamInfo
from logstore.ids import IDLike, StreamID
from logstore.info import StreamInfo
from logstore.outcome import DeleteOutcome
from logstore.scheduling import ScheduledEntry, ScheduleKey
from logstore.settings import StreamSettings
from logstore.stream import Stream

if TYPE_CHECKING:
    from logstore.aio import AsyncStore

Name = str | bytes
Timeout = float | timedelta | None
PAGE_ENTRIES = 256  # entries an iterator fetches at once


class AsyncStream:
    """One stream of an AsyncStore; the options are those of :class:`logstore.Stream`."""

    def __init__(self, store: AsyncStore, stream: Stream[Any]) -> None:
        self._store = store
        self._stream = stream
        self._run = store._run

    @property
    def name(self) -> Any:
        """The name, as bytes or in the store's encoding."""
        return self._stream.name

    async def add(self, fields: Row, id: IDLike = "*", **options: Any) -> StreamID | None:
        """Add one entry, as ``Stream.add``; its ID."""
        return await self._run(self._stream.add, fields, id, **options)

    async def add_many(
        self, rows: Iterable[Row | tuple[IDLike, Row]], **options: Any
    ) -> IDRuns:  # fmt: skip
        """Add rows, as ``Stream.add_many``; the iterable runs in a thread."""
        return await self._run(self._stream.add_many, rows, **options)

    async def get(self, id: IDLike) -> Entry[Any] | None:
        """The entry with this ID, or None."""
        return await self._run(self._stream.get, id)

    def range(self, start: IDLike = "-", end: IDLike = "+", **options: Any) -> AsyncIterator[Any]:
        """Entries of an interval, lazily, as ``Stream.range``."""
        return self._pages(self._stream.range(start, end, **options))

    async def _pages(self, entries: Iterator[Any]) -> AsyncIterator[Any]:
        def page() -> list[Any]:
            return list(itertools.islice(entries, PAGE_ENTRIES))

        while found := await self._run(page):
            for each in found:
                yield each

    async def read(
        self, after: IDLike = "$", *, count: int | None = None, max_count: int | None = None,
        max_bytes: int | None = None, timeout: Timeout = 0,
    ) -> list[Entry[Any]]:  # fmt: skip
        """Entries above an ID, as ``Stream.read``; an empty list if none came in time."""
        raw = self._stream._name
        found = await self._store.read(
            {raw: after}, count=count, max_count=max_count, max_bytes=max_bytes, timeout=timeout
        )
        return next(iter(found.values()), [])

    def follow(
        self, after: IDLike = "$", *, timeout: Timeout = None, count: int | None = None
    ) -> AsyncIterator[Entry[Any]]:
        """Entries above an ID and all that come, as ``Stream.follow``.

        What "$" stands for is settled when the iteration begins.
        """
        arguments.check_count(count, "count")
        reading.deadline_of(timeout)
        return self._follow(after, timeout, count or reading.FOLLOW_COUNT)

    async def _follow(
        self, after: IDLike, timeout: Timeout, count: int
    ) -> AsyncIterator[Entry[Any]]:
        start = await self._run(reading._start, self._stream, after)
        newest = after in ("+", b"+")
        found = await self.read(after, count=count) if newest else []
        found = found or await self.read(start, count=count, timeout=timeout)
        while found:
            for each in found:
                yield each
            start = max(start, found[-1].id)
            found = await self.read(start, count=count, timeout=timeout)

    async def schedule(
        self, fields: Row, *, at: datetime | int | None = None,
        after: timedelta | float | None = None, **options: Any,
    ) -> ScheduleKey | None:  # fmt: skip
        """Keep an entry until its time, as ``Stream.schedule``; its key."""
        return await self._run(self._stream.schedule, fields, at=at, after=after, **options)

    async def cancel(self, key: ScheduleKey | str, **options: Any) -> bool:
        """Schedule an entry no longer, as ``Stream.cancel``."""
        return await self._run(self._stream.cancel, key, **options)

    def scheduled(self) -> AsyncIterator[ScheduledEntry[Any]]:
        """What is scheduled and was not added yet, lazily, as ``Stream.scheduled``."""
        return self._pages(self._stream.scheduled())

    async def expire(self, **options: Any) -> bool:
        """Let the stream expire, as ``Stream.expire``."""
        return await self._run(self._stream.expire, **options)

    async def persist(self, **options: Any) -> bool:
        """Let the stream expire no longer, as ``Stream.persist``."""
        return await self._run(self._stream.persist, **options)

    async def expires_at(self) -> datetime | None:
        """When the stream expires, as ``Stream.expires_at``."""
        return await self._run(lambda: self._stream.expires_at)

    async def ttl(self) -> timedelta | None:
        """How long it is until the stream expires, as ``Stream.ttl``."""
        return await self._run(lambda: self._stream.ttl)

    async def delete(self, id: IDLike, *more_ids: IDLike, **options: Any) -> int:
        """Delete entries by ID; how many there were."""
        return await self._run(self._stream.delete, id, *more_ids, **options)

    async def trim(self, **options: Any) -> int:
        """Trim from the old end, as ``Stream.trim``; how many entries went."""
        return await self._run(self._stream.trim, **options)

    async def configure(self, **settings: Any) -> StreamSettings:
        """Set what is kept with the stream, as ``Stream.configure``; all its settings after."""
        return await self._run(self._stream.configure, **settings)

    async def info(self) -> StreamInfo[Any]:
        """All fields of XINFO STREAM."""
        return await self._run(self._stream.info)

    async def info_full(self, count: int = 10) -> FullStreamInfo[Any]:
        """All of XINFO STREAM FULL, as ``Stream.info_full``."""
        return await self._run(self._stream.info_full, count)

    async def delete_each(self, *ids: IDLike, **options: Any) -> list[DeleteOutcome]:
        """Delete entries by ID, as ``Stream.delete_each``; an outcome for each."""
        return await self._run(self._stream.delete_each, *ids, **options)

    async def group(self, name: Name, start: IDLike | None = None, **options: Any) -> AsyncGroup:
        """A handle of a consumer group; with ``start`` it is made if it is missing."""
        found = await self._run(self._stream.group, name, start, **options)
        return AsyncGroup(self._store, found)
