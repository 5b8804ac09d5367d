"""A stream, as users hold it: its entries, read and told of.

Invariants: nothing here changes a stream or takes a lock; what is told together is of one moment,
but iterators are lazy and take a snapshot a batch. It knows no logic of the disk: it turns
arguments into reads of the engine, and bytes into entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from logstore.api import arguments
from logstore.api.entry import Entry, entry_maker
from logstore.api.opening import OpenStore
from logstore.engine.streams import read
from logstore.errors import EntryTypeError
from logstore.ids import ZERO_ID, IDLike, StreamID, parse_id

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from logstore.api.dump import Peer
    from logstore.api.info import FullStreamInfo, GroupInfo, StreamInfo
    from logstore.api.matching import Matching, Where
    from logstore.api.scan import Scan
    from logstore.api.times import When
    from logstore.api.values import Values

T = TypeVar("T", bytes, str)


class StreamReads(Generic[T]):
    """What :class:`logstore.Stream` reads and tells."""

    __slots__ = ("_name", "_opened")
    _values: Values | None = None  # how values are decoded, of a stream with a codec

    def __init__(self, opened: OpenStore[T], name: bytes) -> None:
        self._opened: OpenStore[T] = opened
        self._name = name

    @property
    def name(self) -> T:
        """The name, as bytes or in the store's encoding."""
        return self._opened.text(self._name)

    def __repr__(self) -> str:
        return f"<Stream {self.name!r} of {self._opened!r}>"

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        return (type(self), (self._opened, self._name))

    def _viewed(self, entries: list[Entry[T]]) -> list[Entry[T]]:
        """Entries of this stream that were read elsewhere, as this handle gives them."""
        return entries

    def _matching(self, where: Where | None) -> Matching | None:
        """What finds the entries that match."""
        if where is None:
            return None
        from logstore.api.matching import matching

        return matching(where, self._opened.encoding, self._values)

    # -- entries ------------------------------------------------------------------------------
    def get(self, id: IDLike) -> Entry[T] | None:
        """Look an entry up.

        Args:
            id: its ID.

        Returns:
            The entry, or None if there is none with this ID.

        Raises:
            InvalidIDError: ``id`` is no whole ID.
        """
        opened = self._opened
        found: Entry[T] | None = read.get(
            opened.engine(), self._name, parse_id(id), entry_maker(opened.encoding)
        )
        return found

    def __getitem__(self, id: IDLike) -> Entry[T]:
        if isinstance(id, slice | int):
            raise EntryTypeError(
                "a stream is indexed by ID, not by place: stream.last and stream.first are its "
                "ends, stream.range(start, end, count=, reverse=) is a part of it"
            )
        entry = self.get(id)
        if entry is None:
            raise KeyError(str(parse_id(id)))
        return entry

    def __contains__(self, id: IDLike) -> bool:
        return self.get(id) is not None

    def __len__(self) -> int:
        record = self._opened.record(self._name)
        return record.length if record is not None else 0

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
    ) -> Iterator[Entry[T]]:
        """Entries of an interval, lazily, as XRANGE and XREVRANGE.

        Args:
            start: the smaller end, also with ``reverse``; ``(`` before an ID excludes it.
            end: the larger end, included unless ``(`` stands before it.
            since: the smaller end as a moment: a timedelta (how long ago), an aware datetime, a
                date, or text: ``"-1h"``, ``"2026-01-31"``, ``"2026-01-31T12:00Z"``.
            until: the larger end, likewise; of a day all is included.
            where: only entries whose fields have these values, as ``{"level": "error"}``; they are
                equal if an add stores them as the same bytes.
            count: at most so many entries; None: no limit, 0: none.
            reverse: from the newest entry on.

        Returns:
            An iterator, which takes a snapshot a batch and is not shared between threads.

        Raises:
            InvalidIDError: an end is no ID.
            OptionError: ``start`` is above ``end``, an end is given twice or is no moment,
                ``where`` is no mapping with a field, or ``count`` is negative.
            EntryTypeError: a field or value of ``where`` is of a type that is not stored.
            InvalidEntryError: one is text that the store's encoding cannot take.
        """
        from logstore.api import read as reading

        low, high = arguments.moments(start, end, since, until, self._opened.engine().clock)
        arguments.check_flag(reverse, "reverse")
        left, found = arguments.range_count(count), self._matching(where)
        return reading.entries(
            self._opened,
            self._name,
            low,
            high,
            left,
            reverse=reverse,
            where=found,
            values=self._values,
        )

    def __iter__(self) -> Iterator[Entry[T]]:
        return self.range()

    def __reversed__(self) -> Iterator[Entry[T]]:
        return self.range(reverse=True)

    def read(
        self,
        after: IDLike = "$",
        *,
        count: int | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        timeout: float | timedelta | None = 0,
        block: None = None,
    ) -> list[Entry[T]]:
        """Entries above an ID, as XREAD.

        Args:
            after: an ID; ``"$"`` is the last ID at the call, ``"+"`` asks for the last entry.
            count: at most so many entries; 0 or None: no limit.
            max_count: one more limit, not below ``count``; for reads of many streams.
            max_bytes: stops before the entry that passes it, never before the first; an entry
                has ``size_bytes``: 16, and those of its field names and values.
            timeout: seconds or timedelta to wait; 0 does not wait, None waits for ever.
            block: not taken; give ``timeout``.

        Returns:
            A list, empty if none came in time.

        Raises:
            InvalidIDError: ``after`` is no ID.
            OptionError: a limit or the timeout is not valid.
            UsageError: ``block`` was given.
        """
        from logstore.api import read as reading

        arguments.refuse_block(block)
        limits = arguments.limits(count, max_count, max_bytes)
        return reading.read_stream(self._opened, self._name, after, limits, timeout)

    def follow(
        self,
        after: IDLike = "$",
        *,
        since: When | None = None,
        where: Where | None = None,
        timeout: float | timedelta | None = None,
        count: int | None = None,
    ) -> Iterator[Entry[T]]:
        """Entries above an ID, and all that come.

        Args:
            after: as in ``read``; what it stands for is settled at the call.
            since: a moment to begin with instead, as in ``range``.
            where: only entries whose fields have these values, as in ``range``; ``"+"`` begins
                with the last one of them.
            timeout: seconds or timedelta without an entry that end it; None: never.
            count: how many are read at once.

        Returns:
            An iterator, which waits for entries.

        Raises:
            InvalidIDError: ``after`` is no ID.
            OptionError: ``count``, ``timeout``, ``since`` or ``where`` is not valid, or two
                beginnings are given.
            EntryTypeError: a field or value of ``where`` is of a type that is not stored.
            InvalidEntryError: one is text that the store's encoding cannot take.
        """
        from logstore.api import read as reading

        after, found = reading.beginning(self._opened, after, since), self._matching(where)
        return reading.follow(self._opened, self._name, after, count, timeout, found)

    def latest(self, key: Any) -> Entry[T] | None:
        """The newest entry of a key, in a stream that is kept compact by a field.

        Args:
            key: the value of the field that ``configure(compact_by=)`` named.

        Returns:
            The entry, or None if there is none, or it was deleted.

        Raises:
            OptionError: the stream is not kept compact.
            EntryTypeError: the key is of a type that is not stored.
            InvalidEntryError: it is text that the store's encoding cannot take.
        """
        from logstore.api import read as reading

        return reading.latest(self._opened, self._name, key, self._values)

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
        record = self._opened.record(self._name)
        return ZERO_ID if record is None else record.last

    def count(self, start: IDLike = "-", end: IDLike = "+") -> int:
        """Count the entries of an interval.

        All but the nodes at its ends are counted without being read; a whole stream is ``len``.

        Args:
            start: as in ``range``.
            end: as in ``range``.

        Returns:
            How many entries there are, at one moment; 0 without a stream.

        Raises:
            InvalidIDError: an end is no ID.
            OptionError: ``start`` is above ``end``.
        """
        from logstore.scan import counting

        low, high = arguments.interval(start, end)
        return counting.count_stream(self._opened.engine(), self._name, low, high)

    # -- what it tells ------------------------------------------------------------------------
    def info(self) -> StreamInfo[T]:
        """Tell what XINFO STREAM tells, and more.

        Returns:
            The description, of one moment.

        Raises:
            StreamNotFoundError: there is no stream.
        """
        from logstore.api import describe

        name, encoding = self._name, self._opened.encoding
        return self._opened.view(lambda view: describe.stream_info(view, name, encoding))

    def info_full(self, count: int = 10) -> FullStreamInfo[T]:
        """Tell what XINFO STREAM FULL tells: entries, groups, consumers, what is pending with them.

        Args:
            count: at most so many of each list, those with the smallest IDs; 0: all, in memory.

        Returns:
            The description; what is long is looked at in steps, each of a moment of its own.

        Raises:
            StreamNotFoundError: there is no stream.
            OptionError: ``count`` is negative or no integer.
        """
        from logstore.api import describe

        return describe.full_info(self._opened, self._name, arguments.read_count(count))

    def groups(self) -> list[GroupInfo[T]]:
        """Tell what XINFO GROUPS tells.

        Returns:
            All groups, by name.

        Raises:
            StreamNotFoundError: there is no stream.
        """
        from logstore.api import describe

        return describe.group_infos(self._opened, self._name)

    # -- in bulk ------------------------------------------------------------------------------
    def scan(
        self,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        columns: Sequence[str] | Mapping[str, pa.DataType | None] | None = None,
        schema: pa.Schema | Mapping[str, pa.DataType | None] | str | None = None,
        where: Sequence[tuple[str, str, Any]] | pc.Expression | None = None,
        batch_rows: int = 65536,
    ) -> Scan:
        """Entries of an interval as Arrow, to be read as often as wanted.

        Args:
            start: as in ``range``.
            end: as in ``range``.
            columns: names of stream, id, ms, seq, ts, fields, id_key, pairs (None: those of
                ``schema``, else these), or of fields; as a mapping with their types (None: text).
                A value that is not of its type is null.
            schema: the types of columns, also as the text ``rider string, speed double``; None:
                fields are text.
            where: comparisons that must all hold, as ``[("speed", ">", 30)]``, or an expression of
                pyarrow. Those of ``id``, ``ms``, ``ts`` and ``id_key`` also say where to read.
            batch_rows: rows of a batch, at most.

        Returns:
            A ``Scan``: iterate over its record batches, or see its ``to_arrow``, ``to_pandas`` and
            ``to_polars``.

        Raises:
            InvalidIDError: an end is no ID.
            OptionError: the interval is reversed, or a column or condition cannot be.
            UsageError: pyarrow is not installed.
        """
        from logstore.api.scan import make_scan

        return make_scan(
            self._opened,
            lambda: [self._name],
            start,
            end,
            columns=columns,
            schema=schema,
            where=where,
            batch_rows=batch_rows,
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """What tools of Arrow take: a new scan of the whole stream, in its standard columns."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def dump(self, *, peer: Peer | None = None) -> bytes:
        """The stream with its groups, as DUMP gives it.

        Args:
            peer: "redis" or "valkey", if one of them is to take it: they refuse each other's nodes
                where a field or value has exactly 16378 or 2097146 bytes. "redis-8.6", a Redis from
                there on, also takes idempotent IDs, "redis-8.8" also entries that were given back.

        Returns:
            A payload that Redis (7.2 on) and Valkey RESTORE; or that ``peer`` does.

        Raises:
            StreamNotFoundError: there is no stream.
            OptionError: ``peer`` is neither.
            TooLargeError: it has above 512 MiB.
        """
        from logstore.api import dump

        return dump.payload(self._opened, self._name, peer)
