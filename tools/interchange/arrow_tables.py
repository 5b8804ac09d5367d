"""Files of Arrow's kind as record batches of plain columns: Parquet, Arrow IPC files and streams.

A null is a field that is left out. Nested values become JSON without spaces: structs and maps
become objects, bytes become text or else base64, times become text as Arrow casts them. ``fields``,
a map of text, and ``pairs``, a list of names and values, hold fields, as in what ``scan`` gives.

INT96 timestamps, which Spark, Hive and Impala write, are a day and nanoseconds, which can be more
than 64 bits of nanoseconds hold: these end in the year 2262, and pyarrow does not check. So they
are read twice before any row is: their seconds are exact, and nanoseconds that wrapped around
differ from them by a known number.

Invariants: a column that can be no field is refused before a row is read. Every batch is checked
before it is handed over, so a hostile file is an error, and never foreign memory. A file with INT96
is read in nanoseconds if all its values fit, else in microseconds; a value that fits neither is
refused with its column and row, before anything of the file is stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc, parquet

from logstore.errors import OptionError, UsageError
from logstore.scan import column_texts, conversion, intake
from logstore.scan.intake import is_plain
from logstore.schema.stream_schema import Schema

ARROW_FILE, ARROW_FILE_HEAD_BYTES = b"ARROW1", 8  # first and last bytes; size with padding


class Table:
    """An open file: its plain schema, and its batches."""

    def __init__(self, file: BinaryIO, kind: str, *, seekable: bool, name: str) -> None:
        self._name = name or "what comes from stdin"
        self._source = self._guarded(lambda: _opened(file, kind, seekable=seekable), 0)
        schema = "schema_arrow" if kind == "parquet" else "schema"
        self.given = self._guarded(lambda: getattr(self._source, schema), 0)
        self.schema = self._guarded(
            lambda: pa.schema([pa.field(each.name, _plain_type(each)) for each in self.given]), 0
        )
        self._find_changed()

    @property
    def rows(self) -> int:
        """How many rows there are; 0: that is not known."""
        metadata = getattr(self._source, "metadata", None)
        return int(getattr(metadata, "num_rows", 0))

    def type_by(self, schema: Schema) -> None:
        """Leave columns as they are whose types the schema of a stream takes."""
        fields = [
            given if _keeps_type(given.name, schema) else plain
            for given, plain in zip(self.given, self.schema, strict=True)
        ]
        self.schema = pa.schema(fields)
        self._find_changed()

    def _find_changed(self) -> None:
        self._changed = [
            place
            for place, (old, new) in enumerate(zip(self.given, self.schema, strict=True))
            if old.type != new.type
        ]

    def batches(self, size: int) -> Iterator[Any]:
        """Batches of so many rows at most, in order; UsageError behind the last whole one."""
        found = _batches_of(self._source, size)
        done = 0
        while True:
            batch = self._guarded(lambda: next(found, None), done)
            if batch is None:
                return
            self._guarded(lambda batch=batch: batch.validate(full=True), done)
            for at in range(0, batch.num_rows, size):
                part = batch.slice(at, size)
                row = done + at
                yield self._guarded(lambda part=part, row=row: self._plain(part, row + 1), row)
            done += batch.num_rows

    def _guarded(self, call: Any, rows: int) -> Any:
        try:
            return call()
        except UsageError:
            raise
        except (pa.ArrowException, OSError, MemoryError, ValueError, KeyError) as error:
            behind = f" behind row {rows}" if rows else ""
            text = " ".join(str(error).split())[:500]
            raise UsageError(f"{self._name} cannot be read{behind}: {text}") from error

    def _plain(self, batch: Any, row: int) -> Any:
        if not self._changed:
            return batch
        columns = list(batch.columns)
        for place in self._changed:
            columns[place] = _plain_column(columns[place], self.schema.field(place), row)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


# -- files ------------------------------------------------------------------------------------
def _opened(file: BinaryIO, kind: str, *, seekable: bool) -> Any:
    if kind == "parquet":
        if not seekable:
            raise UsageError("Parquet is read from a file that is not compressed: unpack it first")
        opened = partial(parquet.ParquetFile, file, page_checksum_verification=True)
        return opened(coerce_int96_timestamp_unit=int96_unit(opened))
    is_file = _head(file, seekable=seekable) == ARROW_FILE
    if not seekable:
        return _Passing(file) if is_file else ipc.open_stream(pa.PythonFile(file, mode="r"))
    return ipc.open_file(file) if is_file else ipc.open_stream(file)


def _head(file: BinaryIO, *, seekable: bool) -> bytes:
    """The first bytes; reading still begins at them."""
    if not seekable:
        return bytes(cast("Any", file).peek(len(ARROW_FILE))[: len(ARROW_FILE)])
    head = file.read(len(ARROW_FILE))
    file.seek(0)
    return head


class _Passing:
    """An Arrow file in which nobody can seek, such as a compressed one: read from front to back.

    Between its first bytes and its footer it is an Arrow stream. The footer ends in the bytes that
    the file began with; where they are missing, the file was cut off.
    """

    def __init__(self, file: BinaryIO) -> None:
        file.read(ARROW_FILE_HEAD_BYTES)
        self._file = file
        self._stream = ipc.open_stream(pa.PythonFile(file, mode="r"))
        self.schema = self._stream.schema

    def __iter__(self) -> Iterator[Any]:
        yield from self._stream
        end = b""
        while piece := self._file.read(1 << 16):
            end = (end + piece)[-len(ARROW_FILE) :]
        if end != ARROW_FILE:
            raise ValueError("an Arrow file ends with its footer, and this one has none")


def _batches_of(source: Any, size: int) -> Iterator[Any]:
    if hasattr(source, "iter_batches"):
        return iter(source.iter_batches(batch_size=size))
    if hasattr(source, "num_record_batches"):
        return (source.get_batch(at) for at in range(source.num_record_batches))
    return iter(source)


# -- columns ----------------------------------------------------------------------------------
def _plain_type(field: Any) -> Any:
    """The type of a column as it can be a field; OptionError if there is none."""
    types, kind = pa.types, field.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(pa.field(field.name, kind.storage_type))
    if field.name.lower() in ("fields", "pairs") and intake.holds_fields(field.name.lower(), kind):
        return kind
    if types.is_dictionary(kind):
        return _plain_type(pa.field(field.name, kind.value_type))
    if is_plain(kind):
        return kind
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_float16(kind) or types.is_time(kind) or types.is_nested(kind):
        return pa.string()
    raise OptionError(
        f"column {field.name!r} of {kind} cannot be a field, which is text, bytes, a number, a "
        "time, or nested: cast it, or leave it out"
    )


def _keeps_type(name: str, schema: Schema) -> bool:
    """Whether a column goes as it is to its column of a schema; for text it becomes text here."""
    column = schema.column(name.encode("utf-8", "surrogateescape"))
    return column is not None and column.type.name != "string"


def _plain_column(column: Any, field: Any, row: int) -> Any:
    """A column as its plain field has it; UsageError names the row, of which the first is ``row``,
    with a time that has no text."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    texts: list[str | None] = []
    try:
        if not pa.types.is_nested(column.type):
            return (
                column_texts.times(column)
                if pa.types.is_time(column.type)
                else column.cast(field.type)
            )
        for each in column:
            texts.append(_json(each))  # noqa: PERF401  (how many there are names the row)
        return pa.array(texts, pa.string())
    except conversion.OutOfRange as error:
        at = error.place if pa.types.is_time(column.type) else len(texts)
        raise UsageError(f"row {row + at}: column {field.name!r}: {error}") from error


