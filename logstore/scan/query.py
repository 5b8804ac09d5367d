"""A scan of an open store, which can be read again and again: its streams, IDs, columns and rows.

A scan of several streams may be merged to one, in the order of IDs. It holds a batch of each
stream. No entry up to the smallest of their last IDs is missing: all up to there is put into order
and given out, and streams whose batch is used up are read on.

Invariants: what a scan names is checked when it is made; each reading reads the streams and entries
that there are then. Only columns that are asked for, or that a filter names, are decoded; streams
and IDs for which a filter cannot hold are not read. The rows of a limit are the first ones of the
same reading without it. Merged rows come in the order of IDs, those of one ID in the order in which
the streams are named; more streams have smaller batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby, repeat
from operator import and_, itemgetter
from typing import TYPE_CHECKING, Any

from logstore.codec.arrow_builder import NameGuard
from logstore.engine.runtime.engine import Engine
from logstore.errors import OptionError
from logstore.ids import StreamID
from logstore.scan import conditions, live
from logstore.scan.conversion import Decode, Shape
from logstore.scan.filter_range import ID_COLUMNS, FilterNodes, FilterRange
from logstore.scan.node_skipping import NodeCondition, NodeSkipping
from logstore.scan.record_batches import BATCH_ROWS, BATCH_ROWS_MAX, Gather
from logstore.scan.scan_columns import (
    Target,
    schema_columns,
    standard_columns,
    targets,
    typed_columns,
    types_of,
)
from logstore.schema.stream_schema import Schema
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class ScanRange(NamedTuple):
    """The streams, found anew at each reading, and the IDs of a scan, both ends included.

    ``decoders``: of each of some streams what decodes its values; None if it has no codec.
    """

    engine: Callable[[], Engine]
    names: Callable[[], Sequence[bytes]]
    start: StreamID
    end: StreamID
    decoders: Callable[[Sequence[bytes]], Iterator[Decode | None]] = lambda _: repeat(None)


class Query:
    """What a scan reads, and how its rows are given.

    ``merge``: in the order of IDs over all streams. ``guarded``: for a reader that ignores case in
    names; an entry with a field that it would take for the column of another field is an
    OptionError.
    """

    def __init__(
        self,
        where: ScanRange,
        columns: Sequence[str] | Sequence[Target] | Mapping[str, Any] | None = None,
        schema: Any = None,
        filter: Any = None,
        batch_rows: int = BATCH_ROWS,
        *,
        merge: bool = False,
        guarded: bool = False,
    ) -> None:
        if not isinstance(batch_rows, int) or not 1 <= batch_rows <= BATCH_ROWS_MAX:
            raise OptionError(f"batch_rows must be 1 to {BATCH_ROWS_MAX}: {batch_rows}")
        self._where = where
        self._batch_rows = batch_rows
        self._merge = merge
        self._guarded = guarded
        self._targets = targets(columns, schema)
        self.schema: pa.Schema = Shape(self._targets).schema
        known = {each.name: each for each in self._typed_by(schema)}
        known |= {each.name: each for each in self._targets}
        self._condition: conditions.ScanCondition | None = None
        if filter is not None:
            kept = schema if isinstance(schema, Schema) else None
            self._condition = conditions.condition(filter, known, kept)
            known |= {each.name: each for each in self._condition.columns}
        self._known = known

    @staticmethod
    def _typed_by(schema: Any) -> list[Target]:
        """The columns of a schema: filters may name them, also if they are not read."""
        if isinstance(schema, Schema):
            return schema_columns(schema)
        return typed_columns(types_of(schema)) if schema is not None else []

    def reader(
        self, columns: Sequence[str] | None = None, filter: Any = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """Read some of the columns, of rows for which a further filter of pyarrow holds, at most
        ``limit`` of them. OptionError."""
        import pyarrow as pa

        wanted = self._targets if columns is None else [self._known[each] for each in columns]
        parts = [] if self._condition is None else [self._condition.filter]
        parts += [] if filter is None else [filter]
        condition = reduce(and_, parts) if parts else None
        known = list(self._known.values())
        hidden = [] if condition is None else conditions.named(known, condition)
        hidden = [each for each in hidden if each not in wanted]
        names, start, end = self._where.names(), self._where.start, self._where.end
        asked: list[NodeCondition] = []
        if condition is not None:
            possible = self._possible(condition)
            names, start, end = _narrowed(str(condition), possible, names, start, end)
            asked = self._node_conditions(condition, possible, filter)
        merge = self._merge and len(names) > 1
        read = [*wanted, *hidden, *([key_column()] if merge else [])]
        rows = self._batch_rows
        if limit is not None and condition is None:
            rows = max(1, min(rows, limit))
        guard = self._guard([*wanted, *hidden])
        reading = _Reading(self._where, read, condition, len(wanted), rows, guard, asked)
        if merge:
            few = rows_each(len(names), rows)
            found = merged([reading.of([name], start, end, few) for name in names])
        else:
            found = reading.of(names, start, end)
        result = reading.result(found)
        if limit is not None:
            result = _first(result, limit)
        return pa.RecordBatchReader.from_batches(Shape(wanted).schema, result)

    def _possible(self, condition: Any) -> FilterRange:
        every = {each.name: each for each in standard_columns()} | self._known
        return FilterRange(condition, conditions.schema_of(list(every.values())))

    def _node_conditions(
        self, condition: Any, possible: FilterRange, pushed: Any
    ) -> list[NodeCondition]:
        """What nodes are asked before they are read: the tree of the condition; and all of it as an
        expression, where a part has no tree."""
        own = self._condition
        found: list[NodeCondition] = [] if own is None or own.tree is None else [own]
        if pushed is not None or (own is not None and own.tree is None):
            found.append(FilterNodes(condition, possible, self._known.values()))
        return found

    def _guard(self, read: Sequence[Target]) -> NameGuard | None:
        """Refuses fields that a reader would take for the columns that are read."""
        names = [each.name for each in read if not each.standard]
        if not self._guarded or not names:
            return None
        every = [each for each in self._known.values() if not each.standard]
        return NameGuard(names, [each.read_from for each in every])


def _narrowed(
    text: str, possible: FilterRange, names: Sequence[bytes], start: StreamID, end: StreamID
) -> tuple[Sequence[bytes], StreamID, StreamID]:
    """The streams and IDs for which a filter of this text can hold."""
    if start > end or not any(name in text for name in ("stream", *ID_COLUMNS)):
        return names, start, end
    if "stream" in text:
        names = possible.streams(names)
    if any(name in text for name in ID_COLUMNS):
        found = possible.interval(start, end)
        if found is None:
            return [], start, end
        start, end = found
    return names, start, end


class _Reading:
    """One reading: turns gathered batches into those that are asked for."""

    def __init__(
        self,
        where: ScanRange,
        targets: Sequence[Target],
        condition: Any,
        columns: int,
        batch_rows: int,
        guard: NameGuard | None,
        node_conditions: Sequence[NodeCondition],
    ) -> None:
        self._engine = where.engine()
        self._decoders = where.decoders
        self._targets = targets
        self._condition = condition
        self._columns = columns  # the first so many of the targets; the others are for the filter
        self._batch_rows = batch_rows
        self._guard = guard
        self._node_conditions = node_conditions

    def of(
        self, names: Sequence[bytes], start: StreamID, end: StreamID, rows: int | None = None
    ) -> Iterator[Any]:
        """The batches of streams, stream after stream, with the columns of the filter."""
        skipping = None
        if self._node_conditions:
            skipping = NodeSkipping(self._engine, self._node_conditions)
        decoded = zip(names, self._decoders(names), strict=False)
        for decode, alike in groupby(decoded, itemgetter(1)):
            shape = Shape(self._targets, decode=decode)
            gather = Gather(shape.sources, rows or self._batch_rows, guard=self._guard)
            found = live.batches(
                self._engine, [name for name, _ in alike], start, end, gather, skipping
            )
            for gathered in found:
                batch = shape.batch(gathered)
                if self._condition is not None:
                    batch = batch.filter(self._condition)
                if batch.num_rows:
                    yield batch

    def result(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches without the columns that are for the filter alone."""
        for batch in batches:
            more = batch.num_columns > self._columns
            yield batch.select(list(range(self._columns))) if more else batch


