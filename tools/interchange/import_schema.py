"""The schema of an import: that of the file, found in its rows, or given; and rows held against it.

A table has types. Of text they are found in its first rows: numbers, times and what is nested in
JSON, and in CSV what all of its cells are; every column may be null. Rows that come later and do
not fit what was found make it wider: a column of two types is text. Lines as ``export`` writes
them, with ``fields`` or ``pairs``, are the bytes of entries: nothing is found in these.

Invariants: a schema is set with the first rows, once they were held against it: an import that is
refused before leaves no stream. What was given is never made wider.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from logstore.api.configuring import kept_schema as kept_schema_of
from logstore.api.opening import opened_of
from logstore.codec import codec
from logstore.errors import OptionError, SchemaError, UsageError
from logstore.ids import ZERO_ID
from logstore.schema import schema_inference
from logstore.schema.column_types import DATE, DOUBLE, LONG, STRING, TIMESTAMP
from logstore.schema.schema_text import parse
from logstore.schema.stream_schema import Column, Schema, folded
from logstore.tools.interchange import csv_blocks, decimal_commas, text_lines
from logstore.tools.interchange.text_rows import WRAPPERS, RowIDs, one_by_one

if TYPE_CHECKING:
    from logstore.api.stream import Stream
    from logstore.schema.column_types import ColumnType
    from logstore.tools.interchange.text_lines import HeaderNames

FEW_CELLS = 100  # of a column, which are looked at before all others
NONE = "none"  # instead of a schema
AS_TEXT = "--schema none imports it as text"


def given_schema(text: str | None) -> Schema | None:
    """The schema that was given; None: none was, or ``none``. UsageError."""
    if text is None or text.lower() == NONE:
        return None
    try:
        return parse(text)
    except OptionError as error:
        raise click.BadParameter(error.message, param_hint="'--schema'") from None


def may_find(stream: Stream[bytes], text: str | None) -> bool:
    """Whether the schema of a file is to be taken over: nothing else was asked for, the stream has
    none, and nothing was ever added to it."""
    if text is not None:
        return False
    record = opened_of(stream).record(stream.name)
    if record is None:
        return True
    codec = opened_of(stream).view(lambda view: _codec_of(view, stream.name))
    return codec is None and not record.schema_at and record.last == ZERO_ID


def _codec_of(view: Any, name: bytes) -> str | None:
    from logstore.features.setting_rows import SettingRows

    record = view.record(name)
    return None if record is None else SettingRows(view.index).stream(record.number).codec


# -- rows that are held against it ------------------------------------------------------------
class ImportSchema:
    """The schema that the rows of an import are written by.

    ``to_set``: the stream gets it with the first rows. ``widens``: it was found in the first rows,
    and becomes wider with others.
    """

    def __init__(
        self,
        stream: Stream[bytes],
        schema: Schema,
        *,
        to_set: bool,
        widens: bool = False,
        was_found: bool = False,
        commas: frozenset[bytes] = frozenset(),
    ) -> None:
        self._stream = stream
        self.was_found = was_found  # in the types of a table
        self.schema = schema
        self.was_set = False  # by this import
        self._to_set = to_set
        self._widens = widens
        self.commas = commas  # the fields whose numbers have a decimal comma
        self._at = 0  # where the stream has this very schema

    def told(self, *, by_hand: bool) -> dict[str, str]:
        """What was found; ``by_hand``: not what the decimal comma is, which was given."""
        found = {"schema": self.schema.text} if self.was_set else {}
        return found | ({"decimal": ","} if self.commas and not by_hand else {})

    def written(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes]]:
        """A row as it is stored. SchemaError."""
        return self.schema.row(self._pointed(pairs))

    def _pointed(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> Sequence[Any]:
        if not self.commas:
            return list(pairs)
        return [
            (name, decimal_commas.with_point(text) if text and name in self.commas else text)
            for name, text in pairs
        ]

    def widen(self, rows: Sequence[Sequence[tuple[bytes, bytes | None]]]) -> bool:
        """Make the schema one that can read these rows, too; False: it stays as it is."""
        if not self._widens:
            return False
        try:
            rows = [self._pointed(row) for row in rows]
            found = schema_inference.infer(map(_flat, rows))
            columns = [self._kept(column, rows) for column in found.columns]
            wider = schema_inference.wider(self.schema, Schema(columns))
        except (OptionError, SchemaError):
            return False
        if wider == self.schema:
            return False
        self.schema, self._to_set = wider, True
        return True

    def _kept(self, found: Column, rows: Sequence[Sequence[tuple[bytes, bytes | None]]]) -> Column:
        """A column that rows seem to have, as the schema has it if it can read them all."""
        column = self.schema.column(found.field)
        if column is None:
            return found
        texts = (text for row in rows for name, text in row if name == found.field)
        if all(text is None or _reads(column.type, text) for text in texts):
            return found._replace(type=column.type)
        return found

    def settle(self, *, create: bool) -> int:
        """Have the stream have the schema; the position of it, or 0 if the stream has another one,
        which somebody set meanwhile: that one writes the rows in their commit. SchemaError for a
        stored entry that stands against it."""
        if self._to_set:
            if opened_of(self._stream).record(self._stream.name) is None and not create:
                return 0  # there is no stream, and none may be made: the add says so
            self._stream.configure(schema=self.schema)
            self._to_set, self.was_set, self._at = False, True, 0
        at = opened_of(self._stream).schema_at(self._stream.name)
        if at != self._at:
            kept, at = kept_schema_of(opened_of(self._stream), self._stream.name)
            self._at = at if kept == self.schema else 0
        return self._at


def _reads(kind: ColumnType, text: bytes) -> bool:
    try:
        kind.read(text)
    except ValueError:
        return False
    return True


def _flat(pairs: Iterable[tuple[bytes, bytes | None]]) -> list[bytes]:
    return [part for pair in pairs if pair[1] is not None for part in (pair[0], pair[1])]


# -- of tables --------------------------------------------------------------------------------
def kept_schema(schema: Any) -> Schema | None:
    """The schema that a file of Arrow's kind has in its metadata, as ``export`` writes it."""
    from logstore.transfer.parquet_export import METADATA

    kept = (schema.metadata or {}).get(METADATA)
    if kept is None:
        return None
    try:
        return parse(kept.decode())
    except (UsageError, UnicodeDecodeError):
        return None