def _json(scalar: Any) -> str | None:
    if not scalar.is_valid:
        return None
    value = column_texts.nested_value(scalar)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# -- INT96 ----------------------------------------------------------------------------------------
INT96_ROWS = 65536
_NS_MAX_S = 9_223_372_036  # seconds around 1970 that 64 bits of nanoseconds hold
_YEAR_1, _YEAR_10000 = -62_135_596_800, 253_402_300_800
_A_SECOND_NS = 1_000_000_000


def int96_unit(opened: Any) -> str:
    """The unit in which the INT96 columns of a file are read.

    Args:
        opened: gives the file as pyarrow opens it, with its options.

    Raises:
        UsageError: a value is not in the years 1 to 9999, or needs nanoseconds where others are not
            in the years 1678 to 2261.
    """
    plain = opened(coerce_int96_timestamp_unit="s")
    columns = _columns(plain.schema)
    if not columns:
        return "ns"
    row, fits, first_fine = 0, True, ""
    readers = (plain, opened(coerce_int96_timestamp_unit="ns"))
    both = (each.iter_batches(batch_size=INT96_ROWS, columns=columns) for each in readers)
    for seconds, nanoseconds in zip(*both, strict=True):
        wrong = _first(_wrong, seconds, nanoseconds, row)
        if wrong:
            raise UsageError(f"{wrong}: an INT96 timestamp is not in the years 1 to 9999")
        fits = fits and not _column(_beyond, seconds, nanoseconds)
        first_fine = first_fine or _first(_fine, seconds, nanoseconds, row)
        row += seconds.num_rows
    if not fits and first_fine:
        raise UsageError(
            f"{first_fine}: an INT96 timestamp of nanoseconds, in a file with others outside of "
            "the years 1678 to 2261: write the column as microseconds, as pyspark does with "
            "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS"
        )
    return "ns" if fits else "us"


