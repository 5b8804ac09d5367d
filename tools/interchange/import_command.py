"""``logstore import``: entries from JSON, CSV or a table, a commit for each batch of them.

``text_lines`` reads text, ``arrow_tables`` reads tables, which ``table_import`` adds.

Invariants: a batch is committed whole or not at all. A bad line stops the import before its batch
is committed, unless bad lines are skipped, which are then counted. An error comes with the counts,
so that the import can go on from there. IDs ascend in the input. Memory holds one batch.
"""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import repeat
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import click

from logstore.errors import InputLineError, SchemaError, UsageError
from logstore.ids import ZERO_ID, StreamID
from logstore.loading import load, needing
from logstore.options import BATCH_MAX_ROWS, ENTRY_MAX_BYTES, Sync
from logstore.tools import command_options as options
from logstore.tools.command_output import Output
from logstore.tools.interchange import csv_blocks, text_lines
from logstore.tools.interchange.file_formats import (
    TABLES,
    TEXTS,
    Input,
    guess_encoding,
    sniffed_delimiter,
    stream_name,
)
from logstore.tools.interchange.text_rows import TIME_FORMATS, Block, ImportRow, RowIDs

if TYPE_CHECKING:
    from logstore.api.stream import Stream
    from logstore.codec import GivenIDs, RowBatch
    from logstore.engine.streams.add import AutoID
    from logstore.schema.stream_schema import Schema
    from logstore.tools.interchange.csv_blocks import CellBlock
    from logstore.tools.interchange.import_schema import ImportSchema


