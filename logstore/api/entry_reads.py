"""Reads of entries: a range, or entries above an ID, at once, after a wait, or as they come.

Invariants: where a read begins is settled once, when it is called (``"$"`` is the last ID then). A
wait holds nothing; a time-out is never early. Nothing here takes a lock; an iterator is lazy and
takes a snapshot a batch. It knows no logic of the disk.

``where=`` names fields and the values that they must have, all of them. Bytes are compared, as an
add would store them: 5 finds what was added as 5 and as "5", and no 5.0. Of a field that repeats in
an entry the last value counts, as in ``entry.fields``; an entry without the field does not match.
Or it is the text of a condition (`where`), which compares values by the stream's schema. Either is
checked whole before anything is read.

Several streams are named, or meant by patterns. A name that is no pattern must be there; a stream
comes once, in the order in which it was named; a pattern is looked up at each reading.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from logstore.api import arguments
from logstore.api.arguments import Limits, deadline_of
from logstore.api.entry import Entry, TextRows, entry_maker, make_entry, stored_pairs
from logstore.api.opening import OpenStore
from logstore.codec import codec
from logstore.engine.streams import read as ranges
from logstore.engine.streams.budget import ByteBudget
from logstore.engine.waiting.stream_wait import over, wait_streams
from logstore.errors import (
    EntryTypeError,
    InvalidEntryError,
    OptionError,
    StreamNotFoundError,
    UsageError,
    shown,
)
from logstore.ids import MAX_ID, ZERO_ID, IDLike, StreamID, parse_id, since_id
from logstore.options import Length
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.api.values import TypedValues, Values
    from logstore.engine.runtime.engine import Engine
    from logstore.ids import When
    from logstore.index.keys import StreamRecord
    from logstore.schema.stream_schema import Schema
    from logstore.where.condition_binding import Column
    from logstore.where.entry_conditions import EntryCondition
    from logstore.where.filter_conditions import FilterTest
    from logstore.where.node_conditions import NodeTest

T = TypeVar("T", bytes, str)

_SPECIAL = frozenset("*?[")


# -- streams by their names -------------------------------------------------------------------
def stream_names(opened: OpenStore[T], streams: object) -> Callable[[], list[bytes]]:
    """What finds the streams that are named, at each reading.

    Args:
        opened: the store.
        streams: None for all, a name, or several; one with ``*``, ``?`` or ``[`` is a pattern.

    Raises:
        StreamNotFoundError: a stream is not there; of a pattern there need not be any.
        OptionError: none is named.
    """
    given: list[Any] = (
        [streams] if isinstance(streams, str | bytes) else ["*"] if streams is None else []
    )
    if not given:
        if not isinstance(streams, Sequence | set | frozenset) or not streams:
            raise OptionError(
                f"streams is a name, a pattern such as 'race:*', or several: {shown(streams)}"
            )
        given = list(streams)
    raw = [arguments.stream_name(name, opened.encoding) for name in given]

    def found() -> list[bytes]:
        from fnmatch import fnmatchcase  # here: whoever opens a store needs no patterns

        there: list[bytes] | None = None
        names: dict[bytes, None] = {}
        for name in raw:
            text = name.decode("utf-8", "surrogateescape")
            if not _SPECIAL.intersection(text):
                if opened.record(name) is None:
                    raise StreamNotFoundError("there is no such stream", stream=name)
                names[name] = None
                continue
            if there is None:
                there = sorted(opened.view(lambda view: [each.name for each in view.listed()]))
            names |= {
                each: None
                for each in there
                if fnmatchcase(each.decode("utf-8", "surrogateescape"), text)
            }
        return list(names)

    found()
    return found


def behind_all(timeout: Length | None) -> str:
    """Where a read begins that names no ID. OptionError if it does not wait."""
    if deadline_of(timeout) == 0:
        raise OptionError(
            "a read that names no ID waits for what comes: give timeout=5, or the ID to read "
            "above, '0' for all"
        )
    return "$"


Where: TypeAlias = "Mapping[str, Any] | Mapping[bytes, Any] | str"


# -- entries by their values ------------------------------------------------------------------
class Matching:
    """Makes entries of nodes, of those alone that match. A twin of the codec's ``EntryMaker``."""

    __slots__ = ("_condition", "_encoding", "_values", "where")

    def __init__(
        self,
        where: list[bytes],
        encoding: str | None,
        values: Values | TypedValues | None = None,
        condition: EntryCondition | None = None,
    ) -> None:
        self.where = where  # name, value, name, value, ..
        self._encoding = encoding
        self._values = values  # how the entries are read
        self._condition = condition  # what must hold besides

    def of(self, name: bytes) -> Matching:  # noqa: ARG002
        """The same for every stream."""
        return self

    @property
    def interval(self) -> ranges.Interval:
        """The first and the last ID that can match; reversed if there is none."""
        return (ZERO_ID, MAX_ID) if self._condition is None else self._condition.interval

    def node_test(self, columns: Sequence[tuple[bytes, str]]) -> NodeTest | None:
        """What asks nodes with the ranges of these columns; see ``node_conditions``."""
        if self._condition is None:
            return None
        from logstore.where.node_conditions import node_test

        return node_test(self._condition.tree, columns)

    def filter_test(self, columns: Sequence[tuple[bytes, str]]) -> FilterTest | None:
        """What asks nodes with filters of these columns; see ``filter_conditions``."""
        from logstore.where.filter_conditions import all_of, bytes_test, filter_test

        found = bytes_test(self.where, columns)
        if self._condition is None:
            return found
        return all_of([found, filter_test(self._condition.tree, columns)])

    def as_text(self) -> Matching:
        """The same, with entries of text, in which bytes that are no UTF-8 are lone surrogates."""
        return Matching(self.where, "utf-8", None, self._condition)

    def holds(self, entry: Entry[Any]) -> bool:
        """Whether the condition holds for an entry of a store without an encoding; what fields must
        have besides is not asked."""
        flat = [part for pair in stored_pairs(entry) for part in pair]
        return self._condition is None or self._condition.matches(*entry.id, flat)

    def entries(self, *node: Any) -> list[Entry[Any]]:
        """The entries of a node that match; the arguments are those of ``codec.entries``."""
        read: Any = codec().entries
        condition = self._condition
        if condition is None:
            rows = read(*node, self.where)
        else:
            *begin, left, reverse = node
            every = read(*begin, -1, reverse, self.where)
            found = (row for row in every if condition.matches(*row[1:]))
            rows = islice(found, left if left >= 0 else None)
        return [make_entry(row, self._encoding, self._values) for row in rows]


def matching(
    where: Where | None,
    encoding: str | None,
    values: Values | TypedValues | None = None,
    *,
    what: str = "where",
) -> Matching | None:
    """What finds the entries that match; None if all are wanted. ``what`` is named in errors.

    Raises:
        OptionError: ``where`` is no mapping, or names no field.
        EntryTypeError: a name or value is of a type that is not stored.
        InvalidEntryError: one is text that the store's encoding cannot take.
    """
    if where is None:
        return None
    if not isinstance(where, Mapping) or not where:
        raise OptionError(
            "where is a condition, such as \"level = 'error'\", or the values that fields must "
            f"have, such as {{'level': 'error'}}, not {shown(where)}; scan(where=) takes "
            "comparisons"
        )
    try:
        row: Any = where if values is None else values.condition(where)
        return Matching(arguments.rows([row], encoding).flat(0), encoding, values)
    except (EntryTypeError, InvalidEntryError) as error:
        raise type(error)(f"{what}: {str(error).removeprefix('row 0, ')}") from error


def matching_text(
    where: str,
    name: bytes,
    encoding: str | None,
    values: Values | TypedValues | None,
    schema: Schema | None,
    kept: Callable[[], Callable[[bytes], Any] | None],
) -> Matching:
    """What finds the entries of a stream for which the text of a condition holds.

    ``values``: how the entries are read that it gives; ``schema``: what they are compared by, or
    what decodes the values of the codec that is kept with the stream, which ``kept`` gives.

    Raises:
        OptionError: it is no condition, or compares what cannot be compared.
        SchemaError: it does not fit the schema.
    """
    from logstore.scan.scan_columns import column_name
    from logstore.where.condition_binding import Binding, listed
    from logstore.where.condition_text import parse
    from logstore.where.condition_values import parsed_json
    from logstore.where.entry_conditions import EntryCondition

    codec = None if values is None else getattr(values, "codec", None)
    decode: Callable[[bytes], Any] | None = None
    if codec is not None:
        from logstore.api.values import decoded_or_none

        decode = partial(decoded_or_none, codec.decode)
    elif schema is None:
        decode = kept()
    columns = _EntryColumns(schema, has_codec=decode is not None)
    binding = Binding(columns.find, listed(columns.names), kept=schema is not None)
    node = binding.bound(where, parse(where))
    condition = EntryCondition(node, column_name(name), decode or parsed_json)
    return Matching(condition.sought, encoding, values, condition)


class MatchingOf(Protocol):
    """What finds the entries of streams that match, as they are when it is asked."""

    def of(self, name: bytes) -> Matching:
        """That of a stream, by the schema that it has now. SchemaError, OptionError."""
        ...


class MatchingAnew:
    """The same of one stream, from what finds its entries now."""

    def __init__(self, made: Callable[[], Matching]) -> None:
        self._made = made

    def of(self, name: bytes) -> Matching:  # noqa: ARG002
        """That of the stream."""
        return self._made()


class MatchingEach:
    """What finds the entries of several streams for which the text of a condition holds, each by
    its own schema, or codec. OptionError at once for what is no condition."""

    def __init__(
        self,
        where: str,
        encoding: str | None,
        schema_of: Callable[[bytes], Schema | None],
        decoder_of: Callable[[bytes], Callable[[bytes], Any] | None],
    ) -> None:
        from logstore.where.condition_text import parse

        parse(where)
        self._text = where
        self._encoding = encoding
        self._schema_of = schema_of
        self._decoder_of = decoder_of

    def of(self, name: bytes) -> Matching:
        """That of a stream, as its schema is now. SchemaError, OptionError if it does not fit."""
        schema, kept = self._schema_of(name), partial(self._decoder_of, name)
        return matching_text(self._text, name, self._encoding, None, schema, kept)


class _EntryColumns:
    """The columns of a stream's entries, by the names that a scan has for them."""

    def __init__(self, schema: Schema | None, *, has_codec: bool) -> None:
        from logstore.codec import ARROW_COLUMNS
        from logstore.scan.scan_columns import field_columns

        fields = [] if schema is None else [each.field for each in schema.columns]
        self._fields = {name: field for field, name in field_columns(fields, ARROW_COLUMNS).items()}
        self._schema = schema
        self._path: tuple[str, ...] | None = () if has_codec else None

    @property
    def names(self) -> list[str]:
        """Those of the schema."""
        return list(self._fields)

    def find(self, name: str) -> Column | None:
        """What a name stands for; None: nothing."""
        from logstore.where.condition_binding import STANDARD, Column

        if name in STANDARD:
            return Column(name, STANDARD[name], standard=name)
        schema = self._schema
        field = self._fields.get(name)
        if schema is None or (field is None and schema.is_open):
            return Column(name, field=name.encode(), path=self._path)
        column = None if field is None else schema.column(field)
        if column is None:
            return None
        return Column(name, column.type, field=column.field, typed=True)


FOLLOW_COUNT = 1000  # entries read at once while following
# Of an interval, so many entries at most, what was begun with.
_ReadBatch: TypeAlias = Callable[[StreamID, StreamID, int, ranges.Interval | None], ranges.Batch]


# -- what is there ----------------------------------------------------------------------------
def entries(
    opened: OpenStore[T],
    name: bytes,
    low: StreamID,
    high: StreamID,
    left: int,
    *,
    reverse: bool = False,
    where: Matching | None = None,
    values: Values | TypedValues | None = None,
) -> Iterator[Entry[T]]:
    """Entries of a closed interval, lazily; ``left`` of them at most unless it is negative.

    ``values``: how they are read, of a stream with a codec; what ``where`` finds knows it itself.
    """
    engine = opened.engine
    maker = entry_maker(opened.encoding) if values is None else values.maker
    if where is not None:
        low, high = max(low, where.interval[0]), min(high, where.interval[1])
        return chain.from_iterable(
            _batches(_sifting(engine, name, reverse, where), low, high, left)
        )

    read = _reading(engine, name, maker, reverse=reverse)
    return chain.from_iterable(_batches(read, low, high, left))


def text_rows(
    opened: OpenStore[Any],
    name: bytes,
    low: StreamID,
    high: StreamID,
    where: Matching | None = None,
) -> Iterator[TextRows]:
    """What the entries of a closed interval hold as text, in which bytes that are no UTF-8 are lone
    surrogates; lazily, as many at a time as are read at once."""
    if where is None:
        read = _reading(opened.engine, name, entry_maker("utf-8"))
    else:
        low, high = max(low, where.interval[0]), min(high, where.interval[1])
        read = _sifting(opened.engine, name, False, where.as_text())
    return map(TextRows, _batches(read, low, high, -1))


def _reading(
    engine: Callable[[], Engine], name: bytes, maker: ranges.Maker, *, reverse: bool = False
) -> _ReadBatch:
    """Reads what a maker makes of nodes."""

    def read(
        low: StreamID, high: StreamID, left: int, walked: ranges.Interval | None
    ) -> ranges.Batch:
        asked = ranges.RangeRead(low, high, left, reverse, walked, maker)
        return ranges.read_batch(engine(), name, asked)

    return read


def _sifting(
    engine: Callable[[], Engine], name: bytes, reverse: bool, where: Matching
) -> _ReadBatch:
    """Reads what matches, of more and more nodes at once: often the first ones have it all."""
    from logstore.scan import sift

    nodes = sift.NODES_MIN

    def read(
        low: StreamID, high: StreamID, left: int, walked: ranges.Interval | None
    ) -> ranges.Batch:
        nonlocal nodes
        now, nodes = nodes, min(2 * nodes, sift.NODES_MAX)
        asked = ranges.RangeRead(low, high, left, reverse, walked)
        return sift.read_batch(engine(), name, asked, where, now)

    return read


def _batches(
    read: _ReadBatch, low: StreamID, high: StreamID, left: int
) -> Iterator[list[Entry[Any]]]:
    """What ``read`` gives of an interval, batch by batch, each of a snapshot of its own."""
    walked: ranges.Interval | None = None
    while True:
        batch = read(low, high, left, walked)
        walked = walked or (low, high)
        yield batch.entries
        left -= len(batch.entries) if left >= 0 else 0
        if batch.rest is None or left == 0:
            return
        low, high = batch.rest


def merged(
    opened: OpenStore[T],
    names: Sequence[bytes],
    low: StreamID,
    high: StreamID,
    left: int,
    *,
    reverse: bool = False,
) -> Iterator[tuple[T, Entry[T]]]:
    """Entries of several streams in the order of IDs, ``left`` of them as in `entries`."""

    def of(name: bytes) -> Iterator[tuple[T, Entry[T]]]:
        text = opened.text(name)
        for entry in entries(opened, name, low, high, left, reverse=reverse):
            yield text, entry

    every = heapq.merge(*map(of, names), key=lambda each: each[1].id, reverse=reverse)
    return every if left < 0 else islice(every, left)


def latest(
    opened: OpenStore[T], name: bytes, key: object, values: Values | TypedValues | None
) -> Entry[T] | None:
    """The newest entry of a key: among what was not gone through yet, or that of the key's row."""
    from logstore.engine.streams import latest_entries as compact

    wanted = matching({"key": key}, opened.encoding, values, what="latest")
    if wanted is None:
        return None
    engine = opened.engine
    looked = compact.look(engine(), name, wanted.where[1])
    if looked is None:
        return None
    if looked.entry is not None:
        return make_entry(looked.entry, opened.encoding)
    row = None
    if looked.low <= looked.high:
        match = Matching(looked.where, opened.encoding)
        found = entries(opened, name, looked.low, looked.high, 1, reverse=True, where=match)
        entry = next(found, None)
        compact.learn(engine(), looked, name, None if entry is None else entry.id)
        if entry is not None:
            return entry
        row = opened.view(lambda view: compact.find(view, name, looked.where))
    return None if row is None else make_entry(row, opened.encoding)


class Start(NamedTuple):
    """Where a read of a stream begins."""

    name: bytes
    above: StreamID
    newest: list[Any]  # the last entry itself, where "+" asks for it


def start_of(
    opened: OpenStore[Any], name: bytes, after: IDLike, where: Matching | None = None
) -> Start:
    """Where ``after`` is now; ``"$"`` and ``"+"`` are what they are at this moment."""
    if after not in ("$", b"$", "+", b"+"):
        return Start(name, parse_id(after), [])
    record = opened.record(name)
    above = ZERO_ID if record is None else record.last
    if after in ("$", b"$"):
        return Start(name, above, [])
    newest = entries(opened, name, ZERO_ID, MAX_ID, 1, reverse=True, where=where)
    return Start(name, above, list(newest))


class ReadBudget:
    """What one read has left of its limits, over all its streams."""

    def __init__(self, allowed: Limits) -> None:
        self._allowed = allowed
        self._left = -1 if allowed.max_count is None else allowed.max_count
        self._room = None if allowed.max_bytes is None else ByteBudget(allowed.max_bytes)

    def read(self, opened: OpenStore[T], start: Start) -> list[Entry[T]]:
        """Entries of a stream, as many as it may give."""
        if start.newest:
            return self.take(start.newest)
        if start.above == MAX_ID or not self._left:
            return []
        most = self._allowed.count or -1
        if self._left >= 0:
            most = self._left if most < 0 else min(most, self._left)
        return self.take(entries(opened, start.name, start.above.next(), MAX_ID, most))

    def take(self, given: Iterable[Entry[T]]) -> list[Entry[T]]:
        """Those of the entries that are within the limits."""
        if not self._left:
            return []
        room = self._room
        if room is None:
            taken = list(given)
        else:
            taken = list(takewhile(lambda entry: room.fits(entry.size_bytes), given))
            if room.full:
                self._left = 0  # nothing behind it either: entries come in order
        if self._left > 0:
            self._left -= len(taken)
        return taken


# -- reading on -------------------------------------------------------------------------------
def read_stream(
    opened: OpenStore[T],
    name: bytes,
    after: IDLike,
    allowed: Limits,
    timeout: Length | None,
) -> list[Entry[T]]:
    """Entries of one stream above an ID."""
    deadline = deadline_of(timeout)
    start = start_of(opened, name, after)
    if start.newest:
        return start.newest

    def look() -> list[Entry[T]]:
        return ReadBudget(allowed).read(opened, start)

    entries_now = look()
    if entries_now or over(deadline):
        return entries_now
    return wait_streams(opened.engine(), [name], look, deadline, opened.engine) or []


def by_name(
    opened: OpenStore[Any], given: Iterable[tuple[str | bytes, IDLike]]
) -> list[tuple[bytes, IDLike]]:
    """IDs by the names of streams as they are stored; UsageError if two names are one stream,
    whose entries would come once."""
    found: dict[bytes, IDLike] = {}
    for name, each in given:
        stored = arguments.stream_name(name, opened.encoding)
        if stored in found:
            raise UsageError(f"stream {shown(stored)} is named twice: give one ID for it")
        found[stored] = each
    return list(found.items())


class ReadMany(Generic[T]):
    """A read of several streams, each above its ID, as it was settled when the read was made.

    Streams are read in the order in which they are named: what the first ones use up of the limits
    is not left for the others.
    """

    def __init__(
        self,
        opened: OpenStore[T],
        after: Mapping[str, IDLike] | Mapping[bytes, IDLike],
        allowed: Limits,
    ) -> None:
        if not isinstance(after, Mapping):
            raise UsageError(
                f"give the ID to read after by stream, {{name: id}}, not {type(after).__name__}"
            )
        self._opened: OpenStore[T] = opened
        self._allowed = allowed
        self._starts = [
            start_of(opened, name, given) for name, given in by_name(opened, after.items())
        ]

    def names(self, deadline: float | None) -> list[bytes]:
        """The streams to wait for; UsageError where that would be for nothing, and for ever."""
        if not self._starts and deadline is None:
            raise UsageError("no stream is named: there is nothing to wait for")
        return [start.name for start in self._starts]

    def look(self) -> dict[T, list[Entry[T]]]:
        """What there is now, without the streams that have nothing."""
        budget = ReadBudget(self._allowed)
        read = [(start.name, budget.read(self._opened, start)) for start in self._starts]
        return {self._opened.text(name): given for name, given in read if given}


def read_many(
    opened: OpenStore[T],
    after: Mapping[str, IDLike] | Mapping[bytes, IDLike],
    allowed: Limits,
    timeout: Length | None,
) -> dict[T, list[Entry[T]]]:
    """What such a read finds, at once or until the time-out; {} if none of them has anything."""
    deadline = deadline_of(timeout)
    read = ReadMany(opened, after, allowed)
    found = read.look()
    if found or over(deadline):
        return found
    names = read.names(deadline)
    return wait_streams(opened.engine(), names, read.look, deadline, opened.engine) or {}


def beginning(opened: OpenStore[Any], after: IDLike, since: When | None) -> IDLike:
    """Where to begin: ``after``, or right before a moment. OptionError if both are given."""
    if since is None:
        return after
    if after not in ("$", b"$"):
        raise OptionError("after and since are both where to begin: give one of them")
    first = since_id(since, opened.engine().clock.now_ms())
    return first if first == ZERO_ID else first.previous()


def follow(
    opened: OpenStore[T],
    name: bytes,
    after: IDLike,
    count: int | None,
    timeout: Length | None,
    where: MatchingOf | None,
    viewed: Callable[[list[Entry[T]]], list[Entry[T]]],
) -> Iterator[Entry[T]]:
    """Entries of one stream above an ID, and those that come; ``viewed`` gives those that were read
    together as the stream's handle has them, where ``where`` does not."""
    arguments.check_count(count, "count")
    deadline_of(timeout)
    if where is not None:
        found = follow_many(opened, {name: after}, timeout, count or FOLLOW_COUNT, where)
        return (entry for _, entry in found)
    start = start_of(opened, name, after)
    return _follow(opened, start, Limits(count or FOLLOW_COUNT), timeout, viewed)


def _follow(
    opened: OpenStore[T],
    start: Start,
    allowed: Limits,
    timeout: Length | None,
    viewed: Callable[[list[Entry[T]]], list[Entry[T]]],
) -> Iterator[Entry[T]]:
    above = start.above
    given = start.newest or read_stream(opened, start.name, above, allowed, timeout)
    while given:
        yield from viewed(given)
        above = max(above, given[-1].id)
        given = read_stream(opened, start.name, above, allowed, timeout)


def starts(
    opened: OpenStore[Any],
    after: Mapping[str, IDLike] | Mapping[bytes, IDLike] | Iterable[str | bytes],
    since: When | None,
) -> dict[bytes, IDLike]:
    """Where to begin by stream: of a mapping its IDs, of names "$" or a moment.

    Raises:
        UsageError: there is no name.
        OptionError: ``since`` is given with IDs, or is no moment.
    """
    if isinstance(after, str | bytes) or not isinstance(after, Iterable):
        raise UsageError(
            f"give the names of the streams, or the ID to read after by stream: not {shown(after)}"
        )
    given: dict[Any, IDLike]
    given = dict(after) if isinstance(after, Mapping) else dict.fromkeys(after, "$")
    if not given:
        raise UsageError("no stream is named: there is nothing to follow")
    return {name: beginning(opened, each, since) for name, each in by_name(opened, given.items())}


class Following(Generic[T]):
    """A read of several streams that goes on: what it gave is not given again.

    What is read at once is in the order of IDs; of each stream all is, or what matches, by the
    schema that it has then. What was looked at and did not match is not looked at again.
    """

    def __init__(
        self,
        opened: OpenStore[T],
        after: Mapping[bytes, IDLike],
        count: int,
        where: MatchingOf | None = None,
    ) -> None:
        self._opened: OpenStore[T] = opened
        self._count = count
        self._asked = where
        self._where: dict[bytes, tuple[tuple[int, int], Matching]] = {}  # by stream and schema
        begun = {
            name: start_of(opened, name, given, self._matching(name, opened.record(name)))
            for name, given in after.items()
        }
        self._newest: list[tuple[T, Entry[T]]] = [
            (opened.text(name), entry) for name, start in begun.items() for entry in start.newest
        ]
        self._above: dict[bytes, StreamID] = {name: start.above for name, start in begun.items()}

    @property
    def names(self) -> list[bytes]:
        """The streams."""
        return list(self._above)

    def look(self) -> list[tuple[T, Entry[T]]]:
        """What came since, with the names of the streams."""
        found, self._newest = self._newest, []
        for name, above in self._above.items():
            if above == MAX_ID:
                continue
            where, upto = None, MAX_ID
            if self._asked is not None:
                # The last ID is looked up first: what comes after is for the next look.
                record = self._opened.record(name)
                upto = ZERO_ID if record is None else record.last
                where = self._matching(name, record)
            entries_now = list(
                entries(self._opened, name, above.next(), upto, self._count, where=where)
            )
            if entries_now:
                found += [(self._opened.text(name), entry) for entry in entries_now]
            if len(entries_now) == self._count or (entries_now and where is None):
                self._above[name] = entries_now[-1].id
            elif where is not None:
                self._above[name] = max(above, upto)
        found.sort(key=lambda each: each[1].id)
        return found

    def _matching(self, name: bytes, record: StreamRecord | None) -> Matching | None:
        """What finds the entries of a stream, whose record is this now."""
        if self._asked is None:
            return None
        known = (0, 0) if record is None else (record.number, record.schema_at)
        found = self._where.get(name)
        if found is None or found[0] != known:
            found = self._where[name] = known, self._asked.of(name)
        return found[1]


def follow_many(
    opened: OpenStore[T],
    after: dict[bytes, IDLike],
    timeout: Length | None,
    count: int,
    where: MatchingOf | None = None,
) -> Iterator[tuple[T, Entry[T]]]:
    """Entries of several streams, and those that come."""
    following = Following(opened, after, count, where)
    return _following(opened, following, timeout)


def _following(
    opened: OpenStore[T], following: Following[T], timeout: Length | None
) -> Iterator[tuple[T, Entry[T]]]:
    while True:
        deadline = deadline_of(timeout)
        found = following.look()
        if not found and not over(deadline):
            found = (
                wait_streams(
                    opened.engine(), following.names, following.look, deadline, opened.engine
                )
                or []
            )
        if not found:
            return
        yield from found