def _first(batches: Iterator[Any], limit: int) -> Iterator[Any]:
    """The first ``limit`` rows; nothing is read behind them."""
    if limit <= 0:
        return
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return


STREAMS_MAX = 1024
ROWS_MIN = 256
KEY = "\0id_key"


def key_column() -> Target:
    """The column that merging sorts by, which the batches must have."""
    import pyarrow as pa

    return Target(KEY, pa.binary(), "id_key")


def rows_each(streams: int, rows: int) -> int:
    """How many rows of a stream are held; OptionError for too many streams."""
    if streams > STREAMS_MAX:
        raise OptionError(
            f"{streams} streams cannot be merged, {STREAMS_MAX} at most: name fewer of them, or "
            "scan without merge and sort by id_key"
        )
    return max(ROWS_MIN, rows // streams)


class _HeldBatch:
    """The batch that is held of a stream, not empty, and the batches behind it."""

    def __init__(self, batch: Any, rest: Iterator[Any]) -> None:
        self.rest = rest
        self._hold(batch)

    def _hold(self, batch: Any) -> None:
        self._batch = batch
        self._keys = batch.column(KEY)
        self.first: bytes = self._keys[0].as_py()
        self.last: bytes = self._keys[-1].as_py()

    def take(self, border: bytes) -> tuple[Any, bool]:
        """The rows up to a border, at least one; whether the stream has more."""
        import pyarrow.compute as pc

        batch = self._batch
        if self.last <= border:
            more = next(self.rest, None)
            if more is not None:
                self._hold(more)
            return batch, more is not None
        count = pc.sum(pc.less_equal(self._keys, border)).as_py()
        self._hold(batch.slice(count))
        return batch.slice(0, count), True


def merged(readers: Sequence[Iterator[Any]]) -> Iterator[Any]:
    """Merge the batches of several streams; no batch is empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    held = {
        place: _HeldBatch(batch, reader)
        for place, reader in enumerate(readers)
        if (batch := next(reader, None)) is not None
    }
    while held:
        border = min(batch_held.last for batch_held in held.values())
        pieces = []
        for place, batch_held in list(held.items()):
            if batch_held.first <= border:
                piece, more = batch_held.take(border)
                pieces.append(piece)
                if not more:
                    del held[place]
        if len(pieces) == 1:
            yield pieces[0]
            continue
        table = pa.Table.from_batches(pieces).combine_chunks()
        # A stable sort: rows of one ID stay in the order of the streams.
        order = pc.sort_indices(table, sort_keys=[(KEY, "ascending")])
        yield from table.take(order).to_batches()
