"""A stream of an AsyncStore: the same names as :class:`logstore.Stream`, awaited.

Invariants: calls run in the threads of the store; who waits for entries holds none. Arguments are
those of the plain face, which a test compares: it says what each is for.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from logstore.aio.group import AsyncGroup
from logstore.aio.pages import Feed
from logstore.aio.timed import TimedStream
from logstore.api import arguments, read
from logstore.api.configuring import KEEP, Amount, Keep, Length
from logstore.api.dump import Peer
from logstore.api.entry import DeleteOutcome, Entry, IDRuns
from logstore.api.info import FullStreamInfo, GroupInfo, StreamInfo
from logstore.api.opening import opened_of
from logstore.api.times import When
from logstore.codec import Row
from logstore.ids import IDLike, StreamID
from logstore.options import References, Sync
from logstore.settings import StreamSettings

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from logstore.api.matching import Matching, Where

R = TypeVar("R")
T = TypeVar("T", bytes, str)


class AsyncStream(TimedStream[T]):
    """One stream of an AsyncStore; the arguments are those of :class:`logstore.Stream`."""

    def __repr__(self) -> str:
        return f"<Async{repr(self._stream)[1:]}"

    @property
    def name(self) -> T:
        """The name, as bytes or in the store's encoding."""
        return self._stream.name

    # -- adding -------------------------------------------------------------------------------
    @overload
    async def add(
        self,
        fields: Row,
        id: IDLike = "*",
        *,
        maxlen: int | None = None,
        minid: IDLike | None = None,
        approximate: bool = True,
        limit: int | None = None,
        references: References = "keep",
        create: Literal[True] = True,
        producer: str | bytes | None = None,
        idempotent_id: str | bytes | None = None,
        expected_last_id: IDLike | None = None,
        ttl: timedelta | float | None = None,
        sync: Sync | None = None,
    ) -> StreamID: ...
    @overload
    async def add(
        self,
        fields: Row,
        id: IDLike = "*",
        *,
        maxlen: int | None = None,
        minid: IDLike | None = None,
        approximate: bool = True,
        limit: int | None = None,
        references: References = "keep",
        create: bool,
        producer: str | bytes | None = None,
        idempotent_id: str | bytes | None = None,
        expected_last_id: IDLike | None = None,
        ttl: timedelta | float | None = None,
        sync: Sync | None = None,
    ) -> StreamID | None: ...
    async def add(
        self,
        fields: Row,
        id: IDLike = "*",
        *,
        maxlen: int | None = None,
        minid: IDLike | None = None,
        approximate: bool = True,
        limit: int | None = None,
        references: References = "keep",
        create: bool = True,
        producer: str | bytes | None = None,
        idempotent_id: str | bytes | None = None,
        expected_last_id: IDLike | None = None,
        ttl: timedelta | float | None = None,
        sync: Sync | None = None,
    ) -> StreamID | None:
        """Add one entry, as ``Stream.add``; its ID."""
        return await self._run(
            lambda: self._stream.add(
                fields,
                id,
                maxlen=maxlen,
                minid=minid,
                approximate=approximate,
                limit=limit,
                references=references,
                create=create,
                producer=producer,
                idempotent_id=idempotent_id,
                expected_last_id=expected_last_id,
                ttl=ttl,
                sync=sync,
            )
        )

    async def add_many(
        self,
        rows: Iterable[Row | tuple[IDLike, Row]] | AsyncIterable[Row | tuple[IDLike, Row]],
        *,
        batch: int = 1000,
        maxlen: int | None = None,
        minid: IDLike | None = None,
        approximate: bool = True,
        limit: int | None = None,
        references: References = "keep",
        create: bool = True,
        producer: str | bytes | None = None,
        expected_last_id: IDLike | None = None,
        ttl: timedelta | float | None = None,
        sync: Sync | None = None,
    ) -> IDRuns:
        """Add rows, as ``Stream.add_many``: of an iterable, which runs in a thread, or of an async
        one, which runs in the event loop and holds no thread while it waits."""
        options: dict[str, Any] = {
            "batch": batch,
            "maxlen": maxlen,
            "minid": minid,
            "approximate": approximate,
            "limit": limit,
            "references": references,
            "create": create,
            "producer": producer,
            "expected_last_id": expected_last_id,
            "ttl": ttl,
            "sync": sync,
        }
        if not isinstance(rows, AsyncIterable):
            return await self._run(self._stream.add_many, rows, **options)
        given, feed = IDRuns(), Feed()
        steps = self._stream._adding(given, feed, **options)
        async for row in rows:
            feed.rows.append(row)
            if len(feed.rows) >= batch and not await self._run(next, steps, False):
                return given
        if feed.rows:
            await self._run(next, steps, False)
        return given

    async def add_arrow(
        self,
        data: Any,
        *,
        id_column: str = "",
        batch: int = 65536,
        create: bool = True,
        sync: Sync | None = None,
    ) -> IDRuns:
        """Add rows of Arrow, as ``Stream.add_arrow``."""
        add = partial(self._stream.add_arrow, data, id_column=id_column, batch=batch)
        return await self._run(partial(add, create=create, sync=sync))

    # -- reading ------------------------------------------------------------------------------
    async def get(self, id: IDLike) -> Entry[T] | None:
        """The entry with this ID, or None."""
        return await self._run(self._stream.get, id)

    async def contains(self, id: IDLike) -> bool:
        """Look for an entry.

        Args:
            id: the entry's ID.

        Returns:
            Whether there is an entry with this ID.
        """
        return await self._run(self._stream.__contains__, id)

    async def len(self) -> int:
        """How many entries there are."""
        return await self._run(self._stream.__len__)

    def range(
        self,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        since: When | None = None,
        until: When | None = None,
        where: Where | None = None,
        count: int | None = None,
        reverse: bool = False,
    ) -> AsyncIterator[Entry[T]]:
        """Entries of an interval, lazily, as ``Stream.range``."""
        found = self._stream.range(
            start, end, since=since, until=until, where=where, count=count, reverse=reverse
        )
        return self._pages(found)

    def __aiter__(self) -> AsyncIterator[Entry[T]]:
        return self.range()

    async def read(
        self,
        after: IDLike = "$",
        *,
        count: int | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        timeout: float | timedelta | None = 0,
        block: None = None,
    ) -> list[Entry[T]]:
        """Entries above an ID, as ``Stream.read``; an empty list if none came in time."""
        arguments.refuse_block(block)
        raw = self._stream._name
        found = await self._store.read(
            {raw: after}, count=count, max_count=max_count, max_bytes=max_bytes, timeout=timeout
        )
        return self._stream._viewed(next(iter(found.values()), []))

    def follow(
        self,
        after: IDLike = "$",
        *,
        since: When | None = None,
        where: Where | None = None,
        timeout: float | timedelta | None = None,
        count: int | None = None,
    ) -> AsyncIterator[Entry[T]]:
        """Entries above an ID and all that come, as ``Stream.follow``.

        What "$" stands for is settled when the iteration begins, a moment at the call.
        """
        arguments.check_count(count, "count")
        arguments.deadline_of(timeout)
        after = read.beginning(opened_of(self._stream), after, since)
        found = self._stream._matching(where)
        return self._follow(after, timeout, count or read.FOLLOW_COUNT, found)

    async def _follow(
        self, after: IDLike, timeout: float | timedelta | None, count: int, where: Matching | None
    ) -> AsyncIterator[Entry[T]]:
        begin = {self._stream._name: after}
        async for _, entry in self._store._follow(begin, None, timeout, count, where):
            yield self._stream._viewed([entry])[0]

    async def latest(self, key: Any) -> Entry[T] | None:
        """The newest entry of a key, as ``Stream.latest``."""
        return await self._run(self._stream.latest, key)

    async def first(self) -> Entry[T] | None:
        """The entry with the smallest ID, or None."""
        return await self._run(lambda: self._stream.first)

    async def last(self) -> Entry[T] | None:
        """The entry with the largest ID, or None."""
        return await self._run(lambda: self._stream.last)

    async def last_id(self) -> StreamID:
        """The last ID ever given; it survives deletes. 0-0 before the first add."""
        return await self._run(lambda: self._stream.last_id)

    async def count(self, start: IDLike = "-", end: IDLike = "+") -> int:
        """How many entries an interval has, as ``Stream.count``."""
        return await self._run(self._stream.count, start, end)

    async def scan(
        self,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        columns: Sequence[str] | Mapping[str, pa.DataType | None] | None = None,
        schema: pa.Schema | Mapping[str, pa.DataType | None] | str | None = None,
        where: Sequence[tuple[str, str, Any]] | pc.Expression | None = None,
        batch_rows: int = 65536,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Entries of an interval as Arrow record batches, as ``Stream.scan``: ``async for``."""
        scanned = partial(
            self._stream.scan,
            start,
            end,
            columns=columns,
            schema=schema,
            where=where,
            batch_rows=batch_rows,
        )
        async for batch in self._pages(iter(await self._run(scanned)), 1):
            yield batch

    # -- deleting -----------------------------------------------------------------------------
    async def delete(
        self,
        id: IDLike,
        *more_ids: IDLike,
        references: References = "keep",
        purge: bool = False,
        sync: Sync | None = None,
    ) -> int:
        """Delete entries by ID, as ``Stream.delete``; how many there were."""
        return await self._run(
            self._stream.delete, id, *more_ids, references=references, purge=purge, sync=sync
        )

    async def delete_each(
        self, *ids: IDLike, references: References = "keep", sync: Sync | None = None
    ) -> list[DeleteOutcome]:
        """Delete entries by ID, as ``Stream.delete_each``; an outcome for each."""
        return await self._run(self._stream.delete_each, *ids, references=references, sync=sync)

    async def delete_range(
        self, start: IDLike, end: IDLike, *, purge: bool = False, sync: Sync | None = None
    ) -> int:
        """Delete all entries of an interval, as ``Stream.delete_range``; how many."""
        return await self._run(self._stream.delete_range, start, end, purge=purge, sync=sync)

    async def trim(
        self,
        *,
        maxlen: int | None = None,
        minid: IDLike | None = None,
        max_age: timedelta | float | None = None,
        approximate: bool = False,
        limit: int | None = None,
        references: References = "keep",
        sync: Sync | None = None,
    ) -> int:
        """Trim from the old end, as ``Stream.trim``; how many entries went."""
        return await self._run(
            self._stream.trim,
            maxlen=maxlen,
            minid=minid,
            max_age=max_age,
            approximate=approximate,
            limit=limit,
            references=references,
            sync=sync,
        )

    async def set_id(
        self,
        last_id: IDLike,
        *,
        entries_added: int | None = None,
        max_deleted_id: IDLike | None = None,
        sync: Sync | None = None,
    ) -> None:
        """Set the last ID, as ``Stream.set_id``."""
        await self._run(
            self._stream.set_id,
            last_id,
            entries_added=entries_added,
            max_deleted_id=max_deleted_id,
            sync=sync,
        )

    # -- settings and what it tells -----------------------------------------------------------
    async def configure(
        self,
        *,
        max_age: Length = KEEP,
        max_entries: Amount = KEEP,
        max_bytes: Amount = KEEP,
        idempotent_duration: timedelta | float | Literal[Keep.KEEP] = KEEP,
        idempotent_max_ids: int | Literal[Keep.KEEP] = KEEP,
        compact_by: str | bytes | Literal[Keep.KEEP] | None = KEEP,
        keep_until_shipped: bool | Literal[Keep.KEEP] = KEEP,
        create: bool = True,
        sync: Sync | None = None,
    ) -> StreamSettings:
        """Set what is kept with the stream, as ``Stream.configure``; all its settings after."""
        return await self._run(
            self._stream.configure,
            max_age=max_age,
            max_entries=max_entries,
            max_bytes=max_bytes,
            idempotent_duration=idempotent_duration,
            idempotent_max_ids=idempotent_max_ids,
            compact_by=compact_by,
            keep_until_shipped=keep_until_shipped,
            create=create,
            sync=sync,
        )

    async def settings(self) -> StreamSettings:
        """What is set with ``configure``."""
        return await self._run(lambda: self._stream.settings)

    async def info(self) -> StreamInfo[T]:
        """All fields of XINFO STREAM."""
        return await self._run(self._stream.info)

    async def info_full(self, count: int = 10) -> FullStreamInfo[T]:
        """All of XINFO STREAM FULL, as ``Stream.info_full``."""
        return await self._run(self._stream.info_full, count)

    async def dump(self, *, peer: Peer | None = None) -> bytes:
        """The stream with its groups as a payload of DUMP, as ``Stream.dump``."""
        return await self._run(self._stream.dump, peer=peer)

    async def groups(self) -> list[GroupInfo[T]]:
        """All fields of XINFO GROUPS, by name."""
        return await self._run(self._stream.groups)

    async def group(
        self, name: str | bytes, start: IDLike | None = None, *, entries_read: int | None = None
    ) -> AsyncGroup[T]:
        """A handle of a consumer group; with ``start`` it is made if it is missing."""
        made = await self._run(self._stream.group, name, start, entries_read=entries_read)
        return AsyncGroup(self._store, made)