@dataclass(slots=True)
class Counts:
    """The counts of rows so far."""

    imported: int = 0
    bad: int = 0
    resumed_over: int = 0
    last_id: StreamID | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values; for --json."""
        return asdict(self) | {"last_id": None if self.last_id is None else str(self.last_id)}


@dataclass(slots=True)
class Import:
    """One import into one stream: its options and its counts."""

    stream: Stream[bytes]
    batch: int | None = None
    skip_bad: bool = False
    resume: bool = False
    on_bad: Callable[[InputLineError], None] = lambda _error: None
    on_batch: Callable[[Counts, int], None] = lambda _counts, _rows: None
    create: bool = True
    schema: ImportSchema | None = None  # by which rows are written
    counts: Counts = field(default_factory=Counts)
    _resume_after: StreamID = ZERO_ID

    def _bad(self, error: InputLineError) -> None:
        """Count a bad row if such rows are skipped; else raise its error."""
        if not self.skip_bad:
            raise error
        self.counts.bad += 1
        self.on_bad(error)

    def _out_of_order(self, id: StreamID, last: StreamID) -> str:
        if last <= self._resume_after:
            return (
                f"{id} is not above the stream's last ID {self._resume_after}; --resume goes on "
                "after it"
            )
        return f"{id} is not above {last} before it: sort the input by ID"

    def _commit_ready(
        self, ready: RowBatch, ids: AutoID | GivenIDs, first: int = 0, end: int | None = None
    ) -> None:
        """Add rows that are written already: all, or those from ``first`` to ``end``."""
        from logstore.api.entry import IDRuns, collect
        from logstore.api.opening import opened_of
        from logstore.engine.streams import add

        schema_at = 0 if self.schema is None else self.schema.settle(create=self.create)
        name = self.stream.name
        end = len(ready) if end is None else end
        request = add.Add(name, ready, first, end, ids, self.create, schema_at=schema_at)
        added = opened_of(self.stream).commit(partial(add.add, request=request), None)
        found = IDRuns()
        if added is not None:
            collect(found, added)
        self._added(found)

    def _added(self, ids: Sequence[StreamID]) -> None:
        """Count rows that were added; none: there is no stream, and none may be made."""
        if len(ids) == 0:
            raise UsageError("there is no such stream: leave out --no-create to make it")
        self.counts.imported += len(ids)
        self.counts.last_id = ids[-1]


# What is read: a block is of rows, or of cells.
Read: TypeAlias = "ImportRow | InputLineError | Block | CellBlock"
# Of a row that is to be added: its number, what is counted, and what ``add_many`` takes.
Waiting: TypeAlias = tuple[int, str, Any]


@dataclass(slots=True)
class Load(Import):
    """An import of text, row by row, or by blocks of rows."""

    rows: Generator[Read] = field(kw_only=True)
    empty_is_null: bool = field(default=False, kw_only=True)
    _waiting: list[Waiting] = field(default_factory=list)
    _last: StreamID = ZERO_ID
    _with_ids: bool | None = None
    _committed_s: float = 0.0

    def run(self) -> Counts:
        """Add all rows; InputLineError at the first bad one, unless they are skipped."""
        with closing(self.rows):
            return self._run(self.rows)

    def _run(self, rows: Iterable[Read]) -> Counts:
        self._last = self._resume_after = self.stream.last_id
        try:
            self._take(rows)
        except KeyboardInterrupt:  # what came so far stays
            if self._waiting:
                self._commit()
            raise
        if self._waiting:
            self._commit()
        return self.counts

    def commit_old(self) -> float | None:
        """Commit the rows that wait, if the last commit is long ago; in how many seconds it will
        be, None if no row waits. Called before more input is waited for."""
        if not self._waiting:
            return None
        left_s = self._committed_s + KEPT_WITHIN_S - monotonic()
        if left_s > 0:
            return left_s
        self._commit()
        return None

    def _take(self, rows: Iterable[Read]) -> None:
        for found in rows:
            if isinstance(found, Block):
                self._add_block(found)
            elif isinstance(found, ImportRow | InputLineError):
                self._add_one(found)
            elif not self._add_cells(found):
                self._take(found.row_by_row())

    def _add_cells(self, block: CellBlock) -> bool:
        """Add a block of cells; False: nothing was added, and each row must be looked at."""
        if self._waiting:
            self._commit()
        with_ids = block.id_at >= 0
        if self._with_ids not in {None, with_ids} or (self.resume and not with_ids):
            return False
        try:
            typed = self.schema
            ready = block.ready(None) if typed is None else block.ready(typed.schema, typed.commas)
            parts = self._parts(block, len(ready))
        except UsageError:
            return False
        if parts is None:
            return False
        self._with_ids = with_ids
        for first, end, ids in parts:
            self._commit_ready(ready, ids, first, end)
            self.on_batch(self.counts, 0)
        return True

    def _parts(
        self, block: CellBlock, count: int
    ) -> list[tuple[int, int, AutoID | GivenIDs]] | None:
        """The first row of each batch of a block, the one behind its last, and their IDs; None if
        the IDs do not ascend above all before them."""
        from logstore.codec import codec
        from logstore.engine.streams.add import AUTO

        size, last = self.batch or count, self._last
        parts: list[tuple[int, int, AutoID | GivenIDs]] = []
        ms, seq = block.numbers() if block.id_at >= 0 else ([], [])
        for first in range(0, count, size):
            end = min(first + size, count)
            if block.id_at < 0:
                parts.append((first, end, AUTO))
                continue
            ids = codec().given_numbers(ms[first:end], seq[first:end])
            if ids.settle(*last) >= 0:
                return None
            last = StreamID(*ids[len(ids) - 1])
            parts.append((first, end, ids))
        self._last = last
        return parts

    def _add_block(self, block: Block) -> None:
        """Take a block of plain rows, of which only the IDs are not checked yet."""
        at, count = 0, len(block.rows)
        while at < count:
            end = min(at + self._batch_rows - len(self._waiting), count)
            if self._ascend(block, at, end):
                numbers = block.lines[at:end]
                self._waiting += zip(numbers, repeat("line"), block.rows[at:end])
                self._commit_if_full()
            else:
                for place in range(at, end):
                    self._add_one(block.row(place))
            at = end

    def _ascend(self, block: Block, at: int, end: int) -> bool:
        """Whether rows have IDs that ascend above all before them, or none as all before; if they
        do, they are taken over. What is wrong is found by looking at one after the other."""
        from logstore.codec import codec

        if self._with_ids not in {None, block.with_ids} or (self.resume and not block.with_ids):
            return False
        if block.with_ids:
            try:
                ids, _ = codec().given(block.rows[at:end], 0)
            except UsageError:
                return False
            if ids.settle(*self._last) >= 0:
                return False
            self._last = StreamID(*ids[len(ids) - 1])
        self._with_ids = block.with_ids
        return True

    def _add_one(self, found: ImportRow | InputLineError) -> None:
        row = self._checked(found)
        if isinstance(row, InputLineError):
            self._bad(row)
        elif row is not None:
            value = row.pairs if row.id is None else (row.id, row.pairs)
            self._waiting.append((row.line, row.unit, value))
            self._commit_if_full()

    @property
    def _batch_rows(self) -> int:
        return self.batch or BATCH_ROWS

    def _commit_if_full(self) -> None:
        if len(self._waiting) >= self._batch_rows:
            self._commit()

    def _checked(self, found: ImportRow | InputLineError) -> ImportRow | InputLineError | None:
        """The row if it is to be added, its error, or None to skip it."""
        if isinstance(found, InputLineError):
            return found
        if self._with_ids is None:
            self._with_ids = found.id is not None
        if self._with_ids is not (found.id is not None):
            has_none = "the row has no ID, and rows before it have"
            return found.bad(has_none if self._with_ids else "the row has an ID, none before")
        if found.id is None:
            if self.resume:
                raise found.bad("rows without IDs cannot be resumed")
            return found
        if self.resume and found.id <= self._resume_after:
            self.counts.resumed_over += 1
            return None
        if found.id <= self._last:
            return found.bad(self._out_of_order(found.id, self._last))
        self._last = found.id
        return found

    def _commit(self) -> None:
        rows, self._waiting = self._waiting, []
        self._committed_s = monotonic()
        if self.schema is not None:
            rows = self._typed(rows, self.schema)
        if rows:
            try:
                self._add(rows)
            except UsageError as error:
                good = self._without_refused(rows, error)
                if good:
                    self._add(good)
        self.on_batch(self.counts, 0)

    def _typed(self, rows: list[Waiting], schema: ImportSchema) -> list[Waiting]:
        """The rows as the schema writes them; those that do not fit it are bad, unless it becomes
        wider for them."""
        raw = partial(_raw, schema=schema.schema, empty_is_null=self.empty_is_null)
        given = [raw(value[1] if self._with_ids else value) for _, _, value in rows]
        refused: list[tuple[Waiting, SchemaError]] = []
        good: list[Waiting] = []
        for row, pairs in zip(rows, given, strict=True):
            line, unit, value = row
            try:
                written = schema.written(pairs)
            except SchemaError as error:
                if not refused and schema.widen(given):
                    return self._typed(rows, schema)
                refused.append((row, error))
                continue
            good.append((line, unit, (value[0], written) if self._with_ids else written))
        for (line, unit, _), why in refused:
            hint = f"{COMMA_HINT}, or import with --decimal ,"
            message = why.message.replace(COMMA_HINT, hint) if self.empty_is_null else why.message
            self._bad(InputLineError(message, line_number=line, unit=unit))
        return good

    def _add(self, rows: list[Waiting]) -> None:
        from logstore.codec import codec

        values = [value for _, _, value in rows]
        if self.schema is None:
            self._added(self.stream.add_many(values, batch=len(values), create=self.create))
            return
        from logstore.engine.streams.add import AUTO

        ids: AutoID | GivenIDs = AUTO
        if self._with_ids:
            ids, values = codec().given(values, 0)
        self._commit_ready(codec().rows(values), ids)

    def _without_refused(self, rows: list[Waiting], error: UsageError) -> list[Waiting]:
        """The rows of a refused batch that can be added; the error again if no row causes it."""
        from logstore.codec import codec

        good: list[Waiting] = []
        for row in rows:
            line, unit, value = row
            try:
                codec().rows([value[1] if self._with_ids else value])
            except UsageError as refused:
                self._bad(InputLineError(str(refused), line_number=line, unit=unit))
            else:
                good.append(row)
        if len(good) == len(rows):
            raise error
        return good


def _raw(fields: Any, schema: Schema, *, empty_is_null: bool) -> list[tuple[bytes, bytes | None]]:
    """The pairs of a row as the texts of values. With ``empty_is_null`` an empty text is null in a
    column that may be null, or in which it is no value."""
    pairs = fields.items() if isinstance(fields, dict) else fields
    raw: list[tuple[bytes, bytes | None]] = []
    for name, value in pairs:
        field = name if isinstance(name, bytes) else name.encode()
        text = value.encode() if isinstance(value, str) else value
        if empty_is_null and text == b"":
            column = schema.column(field)
            if column is not None and (column.nullable or not column.type.takes_empty):
                text = None
        raw.append((field, text))
    return raw


# Codecs of Python that are no encodings of text files, though they turn text into bytes.
COMMA_HINT = "for its decimal comma is to be a point"  # as a type of numbers says it
NO_TEXT = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
BATCH_ROWS = 1000
KEPT_WITHIN_S = 1.0  # rows that came wait no longer for others of their batch
# Options of text only, with their defaults.
OF_TEXT = {
    "encoding": None,
    "delimiter": None,
    "decimal": None,
    "header": None,
    "line_max_bytes": text_lines.LINE_MAX_BYTES,
}
SAMPLE = 'id,"a"\r\n1-0,b\r\n'


def size_of(source: BinaryIO) -> int:
    """The size of an input that is a file; 0: not known."""
    try:
        return os.fstat(source.fileno()).st_size if source.seekable() else 0
    except OSError:
        return 0


@options.command("import")
@click.argument("source", metavar="[FILE]", type=click.File("rb"), default="-")
@click.option("--stream", "name", metavar="NAME", shell_complete=options.complete_streams,
              help="The stream to add to; else it is named as the file is.")  # fmt: skip
@click.option(
    "--format",
    "format_",
    type=click.Choice([*TEXTS, *TABLES]),
    help="Else by the file's first bytes, or name.",
)
@click.option(
    "--schema",
    help="The columns that the stream gets, as 'temp double, note string?', or 'none'; else those "
    "of the file, if nothing was ever added to the stream.",
)
@click.option("--id-field", help="The field with the ID; 'id' if there is one.")
@click.option("--time-field", help="The field with the time; the sequence is the rank within it.")
@click.option(
    "--time-format",
    default="iso",
    show_default=True,
    help=f"{', '.join(TIME_FORMATS)}, or a pattern of strptime; UTC if it has no zone.",
)
@click.option("--auto-id", is_flag=True, help="IDs of now; 'id' is a field like any other.")
@click.option("--encoding", help="Of CSV; else by its first bytes, or utf-8.")
@click.option("--delimiter", help="Of CSV, or 'tab'; else by its first rows.")
@click.option(
    "--decimal",
    type=click.Choice([".", ","]),
    help="Of numbers in CSV; else by the first rows, if the delimiter is no comma.",
)
@click.option(
    "--header/--no-header",
    default=None,
    help="Of CSV: whether the first row has the names of the columns, as it has if neither is "
    "given. Without, they are those of --schema, or column1, column2, ..",
)
@click.option(
    "--line-max-bytes",
    type=options.number(1, ENTRY_MAX_BYTES),
    default=text_lines.LINE_MAX_BYTES,
    show_default=True,
    help="Of a line of JSON, or a record of CSV (characters there).",
)
@click.option(
    "--batch",
    type=options.number(1, BATCH_MAX_ROWS),
    help="Entries in a commit.  [default: 1000; of tables 65536, of much CSV 1 MiB of it]",
)
@click.option("--skip-bad", is_flag=True, help="Go on after bad lines, and count them.")
@click.option("--resume", is_flag=True, help="Pass over rows up to the stream's last ID.")
@options.no_create_option
@options.sync_option
def import_(
    output: Output,
    /,
    path: Path,
    source: BinaryIO,
    name: str | None,
    format_: str | None,
    sync: Sync,
    no_create: bool,
    **more: Any,
) -> None:
    """Add the rows of FILE, or of stdin, to a stream.

    JSON lines: {"id": .., "fields": {..}} as `logstore export` writes them, with "pairs" or
    "pairs_base64" in place of "fields", or a flat object of fields; or an array of such objects.
    CSV: a header, then rows. Parquet, Arrow IPC (extra arrow): columns are fields. Compressed by
    gzip or zstd, too. Null is a field that is left out, what is nested becomes JSON. IDs come from
    id, or ms and seq, of tables also from a timestamp ts; else the store gives them. A bare number
    in id that can be no time in milliseconds is refused, unless --id-field or --auto-id says what
    it is.

    A new stream gets the columns of the file, with their types: those of a table, or those that
    CSV and flat JSON lines seem to have; they are told at the end, and --schema says others. A
    column in which later rows have another type becomes a wider one, or text.

    A bad line or row is named and stops the import; batches before it stay. Rows must ascend by ID.
    Of what comes through a pipe, rows are in the store within a second, and those that came before
    an interrupt stay.
    """
    given = [each for each in ("id_field", "time_field", "auto_id") if more[each]]
    if len(given) > 1:
        raise click.UsageError("give one of --id-field, --time-field and --auto-id")
    named = getattr(source, "name", "")
    file = named if isinstance(named, str) and named != "<stdin>" else ""
    found = Input(source, file)
    kind = found.format(format_, file)
    schema = None if (text := more.pop("schema")) is None else _schema_of(text)
    told = {} if name is not None else {"stream": stream_name(file)}
    ids = {each: more.pop(each) for each in ("id_field", "time_field", "time_format")}
    ids["auto"] = more.pop("auto_id")
    begun = _begun(found, kind, file, ids, more)
    with (
        options.opened(path, sync=sync, create=not no_create) as store,
        output.progress("Importing") as progress,
        options.interrupted_by_sigterm(),
    ):
        total = size_of(source)
        where = {"file": file} if kind in TABLES and file else {}

        def on_batch(counts: Counts, rows: int) -> None:
            output.context = where | counts.as_dict()
            if rows:
                progress(rows, begun.rows)
            else:
                progress(source.tell() if total else counts.imported, total)

        stream = store.stream(name if name is not None else told["stream"])
        made = begun.load(
            stream,
            schema,
            finds=_may_find(stream, text),
            on_bad=output.skipped,
            on_batch=on_batch,
            create=not no_create,
            **{each: more[each] for each in ("batch", "skip_bad", "resume")},
        )
        output.context = where | made.counts.as_dict()
        counts = made.run()
    found_in = {} if made.schema is None else made.schema.told(by_hand=bool(more.get("decimal")))
    output.report(counts.as_dict() | told | found_in)


def _begun(found: Input, kind: str, file: str, ids: dict[str, Any], more: dict[str, Any]) -> Any:
    """The reader of an input. UsageError for an option that is not for its format."""
    if kind not in TABLES:
        return TextInput(found, kind, file, ids, more)
    for each, default in OF_TEXT.items():
        if more.pop(each) != default:
            raise click.UsageError(f"--{each.replace('_', '-')} is not for {kind}")
    tables = needing("arrow", lambda: load("logstore.tools.interchange.table_import"))
    return tables.TableInput(found, kind, file, ids)


def _schema_of(text: str) -> Schema | None:
    from logstore.tools.interchange import import_schema

    return import_schema.given_schema(text)


def _may_find(stream: Stream[bytes], text: str | None) -> bool:
    from logstore.tools.interchange import import_schema

    return import_schema.may_find(stream, text)


class TextInput:
    """JSON lines or CSV that are to be imported. Wrong options are refused at once."""

    rows = 0  # how many there are is not known

    def __init__(
        self, found: Input, kind: str, file: str, ids: dict[str, Any], more: dict[str, Any]
    ) -> None:
        self._file, self._waiting = found.file, found.waiting
        self._name = file or "what comes from stdin"
        self._kind = kind
        self._ids = ids
        self._sample = found.sample()
        self._most = more["line_max_bytes"]
        self._decimal = more["decimal"]
        if self._decimal is not None and kind != "csv":
            raise click.UsageError(f"--decimal is not for {kind}")
        self._encoding, self._delimiter, self._header = "utf-8", ",", more["header"]
        if kind == "csv":
            encoding, delimiter = more["encoding"], more["delimiter"]
            self._encoding = guess_encoding(self._sample) if encoding is None else encoding
            check_encoding(self._encoding)
            self._text = self._sample.decode(self._encoding, "replace").lstrip("\ufeff")
            if delimiter is None:
                delimiter = sniffed_delimiter(self._text, file)
            self._delimiter = "\t" if delimiter in {"tab", "\\t"} else delimiter
            check_delimiter(self._delimiter)

    def load(self, stream: Stream[bytes], given: Schema | None, *, finds: bool, **how: Any) -> Load:
        """What loads it into a stream, with the schema that was given, or that the stream has, or
        that is found. UsageError."""
        from logstore.api import coded
        from logstore.api.opening import opened_of
        from logstore.api.values import typed_bytes
        from logstore.tools.interchange.import_schema import ImportSchema

        ids = RowIDs(**self._ids)
        schema = given or stream.schema
        is_typed = finds or schema is not None
        names = partial(self._names, schema=given, is_typed=is_typed)
        if finds:
            schema = self._found(names)
        typed = None
        if schema is not None:
            to_set = finds or given is not None
            schema, commas = self._with_commas(names, schema, finds=finds)
            typed = ImportSchema(stream, schema, to_set=to_set, widens=finds, commas=commas)
            if self._kind != "csv":
                columns = schema.columns
                ids.json_fields = frozenset(c.name for c in columns if c.type.name == "json")
                ids.keeps_null = any(c.nullable and c.default is not None for c in columns)
        codec = coded.kept_codec(opened_of(stream), stream.name)
        if codec is not None:
            if ids.of_times:
                raise click.UsageError(
                    "--time-field is not for a stream with a codec: name the IDs"
                )
            ids.written = partial(typed_bytes, codec)
        rows = self._rows(ids, names, empty_is_null=schema is not None)
        how["empty_is_null"] = self._kind == "csv"
        made = Load(stream, rows=rows, schema=typed, **how)
        if self._waiting is not None:
            self._waiting.on_wait = made.commit_old
        return made

    def _rows(
        self, ids: RowIDs, names: text_lines.HeaderNames, *, empty_is_null: bool
    ) -> Generator[Read]:
        if self._kind != "csv":
            return text_lines.read_json(self._file, ids, line_max_bytes=self._most)
        if self._most >= csv_blocks.RECORD_BYTES_MAX and csv_blocks.may_split(
            self._encoding, self._delimiter
        ):
            return csv_blocks.read(
                self._file,
                ids,
                delimiter=self._delimiter,
                line_max_bytes=self._most,
                names=names,
                empty_is_null=empty_is_null,
            )
        return text_lines.read_csv(
            self._file,
            ids,
            encoding=self._encoding,
            delimiter=self._delimiter,
            line_max_bytes=self._most,
            names=names,
        )

    def _found(self, names: text_lines.HeaderNames) -> Schema | None:
        """The schema of the first rows; None: they have none."""
        from logstore.tools.interchange import import_schema

        ids = RowIDs(**self._ids)
        if self._kind != "csv":
            return import_schema.of_json(self._sample, ids)
        first, behind = import_schema.header_of(self._text, self._delimiter)
        if self._header is None and import_schema.looks_like_values(first, behind):
            raise UsageError(
                f"the first row of {self._name} has values like those below it, such as "
                f"{first[0][:40]!r}: give --no-header, and it is a row like them; or --header, and "
                "it has the names of the columns"
            )
        return import_schema.of_csv(
            self._sample, ids, names, encoding=self._encoding, delimiter=self._delimiter
        )

    def _with_commas(
        self, names: text_lines.HeaderNames, schema: Schema, *, finds: bool
    ) -> tuple[Schema, frozenset[bytes]]:
        """The schema, and the fields whose numbers have a decimal comma."""
        surely = self._decimal == ","
        if self._kind != "csv" or not (
            surely or (self._decimal is None and self._delimiter != ",")
        ):
            return schema, frozenset()
        from logstore.tools.interchange import decimal_commas, import_schema

        if surely and not finds:
            return schema, decimal_commas.of_numbers(schema)
        ids, encoding, delimiter = RowIDs(**self._ids), self._encoding, self._delimiter
        columns = import_schema.columns_of_csv(
            self._sample, ids, names, encoding=encoding, delimiter=delimiter
        )
        if not finds:
            return schema, decimal_commas.found(columns, decimal_commas.of_numbers(schema))
        return decimal_commas.typed(columns, schema, surely=surely)

    def _names(
        self, cells: list[str], schema: Schema | None, *, is_typed: bool
    ) -> tuple[list[str], bool]:
        """The names of the columns, by the first record."""
        from logstore.tools.interchange import import_schema

        if self._header is False:
            if schema is not None:
                cells = [column.name for column in schema.columns]
            else:
                cells = import_schema.unique_names([""] * len(cells))
            return cells, False
        return (import_schema.unique_names(cells) if is_typed else cells), True


def check_encoding(encoding: str) -> None:
    """Refuse what is no encoding of text, before the store is opened."""
    try:
        known = codecs.lookup(encoding)
    except (LookupError, ValueError):  # ValueError: a name with a NUL in it
        raise click.BadParameter(f"no such encoding: {encoding}") from None
    if known.name in NO_TEXT or not _reads_csv(known.name):
        raise click.BadParameter(f"{encoding} is no encoding of text files: give one as utf-8")


def check_delimiter(delimiter: str) -> None:
    """Refuse what is no delimiter of CSV, before the store is opened."""
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise click.BadParameter(f"the delimiter is one character, not {delimiter!r}")


def _reads_csv(encoding: str) -> bool:
    """Whether a codec gives back a piece of CSV that it encoded."""
    try:
        data = SAMPLE.encode(encoding)
        text = io.TextIOWrapper(
            io.BytesIO(data), encoding=encoding, errors="surrogateescape", newline=""
        )
        return text.read() == SAMPLE
    except (LookupError, ValueError):  # a codec of bytes, or one without these characters
        return False
