"""The handle of a stream: its name, its entries, and what it tells.

Invariants: nothing here changes a stream or takes a lock; what is told together is of one moment,
but iterators are lazy and take a snapshot a batch. It knows no logic of the disk: it turns
arguments into reads of the engine, and bytes into entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from logstore.api import arguments
from logstore.api import read as reading
from logstore.api.entry import Entry, make_entry
from logstore.engine.runtime import snapshot
from logstore.engine.streams import read
from logstore.errors import EntryTypeError, OptionError, UsageError
from logstore.ids import ZERO_ID, IDLike, StreamID, parse_id
from logstore.index.keys import StreamRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from logstore.api.dump import Peer
    from logstore.api.info import FullStreamInfo, GroupInfo, StreamInfo
    from logstore.api.scheduling import ScheduledEntry
    from logstore.api.store import Store
    from logstore.settings import StreamSettings

T = TypeVar("T", bytes, str)


class StreamHandle(Generic[T]):
    """One stream of a store, to look at; :class:`logstore.Stream` also changes it."""

    __slots__ = ("_name", "_store")

    def __init__(self, store: Store[T], name: bytes) -> None:
        self._store: Store[T] = store
        self._name = name

    @property
    def name(self) -> T:
        """The name, as bytes or in the store's encoding."""
        return cast(T, self._store._text(self._name))

    def __repr__(self) -> str:
        return f"<Stream {self.name!r} of {self._store!r}>"

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        return (type(self), (self._store, self._name))

    # -- reading ------------------------------------------------------------------------------
    def get(self, id: IDLike) -> Entry[T] | None:
        """The entry with this ID, or None."""
        at = parse_id(id)
        found = read.read_batch(self._store._engine(), self._name, at, at, 1)
        return self._entry(found.entries[0]) if found.entries else None

    def __getitem__(self, id: IDLike) -> Entry[T]:
        if isinstance(id, slice) or (isinstance(id, int) and id < 0):
            raise EntryTypeError(
                "a stream is indexed by ID, not by place: stream.last and stream.first are its "
                "ends, stream.range(start, end, count=, reverse=) is a part of it"
            )
        found = self.get(id)
        if found is None:
            raise KeyError(str(parse_id(id)))
        return found

    def __contains__(self, id: IDLike) -> bool:
        return self.get(id) is not None

    def __len__(self) -> int:
        record = self._record()
        return record.length if record is not None else 0

    def range(
        self, start: IDLike = "-", end: IDLike = "+", *, count: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Entry[T]]:  # fmt: skip
        """Entries of an interval, lazily; both ends included, ``(`` before an ID excludes it.

        ``start`` is always the smaller end, also with ``reverse``; an OptionError says so if it is
        not. ``count`` 0 gives none.
        """
        low, high = arguments.interval(start, end)
        arguments.check_flag(reverse, "reverse")
        arguments.check_count(count, "count")
        if count is not None and count < 0:
            raise OptionError(f"count must not be negative: {count}")
        return self._range(low, high, -1 if count is None else count, reverse)

    def _range(self, low: StreamID, high: StreamID, left: int, reverse: bool) -> Iterator[Entry[T]]:
        engine = self._store._engine
        interval: read.Interval | None = None
        while True:
            found = read.read_batch(
                engine(), self._name, low, high, left, reverse=reverse, walked=interval
            )
            interval = interval or (low, high)
            for row in found.entries:
                yield self._entry(row)
            if left >= 0:
                left -= len(found.entries)
            if found.rest is None or left == 0:
                return
            low, high = found.rest

    def __iter__(self) -> Iterator[Entry[T]]:
        return self.range()

    def __reversed__(self) -> Iterator[Entry[T]]:
        return self.range(reverse=True)

    def read(
        self, after: IDLike = "$", *, count: int | None = None, max_count: int | None = None,
        max_bytes: int | None = None, timeout: float | timedelta | None = 0, block: None = None,
    ) -> list[Entry[T]]:  # fmt: skip
        """Entries above an ID, as XREAD; a list, empty if none came within ``timeout``.

        ``timeout``: seconds or timedelta; 0 does not wait, None waits for ever. ``"$"`` stands for
        the last ID at the call, ``"+"`` for the last entry itself. ``count`` 0 or None is no limit.
        ``max_bytes`` stops before the entry that passes it, but never before the first; an entry
        has ``size_bytes``: 16, and those of its field names and values. ``max_count``, not below
        ``count``, is for reads of many streams (``Store.read``); here it is one more limit.
        """
        reading.refuse_block(block)
        limits = reading.limits(count, max_count, max_bytes)
        return reading.read_stream(self, after, limits, timeout)

    def follow(
        self, after: IDLike = "$", *, timeout: float | timedelta | None = None,
        count: int | None = None,
    ) -> Iterator[Entry[T]]:  # fmt: skip
        """Entries above an ID and all that come; ends when none came for ``timeout`` (None: never).

        ``after`` as in ``read``, settled at the call; ``count`` is how many are read at once.
        """
        return reading.follow(self, after, count, timeout)

    @property
    def first(self) -> Entry[T] | None:
        """The entry with the smallest ID, or None."""
        return next(self.range(count=1), None)

    @property
    def last(self) -> Entry[T] | None:
        """The entry with the largest ID, or None."""
        return next(self.range(count=1, reverse=True), None)

    @property
    def last_id(self) -> StreamID:
        """The last ID ever given; it survives deletes. 0-0 before the first add."""
        record = self._record()
        return record.last if record is not None else ZERO_ID

    @property
    def expires_at(self) -> datetime | None:
        """When the stream expires, an aware UTC datetime; None: never, or there is no stream."""
        from logstore.api import scheduling

        record = self._record()
        return None if record is None else scheduling.expires_at(record.expires_ms)

    @property
    def ttl(self) -> timedelta | None:
        """How long it is until the stream expires; None: it never does, or there is no stream."""
        from logstore.api import scheduling

        found = snapshot.read(
            self._store._engine(), lambda view: (view.record(self._name), view.now_ms)
        )
        return None if found[0] is None else scheduling.left(found[0].expires_ms, found[1])

    @property
    def settings(self) -> StreamSettings:
        """What is set with ``configure``; of a stream that is not there, what all have at first."""
        from logstore.api import configuring

        return configuring.stream_settings(self._store, self._name)

    def info(self) -> StreamInfo[T]:
        """All fields of XINFO STREAM; StreamNotFoundError if there is no stream."""
        from logstore.api import describe

        return snapshot.read(
            self._store._engine(),
            lambda view: describe.stream_info(view, self._name, self._store.encoding),
        )

    def info_full(self, count: int = 10) -> FullStreamInfo[T]:
        """All of XINFO STREAM FULL: entries, groups, consumers, and what is pending with them.

        At most ``count`` of each list, those with the smallest IDs; 0: all, in memory. What is long
        is looked at in steps, each of a moment of its own. StreamNotFoundError; OptionError.
        """
        from logstore.api import describe

        return describe.full_info(self._store, self._name, arguments.read_count(count))

    def scan(
        self, start: IDLike = "-", end: IDLike = "+", *,
        columns: Sequence[str] | Mapping[str, pa.DataType | None] | None = None,
        batch_rows: int = 65536,
    ) -> pa.RecordBatchReader:  # fmt: skip
        """Entries of an interval as Arrow record batches: stream, id, ms, seq, ts, fields, id_key,
        pairs; or the ``columns`` that are named, of which others than these are fields.

        A mapping gives their types, too (None: text): a value that is none of its type is null.
        OptionError for a column that cannot be.
        """
        from logstore.scan import arrow

        low, high = arguments.interval(start, end)
        engine = self._store._engine()
        try:
            return arrow.scan_stream(engine, self._name, low, high, columns, batch_rows)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"{error.name} is not installed: pip install 'logstore-streams[arrow]'"
            ) from error

    def scheduled(self) -> Iterator[ScheduledEntry[T]]:
        """What is scheduled for the stream and was not added yet, soonest first, lazily."""
        from logstore.api import scheduling

        return scheduling.entries(self._store._engine, self._name, self._store.encoding)

    def dump(self, *, peer: Peer | None = None) -> bytes:
        """The stream with its groups, as a payload that Redis (7.2 on) and Valkey RESTORE.

        The two refuse each other's nodes where a field or value has exactly 16378 or 2097146 bytes:
        name the one that is to take it. StreamNotFoundError; TooLargeError above 512 MiB.
        """
        from logstore.api import dump

        return dump.payload(self._store, self._name, peer)

    def groups(self) -> list[GroupInfo[T]]:
        """All fields of XINFO GROUPS, by name; StreamNotFoundError if there is no stream."""
        from logstore.api import describe

        return describe.group_infos(self._store, self._name)

    # -- inside -------------------------------------------------------------------------------
    def _record(self) -> StreamRecord | None:
        return snapshot.read(self._store._engine(), lambda view: view.record(self._name))

    def _entry(self, row: tuple[int, int, int, list[bytes]]) -> Entry[T]:
        return make_entry(row[1], row[2], row[3], self._store.encoding)
