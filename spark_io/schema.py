"""The columns of the Spark source: the standard ones, and the fields that a user's schema names.

Invariants: every column is checked when the query is planned, and an error names it; batches have
exactly the Arrow types that Spark asks for. A column is plain text (name and type), so that it can
be sent anywhere; Arrow types are made where they are needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from logstore.codec import ARROW_COLUMNS
from logstore.errors import OptionError
from logstore.scan.arrow import BATCH_ROWS, Gather
from logstore.spark_io import casts

DDL = "stream string, id string, ms bigint, seq bigint, ts timestamp, fields map<string,string>"
OPTIONS_KEY = "logstore.options"  # in the metadata of a table's first column
_PAIRS = "array<struct<key:string,value:{}>>"
_STANDARD: dict[str, tuple[str, ...]] = {
    "stream": ("string",),
    "id": ("string",),
    "ms": ("bigint",),
    "seq": ("bigint",),
    "ts": ("timestamp",),
    "fields": (
        "map<string,string>", "map<string,binary>", _PAIRS.format("string"),
        _PAIRS.format("binary"),
    ),
}  # fmt: skip
_NEVER_NULL = ("stream", "id", "fields")
_FIELD_TYPES = (
    "string", "binary", "tinyint", "smallint", "int", "bigint", "float", "double", "boolean",
    "timestamp", "timestamp_ntz", "date",
)  # fmt: skip


class Column(NamedTuple):
    """One column: its name, Spark's short name of its type, whether Spark was told of nulls."""

    name: str
    type: str
    nullable: bool


def of_table(options: Mapping[str, str]) -> Any:
    """The standard columns, with the options of the load in them.

    When a table is read, Spark 4.3 hands its schema over, and none of its options.
    """
    from pyspark.sql.types import (
        LongType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    text, number = StringType(), LongType()
    return StructType([
        StructField("stream", text, metadata={OPTIONS_KEY: json.dumps(dict(options))}),
        StructField("id", text), StructField("ms", number), StructField("seq", number),
        StructField("ts", TimestampType()), StructField("fields", MapType(text, text)),
    ])  # fmt: skip


def table_options(schema: Any) -> dict[str, str]:
    """The options that `of_table` left in a schema; empty if there are none."""
    for field in schema:
        if OPTIONS_KEY in (field.metadata or {}):
            found: dict[str, str] = json.loads(field.metadata[OPTIONS_KEY])
            return found
    return {}


def columns(schema: Any) -> tuple[Column, ...]:
    """The columns of a StructType, checked; OptionError names the one that cannot be."""
    found = tuple(
        Column(field.name, field.dataType.simpleString(), field.nullable) for field in schema
    )
    for field, column in zip(schema, found, strict=True):
        _check(column)
        if not getattr(field.dataType, "valueContainsNull", True):
            raise OptionError(f"column {column.name!r}: the values of a map may be null in Spark")
    if len({column.name for column in found}) != len(found):
        raise OptionError("a column of the schema is named twice")
    return found


def _check(column: Column) -> None:
    name, kind, nullable = column
    if name in _STANDARD and kind not in _STANDARD[name]:
        raise OptionError(
            f"column {name!r} of logstore is {' or '.join(_STANDARD[name])}, not {kind}; for a "
            f"field of this name take fields[{name!r}]"
        )
    if name not in _STANDARD and kind not in _FIELD_TYPES and not kind.startswith("decimal("):
        raise OptionError(
            f"column {name!r}: a field cannot be read as {kind}, only as {', '.join(_FIELD_TYPES)} "
            "or decimal"
        )
    if not nullable and name not in _NEVER_NULL:
        raise OptionError(f"column {name!r} may be null: leave NOT NULL out of the schema")


def gather(wanted: Sequence[Column]) -> Gather:
    """What gathers nodes into the columns, still as text or bytes."""
    raw = [column.name for column in wanted if "binary" in column.type]
    return Gather([column.name for column in wanted], BATCH_ROWS, binary=raw)


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
        return pa.list_(pa.struct([("key", pa.string()), ("value", values)]))
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


class Shape:
    """Turns gathered batches into those that Spark asks for."""

    def __init__(self, wanted: Sequence[Column], *, strict: bool) -> None:
        import pyarrow as pa

        self._wanted = wanted
        self._strict = strict
        self.schema = pa.schema(
            [pa.field(name, arrow_type(kind), nullable) for name, kind, nullable in wanted]
        )

    def batch(self, gathered: Any) -> Any:
        """The batch with the types of the schema."""
        import pyarrow as pa

        arrays = [
            self._array(array, column, field.type)
            for array, column, field in zip(
                gathered.columns, self._wanted, self.schema, strict=True
            )
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, array: Any, column: Column, target: Any) -> Any:
        import pyarrow as pa

        if column.name not in ARROW_COLUMNS:
            return casts.cast(array, target, column.name, strict=self._strict)
        if column.type.startswith("array<"):
            pairs = pa.StructArray.from_arrays(
                [array.keys, array.items], fields=list(target.value_type)
            )
            return pa.ListArray.from_arrays(array.offsets, pairs, type=target)
        return array
