"""The columns of the Spark source, and the batches that are made of them.

There are the standard columns, and the fields that a user's schema names, or the one that is kept
with the streams. Spark takes names that differ by case only for one: so standard columns match
without case, and two columns that differ by case only are refused. Any other column is the field of
exactly its name, byte for byte: an entry that has the name in another case only has no such field.
Only a column of a kept schema may be a field of another name, which its metadata says then.

A record is malformed if a value is not of its column's type. As with Spark's own text sources
PERMISSIVE makes the value null and puts the whole entry as JSON into the column
``_corrupt_record``, if the schema has it; DROPMALFORMED leaves the row out; FAILFAST is an error.

Invariants: every column is checked when the query is planned, and an error names it. What a column
is follows from the schema and the options alone, never from what entries have. A column is plain
text (name and type), so that it can be sent anywhere; its Arrow type is made where it is needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from logstore.errors import OptionError
from logstore.scan import conversion
from logstore.scan.conversion import Shape
from logstore.scan.record_batches import BATCH_ROWS, ColumnSource, Gather
from logstore.scan.scan_columns import Target, field_columns
from logstore.scan.scan_records import entry_object
from logstore.schema.column_types import ColumnType, Fixed
from logstore.schema.stream_schema import Schema, folded
from logstore.spark_io.spark_options import DROPMALFORMED, FAILFAST, SourceOptions
from logstore.tuples import NamedTuple

OPTIONS_KEY = "logstore.options"  # in the metadata of a table's column ``stream``
# In the metadata of a column that is a field of another name, or of the name of another column.
COLUMN_KEY, FIELD_KEY = "logstore.column", "logstore.field"
_STANDARD: dict[str, tuple[str, ...]] = {
    "stream": ("string",),
    "id": ("string",),
    "ms": ("bigint", "decimal(20,0)"),
    "seq": ("bigint", "decimal(20,0)"),
    "ts": ("timestamp",),
    "fields": (
        "map<string,string>",
        "map<string,binary>",
        "array<struct<key:string,value:string>>",
        "array<struct<key:string,value:binary>>",
    ),
    "id_key": ("binary",),
    "pairs": (
        "array<struct<field:string,value:string>>",
        "array<struct<field:string,value:binary>>",
    ),
}
_NEVER_NULL = ("stream", "id", "fields", "id_key", "pairs", "decimal(20,0)")
_FIELD_TYPES = (
    "string",
    "binary",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "boolean",
    "timestamp",
    "timestamp_ntz",
    "date",
)


class Column(NamedTuple):
    """One column: its name, Spark's short name of its type, whether Spark expects nulls in it.

    ``field``: the field that it is, whatever the name says; None: the name says what it is.
    """

    name: str
    type: str
    nullable: bool
    field: str | None = None

    @property
    def standard(self) -> str:
        """The standard column that it is; empty for a field."""
        name = folded(self.name)
        return name if name in _STANDARD and self.field is None else ""

    def is_called(self, name: str) -> bool:
        """Whether it is the added column of this name, as `folded` has it."""
        return self.field is None and folded(self.name) == name


def schema_of(
    kept: Schema | None,
    options: SourceOptions,
    *,
    table: Mapping[str, str] | None = None,
    several: bool = False,
) -> Any:
    """The columns of a load without a schema: those of the one that is kept with its streams, the
    standard columns, and of several stores one for the store.

    ``table``: the options of a table, which are kept in the metadata of its columns: when a table
    is read, Spark 4.3 hands its schema over, and none of its options.
    """
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        LongType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    text, number = StringType(), LongType()
    pair = StructType([StructField("field", text), StructField("value", text)])
    known = None if table is None else {OPTIONS_KEY: json.dumps(dict(table))}
    standard = [
        StructField("stream", text, metadata=known),
        StructField("id", text),
        StructField("ms", number),
        StructField("seq", number),
        StructField("ts", TimestampType()),
        StructField("fields", MapType(text, text)),
        StructField("id_key", BinaryType()),
        StructField("pairs", ArrayType(pair)),
    ]
    if several:
        standard.append(StructField(options.store_column, text))
    typed = [] if kept is None else _typed(kept, options, [each.name for each in standard])
    return StructType(typed + standard)


def _typed(kept: Schema, options: SourceOptions, taken: Sequence[str]) -> list[Any]:
    """The columns of a schema that is kept with a stream, each under a name that is free. Where it
    is not the name of the field, or would say another column, the metadata names the field."""
    from pyspark.sql.types import StructField

    columns = {column.field: column for column in kept.columns}
    found: list[Any] = []
    for field, name in field_columns(columns, taken).items():
        column = columns[field]
        own = name == column.name and folded(name) not in _added_columns(options)
        meant = None if own else {COLUMN_KEY: name, FIELD_KEY: column.name}
        found.append(StructField(name, _spark_type(column.type), metadata=meant))
    return found


def _spark_type(kind: ColumnType) -> Any:
    """The type that a column of a schema has in Spark; a time, a UUID, an enum and JSON are text.
    A column may always be null: the schema may become wider while it is read."""
    from pyspark.sql import types

    if isinstance(kind, Fixed):
        return types.DecimalType(kind.digits, kind.scale)
    made = {
        "bool": types.BooleanType,
        "int": types.IntegerType,
        "long": types.LongType,
        "double": types.DoubleType,
        "binary": types.BinaryType,
        "date": types.DateType,
        "timestamp": types.TimestampType,
    }
    return made.get(kind.name, types.StringType)()


def named_field(field: Any) -> str | None:
    """The field of entries that the metadata of a column names; None if it names none, or the
    column was renamed since."""
    metadata = field.metadata or {}
    found: str | None = metadata.get(FIELD_KEY)
    return found if metadata.get(COLUMN_KEY) == field.name else None


def table_options(schema: Any) -> dict[str, str]:
    """The options that `schema_of` left in the schema of a table; empty if there are none."""
    for field in schema:
        if OPTIONS_KEY in (field.metadata or {}):
            found: dict[str, str] = json.loads(field.metadata[OPTIONS_KEY])
            return found
    return {}


def columns(schema: Any, options: SourceOptions) -> tuple[Column, ...]:
    """The columns of a StructType, checked; OptionError names the one that cannot be."""
    found = tuple(
        Column(field.name, field.dataType.simpleString(), field.nullable, named_field(field))
        for field in schema
    )
    seen: dict[str, str] = {}
    for field, column in zip(schema, found, strict=True):
        _check(column, options)
        if not getattr(field.dataType, "valueContainsNull", True):
            raise OptionError(f"column {column.name!r}: the values of a map may be null in Spark")
        if not getattr(field.dataType, "containsNull", True):
            raise OptionError(f"column {column.name!r}: an array's elements may be null in Spark")
        before = seen.get(folded(column.name))
        if before is not None:
            raise OptionError(_twice(before, column.name))
        seen[folded(column.name)] = column.name
    return found


def _twice(before: str, name: str) -> str:
    if before == name:
        return f"column {name!r} of the schema is named twice"
    return (
        f"columns {before!r} and {name!r} differ by case only, and Spark takes them for one: leave "
        f"one out of the schema, and read a field of this name as fields[{name!r}]"
    )


def _check(column: Column, options: SourceOptions) -> None:
    name, kind, nullable = column[:3]
    standard = column.standard
    corrupt, of_store = _added_columns(options)
    if column.is_called(of_store):
        if kind != "string" or standard:
            raise OptionError(
                f"column {name!r} says which store a row is from: it must be a string, and no "
                "other standard column; for a field of this name take fields[...], or give option "
                "'storeColumn' another name for the store"
            )
        return
    if column.is_called(corrupt):
        if kind != "string" or not nullable or standard:
            raise OptionError(
                f"column {name!r} is for malformed records: it must be a string that may be null, "
                "and no standard column"
            )
        return
    if standard and kind not in _STANDARD[standard]:
        raise OptionError(
            f"column {name!r} of logstore is {' or '.join(_STANDARD[standard])}, not {kind}; for a "
            f"field of this name take fields[{name!r}]"
        )
    if not standard and kind not in _FIELD_TYPES and not kind.startswith("decimal("):
        raise OptionError(
            f"column {name!r}: a field cannot be read as {kind}, only as {', '.join(_FIELD_TYPES)} "
            "or decimal"
        )
    if not nullable and standard not in _NEVER_NULL and not (standard and kind in _NEVER_NULL):
        raise OptionError(f"column {name!r} may be null: leave NOT NULL out of the schema")


def _added_columns(options: SourceOptions) -> tuple[str, str]:
    """The names of the columns for malformed records and for the store, as `folded` has them."""
    return folded(options.corrupt), folded(options.store_column)


CORRUPT, STORE, FIELD = "corrupt", "store", "field"


def kind(column: Column, options: SourceOptions) -> str:
    """What a column is: `CORRUPT`, `STORE`, `FIELD`, or the name of a standard column."""
    corrupt, of_store = _added_columns(options)
    if column.is_called(corrupt):
        return CORRUPT
    return STORE if column.is_called(of_store) else column.standard or FIELD


def fields(wanted: Sequence[Column], options: SourceOptions) -> tuple[str, ...]:
    """The names of fields among the columns."""
    own = _added_columns(options)
    return tuple(
        each.name if each.field is None else each.field
        for each in wanted
        if not each.standard and not any(map(each.is_called, own))
    )


def hidden(wanted: Sequence[Column], options: SourceOptions) -> str | None:
    """The name of the field that the column for the store hides. None: there is no such column, or
    ``fields`` or ``pairs`` are read, which show the field."""
    if {"fields", "pairs"} & {each.standard for each in wanted}:
        return None
    _, own = _added_columns(options)
    return next((each.name for each in wanted if each.is_called(own)), None)


def shape_and_gather(
    wanted: Sequence[Column], options: SourceOptions, store: str
) -> tuple[SparkShape, Gather]:
    """The shape of the batches for Spark, and what gathers nodes for it."""
    targets = [
        Target(each.name, arrow_type(each.type), each.standard, each.nullable, each.field)
        for each in wanted
    ]
    corrupt, of_store = (
        next((at for at, each in enumerate(wanted) if each.is_called(name)), -1)
        for name in _added_columns(options)
    )
    made = SparkShape(targets, mode=options.mode, corrupt=corrupt, of_store=of_store, store=store)
    if not made.sources and not options.fail_on_loss:
        made.sources.append(ColumnSource("ms", standard=True))  # else no node would be read
    return made, Gather(made.sources, BATCH_ROWS)


def arrow_type(kind: str) -> Any:
    """The Arrow type that Spark asks for."""
    import pyarrow as pa

    if kind.startswith("decimal("):
        precision, scale = kind[len("decimal(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    values = pa.binary() if "binary" in kind else pa.string()
    if kind.startswith("map<"):
        return pa.map_(pa.string(), values)
    if kind.startswith("array<"):
        name = "key" if "<key:" in kind else "field"
        return pa.list_(pa.struct([(name, pa.string()), ("value", values)]))
    return {
        "string": pa.string(),
        "binary": pa.binary(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "date": pa.date32(),
    }[kind]


_RECORD = (ColumnSource("id", standard=True), ColumnSource("pairs", standard=True, binary=True))


class SparkShape(Shape):
    """Turns gathered batches into those that Spark asks for. ``corrupt`` and ``of_store``: the
    numbers of the columns for malformed records and for the ``store`` among the ``targets``; -1:
    none."""

    def __init__(
        self, targets: Sequence[Target], *, mode: str, corrupt: int, of_store: int = -1,
        store: str = "",
    ) -> None:  # fmt: skip
        self._corrupt = corrupt
        self._of_store = of_store
        self._store = store
        self._drop = mode == DROPMALFORMED
        super().__init__(targets, strict=mode == FAILFAST)
        made = (corrupt, of_store)  # these columns are made here, and not gathered
        self._values = [each for at, each in enumerate(targets) if at not in made]
        self.sources[:] = [each for at, each in enumerate(self.sources) if at not in made]
        if corrupt >= 0:
            self.sources += _RECORD

    def batch(self, gathered: Any) -> Any:
        """The batch with the types of the schema."""
        arrays: list[Any] = []
        bad: list[Any] = []
        for array, target in zip(gathered.columns, self._values, strict=False):
            arrays.append(self.array(array, target))
            if not target.standard and (self._drop or self._corrupt >= 0):
                mask = conversion.malformed(array, arrays[-1])
                if mask is not None:
                    bad.append(mask)
        malformed = _any_of(bad)
        own = [(self._corrupt, partial(_corrupt_records, gathered, malformed))]
        own += [(self._of_store, partial(_repeated, self._store, gathered.num_rows))]
        for place, make in sorted(own, key=itemgetter(0)):
            if place >= 0:
                arrays.insert(place, make())
        made = self.made(gathered, arrays)
        if self._drop and malformed is not None:
            import pyarrow.compute as pc

            return made.filter(pc.invert(malformed))
        return made


def _repeated(text: str, count: int) -> Any:
    import pyarrow as pa

    return pa.repeat(pa.scalar(text, pa.string()), count)


def _any_of(masks: list[Any]) -> Any:
    import pyarrow.compute as pc

    if not masks:
        return None
    found = masks[0]
    for mask in masks[1:]:
        found = pc.or_(found, mask)
    return found


def _corrupt_records(gathered: Any, malformed: Any) -> Any:
    """Malformed entries as JSON, null for the others."""
    import pyarrow as pa

    if malformed is None:
        return pa.nulls(gathered.num_rows, pa.string())
    ids, pairs = gathered.columns[-2:]
    return pa.array(
        [
            _as_json(ids[at].as_py(), pairs[at].as_py()) if bad else None
            for at, bad in enumerate(malformed.to_pylist())
        ],
        pa.string(),
    )


def _as_json(id: str, pairs: list[dict[str, Any]]) -> str:
    found = [(pair["field"].encode(), pair["value"]) for pair in pairs]
    return json.dumps(entry_object(id, found), ensure_ascii=False)