def _columns(schema: Any) -> list[str]:
    """The columns that hold INT96, at any depth, as paths."""
    every = (schema.column(place) for place in range(len(schema)))
    return [each.path for each in every if each.physical_type == "INT96"]


# What of seconds, and of nanoseconds, is looked for, as masks.
def _wrong(seconds: Any, _nanoseconds: Any) -> Any:
    return pc.or_(pc.less(seconds, _YEAR_1), pc.greater_equal(seconds, _YEAR_10000))


def _beyond(seconds: Any, _nanoseconds: Any) -> Any:
    return pc.or_(pc.less(seconds, -_NS_MAX_S), pc.greater_equal(seconds, _NS_MAX_S))


def _fine(seconds: Any, nanoseconds: Any) -> Any:
    # Both numbers wrap around alike, so their difference is the fraction of the second.
    rest = pc.subtract(nanoseconds, pc.multiply(seconds, _A_SECOND_NS))
    return pc.not_equal(rest, pc.multiply(pc.divide(rest, 1000), 1000))


def _column(test: Any, seconds: Any, nanoseconds: Any) -> str:
    """The first column in which a test finds something; empty if there is none."""
    columns = zip(seconds.schema.names, seconds.columns, nanoseconds.columns, strict=True)
    for name, one, other in columns:
        for pair in zip(_leaves(one), _leaves(other), strict=True):
            numbers = (each.cast(pa.int64()) for each in pair)
            if pc.any(test(*numbers)).as_py():
                return str(name)
    return ""


def _first(test: Any, seconds: Any, nanoseconds: Any, row: int) -> str:
    """The first row in which a test finds something, and its column; empty if there is none."""
    if not _column(test, seconds, nanoseconds):
        return ""
    found = (
        (at, _column(test, seconds.slice(at, 1), nanoseconds.slice(at, 1)))
        for at in range(seconds.num_rows)
    )
    at, name = next(each for each in found if each[1])
    return f"row {row + at + 1}: column {name!r}"


def _leaves(array: Any) -> list[Any]:
    """The timestamps of a column, also those in lists, maps and structs."""
    types, kind = pa.types, array.type
    if types.is_timestamp(kind):
        return [array]
    if types.is_struct(kind):
        return [leaf for each in array.flatten() for leaf in _leaves(each)]
    if types.is_map(kind):  # the values of this slice alone
        begin, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        parts = (each.slice(begin, end - begin) for each in (array.keys, array.items))
        return [leaf for each in parts for leaf in _leaves(each)]
    if types.is_list(kind) or types.is_large_list(kind):
        return _leaves(array.flatten())
    return []