def of_table(schema: Any, fields: Iterable[int]) -> Schema:
    """The schema of columns of Arrow by their types. OptionError."""
    columns: list[Column] = []
    for place in fields:
        field = schema.field(place)
        if not field.name:
            raise OptionError(f"column {place + 1} has no name: give it one, or {AS_TEXT}")
        (typed,) = parse(f"c {type_name(field.type)}").columns
        columns.append(Column(field.name, typed.type, field.nullable))
    try:
        return Schema(columns)
    except OptionError as error:
        raise OptionError(f"{error.message}; {AS_TEXT}") from None


def type_name(kind: Any) -> str:
    """The type of a schema that holds all values of a type of Arrow."""
    import pyarrow as pa

    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        names = {"extension<arrow.uuid>": "uuid", "extension<arrow.json>": "json"}
        return names.get(str(kind)) or type_name(kind.storage_type)
    if types.is_dictionary(kind):
        return type_name(kind.value_type)
    if types.is_decimal(kind):
        digits, scale = kind.precision, max(kind.scale, 0)
        digits -= min(kind.scale, 0)
        return f"decimal({digits}, {scale})" if scale <= digits <= 38 else "string"
    tests = {
        types.is_boolean: "bool",
        types.is_uint32: "long",
        types.is_int64: "long",
        types.is_uint64: "decimal(20, 0)",
        types.is_integer: "int",
        types.is_floating: "double",
        types.is_binary: "binary",
        types.is_large_binary: "binary",
        types.is_binary_view: "binary",
        types.is_fixed_size_binary: "binary",
        types.is_date: "date",
        types.is_timestamp: "timestamp",
        types.is_time: "time",
        types.is_nested: "json",
    }
    return next((name for test, name in tests.items() if test(kind)), "string")


