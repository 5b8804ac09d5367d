"""The rows of a table into a stream, by columns: which columns are IDs, and a commit for each
batch.

Invariants: as in an import of lines a batch is committed whole or not at all; a bad row is named by
its number and stops the import before its batch, unless bad rows are skipped; IDs ascend; the
counts say how far the import came, so that it can go on. Columns are refused before the first row
is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from logstore.api import coded
from logstore.api.opening import opened_of
from logstore.codec import GivenIDs, RowBatch, codec
from logstore.engine.streams import add
from logstore.engine.streams.add import AutoID
from logstore.errors import (
    InputLineError,
    InvalidIDError,
    OptionError,
    SchemaError,
    UsageError,
)
from logstore.ids import ZERO_ID, StreamID
from logstore.scan import intake
from logstore.scan.intake import Layout
from logstore.tools.interchange.arrow_tables import Table
from logstore.tools.interchange.file_formats import Input
from logstore.tools.interchange.import_command import Counts, Import
from logstore.tools.interchange.import_schema import (
    ImportSchema,
    check_kept_whole,
    kept_schema,
    of_table,
)
from logstore.tools.interchange.text_rows import parse_ms
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.api.stream import Stream
    from logstore.schema.stream_schema import Schema

R = TypeVar("R")
BATCH_ROWS = 65536
Numbers = tuple[list[int], list[int] | None]


class TableIDs:
    """Where the IDs of the rows come from, and which columns are fields then.

    Without options ``id``, else ``ms`` and ``seq``, else ``ts``, as ``add_arrow`` takes them; with
    one, every other column is a field.
    """

    def __init__(
        self,
        schema: Any,
        typed: Schema | None = None,
        *,
        id_field: str | None = None,
        time_field: str | None = None,
        time_format: str = "iso",
        auto: bool = False,
    ) -> None:
        layout = partial(intake.layout, schema, streams=False, typed=typed)
        self._time_format = time_format
        self._time = -1
        if time_field is not None:
            if time_field not in schema.names:
                raise OptionError(f"there is no column {time_field!r}")
            self._time = schema.names.index(time_field)
        if auto or time_field is not None:
            self.layout = layout(intake.GIVEN)
        else:
            self.layout = layout(id_alone=id_field or "")

    @property
    def given(self) -> bool:
        """Whether the rows have IDs."""
        return self._time >= 0 or self.layout.id_kind != ""

    def numbers(self, batch: Any) -> Numbers:
        """Milliseconds and sequences of the IDs; a missing sequence is a rank of the row."""
        if self._time < 0:
            return intake.row_ids(batch, self.layout)
        column = batch.column(self._time)
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("ms"))
        if pa.types.is_timestamp(column.type):
            found = Layout(-1, "ts", 0, -1, -1, -1, ())
            return intake.row_ids(pa.RecordBatch.from_arrays([column], ["ts"]), found)
        if column.null_count:
            raise InvalidIDError("the time is null")
        return [parse_ms(str(each), self._time_format) for each in column.to_pylist()], None


class NumberedRows(NamedTuple):
    """Some rows of a batch: their numbers in the file, from 1 on, and their IDs."""

    batch: Any
    numbers: Sequence[int]
    ids: Sequence[tuple[int, int]] | GivenIDs | None = None

    def but(self, bad: set[int]) -> NumberedRows:
        """The rows without those at some places."""
        keep = [at for at in range(len(self.numbers)) if at not in bad]
        ids = None if self.ids is None else [self.ids[at] for at in keep]
        batch = self.batch.take(pa.array(keep, pa.int64()))
        return NumberedRows(batch, [self.numbers[at] for at in keep], ids)


@dataclass(slots=True)
class TableLoad(Import):
    """An import of a table, batch by batch."""

    table: Table = field(kw_only=True)
    ids: TableIDs = field(kw_only=True)
    _last: StreamID = ZERO_ID  # of the rows so far

    def run(self) -> Counts:
        """Add all rows; InputLineError at the first bad one, unless they are skipped."""
        if self.resume and not self.ids.given:
            raise UsageError("rows without IDs cannot be resumed")
        self._resume_after = self.stream.last_id
        done = 0
        for batch in self.table.batches(self.batch or BATCH_ROWS):
            first, done = done + 1, done + batch.num_rows
            rows = NumberedRows(batch, range(first, done + 1))
            if self.ids.given:
                rows = self._identified(rows)
            if rows.numbers:
                rows, ready = self._good(rows, self._ready)
                self._commit(rows, ready)
            self.on_batch(self.counts, done)
        return self.counts

    def _ready(self, batch: Any) -> RowBatch:
        """Rows as they are stored. SchemaError for what a type that was found would cut off."""
        if self.schema is not None and self.schema.was_found:
            check_kept_whole(batch, self.schema.schema)
        ready: RowBatch = intake.ready_rows(batch, wanted=self.ids.layout)
        return ready

    def _identified(self, rows: NumberedRows) -> NumberedRows:
        """The rows that are to be added, with their IDs."""
        rows, (ms, seq) = self._good(rows, self.ids.numbers)
        together = self._ascending(ms, seq)
        if together is not None:
            return rows._replace(ids=together)
        ids: list[StreamID] = []
        left_out: set[int] = set()
        last = self._last
        for at, first in enumerate(ms):
            rank = last.seq + 1 if first == last.ms else 0
            id = StreamID(first, rank if seq is None else seq[at])
            ids.append(id)
            if self.resume and id <= self._resume_after:
                self.counts.resumed_over += 1
                left_out.add(at)
            elif id <= max(last, self._resume_after):
                self._bad_row(self._out_of_order(id, last), rows.numbers[at])
                left_out.add(at)
                continue
            last = id
        self._last = last
        rows = rows._replace(ids=ids)
        return rows.but(left_out) if left_out else rows

    def _ascending(self, ms: list[int], seq: list[int] | None) -> GivenIDs | None:
        """The IDs of all rows, if they ascend above all before them; None if they must be looked at
        one after the other."""
        if not ms:
            return None
        ids = codec().given_numbers(ms, seq)
        if ids.settle(*self._last) >= 0 or StreamID(*ids[0]) <= self._resume_after:
            return None
        self._last = StreamID(*ids[len(ids) - 1])
        return ids

    def _good(self, rows: NumberedRows, call: Callable[[Any], R]) -> tuple[NumberedRows, R]:
        """The rows for which a call raises no error, and its result; bad rows are reported."""
        try:
            return rows, call(rows.batch)
        except UsageError as error:
            bad: set[int] = set()
            for at, why in self._refused(rows.batch, call):
                self._bad_row(str(why).removeprefix("row 0: "), rows.numbers[at])
                bad.add(at)
            if not bad:
                first, last = rows.numbers[0], rows.numbers[-1]
                raise UsageError(f"rows {first} to {last}: {error}") from error
        rows = rows.but(bad)
        return rows, call(rows.batch)

    @staticmethod
    def _refused(batch: Any, call: Callable[[Any], object]) -> Iterator[tuple[int, UsageError]]:
        for at in range(batch.num_rows):
            try:
                call(batch.slice(at, 1))
            except UsageError as error:
                yield at, error

    def _bad_row(self, why: str, number: int) -> None:
        self._bad(InputLineError(why, line_number=number, unit="row"))

    def _commit(self, rows: NumberedRows, ready: Any) -> None:
        if not rows.numbers:
            return
        ids: AutoID | GivenIDs = add.AUTO
        if isinstance(rows.ids, GivenIDs):
            ids = rows.ids
        elif rows.ids is not None:
            ms, seq = zip(*rows.ids, strict=True)
            ids = codec().given_numbers(list(ms), list(seq))
        self._commit_ready(ready, ids)


class TableInput:
    """A table that is to be imported. UsageError, OptionError for columns that cannot be."""

    def __init__(self, found: Input, kind: str, file: str, ids: dict[str, Any]) -> None:
        self._table = Table(found.file, kind, seekable=found.seekable, name=file)
        self._ids = ids
        self._layout = TableIDs(self._table.schema, **ids).layout
        self.rows = self._table.rows

    def load(
        self, stream: Stream[bytes], given: Schema | None, *, finds: bool, **how: Any
    ) -> TableLoad:
        """What loads it into a stream, with the schema that was given, or that the stream has, or
        that the table has. OptionError, SchemaError."""
        codec = coded.kept_codec(opened_of(stream), stream.name)
        if codec is not None:
            raise UsageError(
                f"the stream has the codec {codec.name!r}, for which tables are not encoded: give "
                "JSON lines or CSV",
                stream=stream.name,
            )
        schema = given or stream.schema
        if finds:
            schema = self._found()
        typed = None
        if schema is not None:
            to_set = finds or given is not None
            typed = ImportSchema(stream, schema, to_set=to_set, was_found=finds)
            self._table.type_by(schema)
        ids = TableIDs(self._table.schema, schema, **self._ids)
        return TableLoad(stream, table=self._table, ids=ids, schema=typed, **how)

    def _found(self) -> Schema | None:
        """The schema of the table; None: its rows are fields in a map, whose names nobody knows."""
        if self._layout.pairs >= 0 or self._layout.fields >= 0:
            return kept_schema(self._table.given)
        fields = [place for place, _ in self._layout.plain]
        kept = kept_schema(self._table.given)
        if kept is not None:
            try:
                TableIDs(self._table.schema, kept, **self._ids)
            except (OptionError, SchemaError):
                pass  # somebody has changed the columns
            else:
                return kept
        return of_table(self._table.given, fields)
