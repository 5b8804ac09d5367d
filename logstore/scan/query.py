"""A scan that can be read again and again: which streams, IDs, columns and rows of an open store.

Invariants: what it names is checked when it is made, and read when it is read: each reading finds
the streams and entries that there are then. Only columns that are asked for, or that a filter
names, are decoded; where a filter cannot hold by its streams and IDs, nothing is read. The rows of
a limit are the first ones of the same reading without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from logstore.codec.arrow_builder import NameGuard
from logstore.engine.runtime.engine import Engine
from logstore.errors import OptionError, shown
from logstore.ids import StreamID
from logstore.scan import conditions, live, merging, schema_text
from logstore.scan.arrow import BATCH_ROWS, BATCH_ROWS_MAX, Gather
from logstore.scan.conversion import Shape, Target, typed
from logstore.scan.id_range import ID_COLUMNS, Possible
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Where(NamedTuple):
    """What is read: of which streams, by a call at each reading; which IDs, both ends included."""

    engine: Callable[[], Engine]
    names: Callable[[], Sequence[bytes]]
    start: StreamID
    end: StreamID


class Query:
    """What a scan reads, and how it is told.

    ``merge``: in the order of IDs over all streams. ``guarded``: its reader tells no names by case,
    and an entry whose field would be taken for a column of another one is an OptionError.
    """

    def __init__(
        self,
        where: Where,
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
        self._condition: Any = None
        if filter is not None:
            self._condition, more = conditions.condition(filter, known)
            known |= {each.name: each for each in more}
        self._known = known

    @staticmethod
    def _typed_by(schema: Any) -> list[Target]:
        """Columns that a schema names are there for filters, also if they are not read."""
        return typed(types_of(schema)) if schema is not None else []

    def reader(
        self, columns: Sequence[str] | None = None, filter: Any = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """A reading: of some of the columns, of rows for which a filter of pyarrow holds besides,
        and of so many at most. OptionError."""
        import pyarrow as pa

        wanted = self._targets if columns is None else [self._known[each] for each in columns]
        parts = [each for each in (self._condition, filter) if each is not None]
        condition = reduce(and_, parts) if parts else None
        known = list(self._known.values())
        hidden = [] if condition is None else conditions.named(known, condition)
        hidden = [each for each in hidden if each not in wanted]
        names, start, end = self._where.names(), self._where.start, self._where.end
        if condition is not None:
            names, start, end = self._narrowed(condition, names, start, end)
        merge = self._merge and len(names) > 1
        shape = Shape([*wanted, *hidden, *([merging.key_column()] if merge else [])])
        rows = self._batch_rows
        if limit is not None and condition is None:
            rows = max(1, min(rows, limit))
        guard = self._guard([*wanted, *hidden])
        reading = _Reading(self._where.engine(), shape, condition, len(wanted), rows, guard)
        if merge:
            few = merging.rows_each(len(names), rows)
            found = merging.merged([reading.of([name], start, end, few) for name in names])
        else:
            found = reading.of(names, start, end)
        result = reading.result(found)
        if limit is not None:
            result = _first(result, limit)
        return pa.RecordBatchReader.from_batches(Shape(wanted).schema, result)

    def _guard(self, read: Sequence[Target]) -> NameGuard | None:
        """The names of the columns of fields that are read, which other fields may not have."""
        names = [each.name for each in read if not each.standard]
        if not self._guarded or not names:
            return None
        every = [each for each in self._known.values() if not each.standard]
        return NameGuard(names, [each.read_from for each in every])

    def _narrowed(
        self, condition: Any, names: Sequence[bytes], start: StreamID, end: StreamID
    ) -> tuple[Sequence[bytes], StreamID, StreamID]:
        """The streams and IDs for which a filter can hold."""
        text = str(condition)
        if start > end or not any(name in text for name in ("stream", *ID_COLUMNS)):
            return names, start, end
        every = {each.name: each for each in conditions.standard()} | self._known
        possible = Possible(condition, conditions.schema_of(list(every.values())))
        if "stream" in text:
            names = possible.streams(names)
        if any(name in text for name in ID_COLUMNS):
            found = possible.interval(start, end)
            if found is None:
                return [], start, end
            start, end = found
        return names, start, end


class _Reading:
    """One reading: how gathered batches become those that are asked for."""

    def __init__(
        self,
        engine: Engine,
        shape: Shape,
        condition: Any,
        columns: int,
        batch_rows: int,
        guard: NameGuard | None,
    ) -> None:
        self._engine = engine
        self._shape = shape
        self._condition = condition
        self._columns = columns  # of the shape's, those that are not for the filter alone
        self._batch_rows = batch_rows
        self._guard = guard

    def of(
        self, names: Sequence[bytes], start: StreamID, end: StreamID, rows: int | None = None
    ) -> Iterator[Any]:
        """The batches of streams, each behind the one before, with the columns of the filter."""
        gather = Gather(self._shape.sources, rows or self._batch_rows, guard=self._guard)
        for gathered in live.batches(self._engine, names, start, end, gather):
            batch = self._shape.batch(gathered)
            if self._condition is not None:
                batch = batch.filter(self._condition)
            if batch.num_rows:
                yield batch

    def result(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Without the columns that are for the filter alone."""
        for batch in batches:
            more = batch.num_columns > self._columns
            yield batch.select(list(range(self._columns))) if more else batch


def _first(batches: Iterator[Any], limit: int) -> Iterator[Any]:
    """So many rows; nothing is read behind them."""
    if limit <= 0:
        return
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return


# -- columns ---------------------------------------------------------------------------------
def targets(
    columns: Sequence[str] | Sequence[Target] | Mapping[str, Any] | None, schema: Any
) -> list[Target]:
    """The columns of a scan, checked: those that are named, else those of the schema, else the
    standard ones; with the types that the schema, or a mapping, gives them."""
    types = None if schema is None else types_of(schema)
    if isinstance(columns, Mapping):
        if types is not None:
            raise OptionError("the types of columns stand in columns or in schema, not in both")
        return typed(columns)
    if columns is None:
        return conditions.standard() if types is None else typed(types)
    if isinstance(columns, str | bytes) or not isinstance(columns, Sequence):
        raise OptionError(
            f"columns must be a sequence of names, or a mapping of names to types: {columns!r}"
        )
    made = [each for each in columns if isinstance(each, Target)]
    if made:  # of a tool for which the columns have names of their own
        return made
    names = [each for each in columns if isinstance(each, str)]
    if len(names) != len(columns):
        raise OptionError(f"the names of columns must be str: {columns!r}")
    if len(set(names)) != len(names):
        raise OptionError(f"a column is named twice: {', '.join(names)}")
    return typed({name: (types or {}).get(name) for name in names})


def types_of(schema: Any) -> Mapping[str, Any]:
    """Names and types of a schema of pyarrow, of a mapping, or of a text; OptionError."""
    import pyarrow as pa

    if isinstance(schema, Mapping):
        return schema
    if isinstance(schema, str):
        return schema_text.columns(schema)
    if not isinstance(schema, pa.Schema):
        raise OptionError(
            "schema is a pyarrow.Schema, a mapping of names to types, or a text such as 'rider "
            f"string, speed double', not {shown(schema)}"
        )
    if len(set(schema.names)) != len(schema.names):
        raise OptionError(f"a column is named twice: {', '.join(schema.names)}")
    return {field.name: field.type for field in schema}
