"""Where a filter of a scan can hold: its streams, and its first and last ID.

A filter is an expression of pyarrow, whose parts cannot be read. But the data sets of pyarrow can
tell whether an expression can hold where another one is known to hold: that is how they skip files.
So `FilterRange` asks about intervals of IDs until it finds the first and the last ID that can have
a row, and `FilterNodes` about what statistics tell of nodes.

Invariants: an interval is left out only if pyarrow proved that the filter holds nowhere in it.
Neither the engine nor the index may be imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import and_
from typing import Any

from logstore.codec.column_keys import ColumnRange
from logstore.codec.node_filter import ALL_NODES
from logstore.ids import U64_MAX, StreamID
from logstore.scan.filter_points import points
from logstore.scan.scan_columns import Target, column_type_of, is_exact
from logstore.schema.column_types import ColumnType
from logstore.where.filter_conditions import Filters, FilterTest, all_of, has_any
from logstore.where.node_conditions import NodeTest, Ranges, place_of

I64_MAX = (1 << 63) - 1
TS_MAX_MS = 253_402_300_799_999  # the end of the year 9999: the column ``ts`` is null after it
ID_COLUMNS = ("ms", "ts", "id_key")


class FilterRange:
    """Finds where a filter can hold. ``schema`` has all columns that the filter names, and
    ``stream``, ``ms``, ``ts``, ``id_key``."""

    def __init__(self, condition: Any, schema: Any) -> None:
        from pyarrow import dataset, fs

        self._condition = condition
        self._schema = schema
        self._dataset = dataset
        self._format = dataset.IpcFileFormat()  # no file is ever opened
        self._files = fs.LocalFileSystem()

    def can_hold(self, known: Iterable[Any]) -> bool:
        """Whether the filter can hold where one of some expressions holds."""
        fragments = [
            self._format.make_fragment("none", self._files, partition_expression=each)
            for each in known
        ]
        made = self._dataset.FileSystemDataset(fragments, self._schema, self._format, self._files)
        return any(True for _ in made.get_fragments(filter=self._condition))

    def streams(self, names: Iterable[bytes]) -> list[bytes]:
        """The streams that can have rows."""
        import pyarrow.compute as pc

        found = []
        for name in names:
            try:
                known = pc.equal(pc.field("stream"), name.decode())
            except UnicodeDecodeError:  # the column shows such a name with other letters
                known = None
            if known is None or self.can_hold([known]):
                found.append(name)
        return found

    def interval(self, start: StreamID, end: StreamID) -> tuple[StreamID, StreamID] | None:
        """The part of a closed interval that can have rows; None: none of it can."""
        if not self._between(start, end):
            return None
        # By milliseconds first; only ``id_key`` tells more.
        low_ms = _smallest(
            start.ms, end.ms, lambda ms: self._between(start, min(end, StreamID(ms, U64_MAX)))
        )
        first = max(start, StreamID(low_ms, 0))
        down = _smallest(
            0, end.ms - low_ms, lambda by: self._between(max(first, StreamID(end.ms - by, 0)), end)
        )
        last = min(end, StreamID(end.ms - down, U64_MAX))
        if "id_key" in str(self._condition):
            first, last = self._by_sequence(first, last)
        # Each end alone may leave an interval in which both leave nothing: ms > 1 and ms < 2.
        return (first, last) if self._between(first, last) else None

    def _by_sequence(self, first: StreamID, last: StreamID) -> tuple[StreamID, StreamID]:
        """Move both ends within their milliseconds."""
        top = last.seq if first.ms == last.ms else U64_MAX
        low = _smallest(first.seq, top, lambda seq: self._between(first, StreamID(first.ms, seq)))
        found = StreamID(first.ms, low)
        bottom = low if first.ms == last.ms else 0
        down = _smallest(
            0,
            last.seq - bottom,
            lambda by: self._between(StreamID(last.ms, last.seq - by), last),
        )
        return found, StreamID(last.ms, last.seq - down)

    def _between(self, start: StreamID, end: StreamID) -> bool:
        known, at = [], start
        for edge in (TS_MAX_MS, I64_MAX, U64_MAX):
            until = min(end, StreamID(edge, U64_MAX))
            if at <= until:
                known.append(self._facts(at, until))
                if until == end:
                    break
                at = until.next()
        return self.can_hold(known)

    def _facts(self, low: StreamID, high: StreamID) -> Any:
        """What holds for each ID of a closed interval that crosses none of the edges."""
        import pyarrow as pa
        import pyarrow.compute as pc

        key, ms, ts = (pc.field(name) for name in ("id_key", "ms", "ts"))
        known = [key >= low.packed(), key <= high.packed()]
        if self._schema.field("ms").type == pa.int64():
            known += [ms.is_null()] if low.ms > I64_MAX else [ms >= low.ms, ms <= high.ms]
        if low.ms > TS_MAX_MS:
            known.append(ts.is_null())
        else:
            kind = self._schema.field("ts").type
            known += [ts >= pa.scalar(low.ms * 1000, kind), ts <= pa.scalar(high.ms * 1000, kind)]
        return reduce(and_, known)


ASKED_MIN = 512
SKIPPED_MIN_SHARE = 0.02


class FilterNodes:
    """Asks nodes whether an expression can hold there. An answer takes long: who hears yes nearly
    always asks no more."""

    def __init__(self, condition: Any, possible: FilterRange, targets: Iterable[Target]) -> None:
        text = str(condition)
        targets = list(targets)
        self._possible = possible
        self._targets = [
            (each, kind)
            for each in targets
            if not each.standard and each.read is None and each.name in text
            and is_exact(each.type) and (kind := column_type_of(each.type)) is not None
        ]  # fmt: skip
        self._equal: dict[bytes, list[tuple[str, Any]]] = {}
        for each in targets:
            if not each.standard and each.read is None and each.name in text:
                named = self._equal.setdefault(each.read_from.encode(), [])
                named.append((each.name, each.type))
        self._points: dict[str, list[Any] | None] = {}

    def node_test(self, columns: Sequence[tuple[bytes, str]]) -> NodeTest | None:
        """What asks nodes with the ranges of these columns; None: it would always be True."""
        found = [
            _RangedTarget(target, kind, at)
            for target, kind in self._targets
            if (at := place_of(columns, target.read_from.encode(), kind)) is not None
        ]
        return _NodeQuestion(self._possible, found).may if found else None

    def filter_test(self, columns: Sequence[tuple[bytes, str]]) -> FilterTest | None:
        """What asks nodes with filters of these columns, for the values that must be equal."""
        return all_of(
            [
                self._equal_test(name, kind, at)
                for at, (field, stored) in enumerate(columns)
                for name, kind in self._equal.get(field, ())
                if _is_text_of(kind, stored)
            ]
        )

    def _equal_test(self, name: str, kind: Any, at: int) -> FilterTest:
        """Asks for the values of a column that were found, once it is known that there are
        filters: to find them takes milliseconds."""

        def test(filters: Filters) -> int:
            if filters[at] is None:
                return ALL_NODES
            if not asked:
                asked.append(self._has_points(name, kind, at))
            return ALL_NODES if asked[0] is None else asked[0](filters)

        asked: list[FilterTest | None] = []
        return test

    def _has_points(self, name: str, kind: Any, at: int) -> FilterTest | None:
        if name not in self._points:
            self._points[name] = points(self._possible.can_hold, name, kind)
        found = self._points[name]
        return None if found is None else has_any(at, [str(each).encode() for each in found])


def _is_text_of(kind: Any, stored: str) -> bool:
    """Whether a value of an Arrow type has the text that is stored in a column that has filters."""
    from pyarrow import types

    return not types.is_integer(kind) or stored in ("int", "long")


class _RangedTarget:
    """A column that a filter names, and which of the ranges is its own."""

    def __init__(self, target: Target, kind: ColumnType, at: int) -> None:
        self._target = target
        self._kind = kind
        self._at = at

    def facts(self, ranges: Ranges) -> Any:
        """What holds for each entry; None: nothing is told."""
        import pyarrow as pa
        import pyarrow.compute as pc

        told: ColumnRange | None = ranges[self._at]
        if told is None:
            return None
        field = pc.field(self._target.name)
        if told.least is None or told.most is None:
            return field.is_null()
        try:
            low, high = (
                pa.scalar(self._kind.read(each), self._target.type)
                for each in (told.least, told.most)
            )
        except (pa.ArrowException, ValueError, OverflowError):
            return None  # such texts stand in no statistics that we made
        known = (field >= low) & (field <= high)
        return known | field.is_null() if told.nulls else known


class _NodeQuestion:
    """Asks the nodes of a stream in a segment."""

    def __init__(self, possible: FilterRange, targets: Sequence[_RangedTarget]) -> None:
        self._possible = possible
        self._targets = targets
        self._asked = self._skipped = 0

    def may(self, ranges: Ranges) -> bool:
        """Whether an entry of the node may match."""
        if self._asked >= ASKED_MIN and self._skipped < self._asked * SKIPPED_MIN_SHARE:
            return True
        known = [facts for each in self._targets if (facts := each.facts(ranges)) is not None]
        if not known:
            return True
        holds = self._possible.can_hold([reduce(and_, known)])
        self._asked += 1
        self._skipped += not holds
        return holds


def _smallest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The smallest number for which ``holds`` is true, by halving; it is for ``high``."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