def check_kept_whole(batch: Any, schema: Schema) -> None:
    """SchemaError for a time that is finer than its column keeps: nobody asked to cut it off."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for field, values in zip(batch.schema, batch.columns, strict=True):
        column = schema.column(field.name.encode())
        fine = field.type == pa.time64("ns") or (
            pa.types.is_timestamp(field.type) and field.type.unit == "ns"
        )
        if column is None or column.type.name not in {"timestamp", "time"} or not fine:
            continue
        counts = values.cast(pa.int64())
        micros = pc.divide(counts, 1000)
        whole = pc.equal(pc.multiply(micros, 1000), counts)
        if whole.false_count:
            raise SchemaError(
                f"row {whole.to_pylist().index(False)}: column {field.name!r} has nanoseconds, "
                f"which {column.type.name} does not keep: give a --schema in which it is a string, "
                f"or a {column.type.name} to cut them off"
            )


# -- of text ----------------------------------------------------------------------------------
def unique_names(cells: Sequence[str]) -> list[str]:
    """The names of a header, as columns can have them: none is empty, and no two differ by case
    only. The first one of a name keeps it."""
    taken = {folded(cell) for cell in cells if cell}
    there: set[str] = set()
    names: list[str] = []
    for place, cell in enumerate(cells, 1):
        name, number = cell or f"column{place}", 2
        if folded(name) in there or (not cell and folded(name) in taken):
            while folded(f"{name}_{number}") in taken | there:
                number += 1
            name = f"{name}_{number}"
        there.add(folded(name))
        names.append(name)
    return names


def of_csv(
    sample: bytes, ids: RowIDs, names: HeaderNames, *, encoding: str, delimiter: str
) -> Schema | None:
    """The schema of the first rows of a CSV; None: there are none. OptionError."""
    if csv_blocks.may_split(encoding, delimiter):
        cells = csv_blocks.sample_columns(sample, ids, delimiter, names)
        if cells is not None:
            return _of_cells(cells)
    rows = text_lines.read_csv(
        io.BytesIO(sample), ids, encoding=encoding, delimiter=delimiter, names=names
    )
    return _nullable(_pairs_of(rows), is_open=False)


def _of_cells(columns: Sequence[tuple[str, Any]]) -> Schema | None:
    if all(cells.null_count == len(cells) for _, cells in columns):
        return None
    try:
        return Schema([Column(name, _type_of(cells), True) for name, cells in columns])
    except OptionError as error:
        raise OptionError(f"{error.message}; {AS_TEXT}") from None


def _type_of(cells: Any) -> ColumnType:
    """The type of a column of text as ``infer`` finds it; of one without any value that of text."""
    if cells.null_count == len(cells):
        return STRING
    for kind in (LONG, DOUBLE, DATE, TIMESTAMP):
        if codec().canonical_texts(cells, kind.name) is not None:
            return kind
    there = cells.drop_null()
    for some in (there.slice(0, FEW_CELLS), there):
        texts = ([b"", each.encode()] for each in some.to_pylist())
        (column,) = schema_inference.infer(texts).columns
        if column.type is STRING:  # as it stays, whatever comes: all of it is UTF-8
            break
    return column.type


def of_json(sample: bytes, ids: RowIDs) -> Schema | None:
    """The schema of the first lines of JSON; None: they have no fields of their own."""
    if sample.lstrip().startswith(b"["):
        elements = text_lines.elements(sample.lstrip(), io.BytesIO(b""), len(sample))
        lines = _until_the_end(elements)
    else:
        lines = sample.splitlines()
    rows: list[list[tuple[bytes, Any]]] = []
    for line in lines:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(found, dict):
            continue
        ids.take_out(found)
        if len(found) == 1 and not set(WRAPPERS).isdisjoint(found):
            return None
        rows.append([*map(_typed_text, found.items())])
    return _nullable(rows, is_open=True)


def _until_the_end(elements: Iterable[tuple[int, bytes | None]]) -> list[bytes]:
    found: list[bytes] = []
    try:
        found.extend(each or b"" for _, each in elements)
    except UsageError:
        pass  # the sample ends within one
    except ValueError:
        pass
    return found


def columns_of_csv(
    sample: bytes, ids: RowIDs, names: HeaderNames, *, encoding: str, delimiter: str
) -> list[tuple[bytes, list[bytes]]]:
    """The columns of the first rows of a CSV, with the texts that they have."""
    if csv_blocks.may_split(encoding, delimiter):
        cells = csv_blocks.sample_columns(sample, ids, delimiter, names)
        if cells is not None:
            return [
                (name.encode(), [each.encode() for each in column.drop_null().to_pylist()])
                for name, column in cells
            ]
    rows = text_lines.read_csv(
        io.BytesIO(sample), ids, encoding=encoding, delimiter=delimiter, names=names
    )
    found: dict[bytes, list[bytes]] = {}
    for name, text in chain.from_iterable(_pairs_of(rows)):
        if text is not None:
            found.setdefault(name, []).append(text)
    return list(found.items())


def _typed_text(item: tuple[str, Any]) -> tuple[bytes, Any]:
    """A field of JSON for ``infer``: a str is text for certain."""
    name, value = item
    raw = name.encode("utf-8", "surrogatepass")
    if value is None or isinstance(value, str):
        return raw, value
    return raw, json.dumps(value).encode()


def _pairs_of(rows: text_lines.Found) -> list[list[tuple[bytes, Any]]]:
    from logstore.errors import InputLineError

    try:
        return [
            [(name, value or None) for name, value in each.pairs]  # an empty cell can be null
            for each in one_by_one(rows)
            if not isinstance(each, InputLineError)
        ]
    except InputLineError:  # a header that is none: reading says so again
        return []


def _nullable(rows: list[list[tuple[bytes, Any]]], *, is_open: bool) -> Schema | None:
    names = dict.fromkeys(name for row in rows for name, _ in row)
    if not any(value is not None for row in rows for _, value in row):
        return None
    try:
        found = schema_inference.infer(
            [part for pair in row if pair[1] is not None for part in pair] for row in rows
        )
        columns = [each._replace(nullable=True) for each in found.columns]
        if not is_open:  # of a column without any value nothing is known
            of = {each.field: each for each in columns}
            columns = [
                of.get(name) or Column(name.decode("utf-8", "surrogateescape"), STRING, True)
                for name in names
            ]
        return Schema(columns, is_open=is_open)
    except OptionError as error:
        raise OptionError(f"{error.message}; {AS_TEXT}") from None


def header_of(sample: str, delimiter: str) -> tuple[list[str], list[list[str]]]:
    """The first record of a CSV, and some behind it."""
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
    records: list[list[str]] = []
    try:
        for cells in reader:
            if cells:
                records.append(cells)
            if len(records) > 100:
                break
    except csv.Error:
        pass
    return (records[0], records[1:]) if records else ([], [])


def looks_like_values(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first record of a CSV seems to be one of values: each of its cells is of the type
    of its column, and one of these is not text."""
    odd = False
    for place, cell in enumerate(first):
        cells = [row[place].encode("utf-8", "surrogateescape") for row in rows if len(row) > place]
        cells = [each for each in cells if each]
        if not cells or not cell:
            return False
        (column,) = schema_inference.infer([b"c", each] for each in cells).columns
        if column.type.name in {"string", "binary"}:
            continue
        try:
            column.type.read(cell.encode("utf-8", "surrogateescape"))
        except ValueError:
            return False
        odd = True
    return odd and len(rows) > 0
