"""The columns of a scan: what fields are called, and what a user may ask for.

**Names.** Names of fields are bytes, and upper and lower case differ. Spark and DuckDB take
``Name`` and ``name`` for one column, and a field with the name of a standard column vanishes behind
it. So there is one rule:

- A field is called by its own name: its bytes as UTF-8, with ``\\xff`` for a byte that is not
  UTF-8, and ``\\x00`` for NUL. A field without a name is called ``_``.
- If that name is taken, by a standard column or by a field before it, ``_2`` is added, ``_3`` and
  so on, until it is free. A field that needs no suffix never loses its name to one that does.

So the fields ``Name`` and ``name`` are the columns ``Name`` and ``name_2``; a field ``id`` is
``id_2``.

Streams are tables by the same rule, except that names which differ by case only all get a suffix:
``Orders`` and ``orders`` are the tables ``Orders_2`` and ``orders_3``. So a query of ``orders`` is
an error, whichever stream was there first.

**Types.** A user names columns and their types, as a sequence, a mapping, a schema of pyarrow, or
as text such as ``temp double, hum long``. In text a name stands bare, or in "double quotes" or
`backticks` with its own quote doubled. Behind it is a type, as Spark, SQL or Arrow call it, or
none: then a field is text, and a standard column has its own type.

Invariants: no two columns are the same to `folded`; each field has one column; names depend only on
the names that are given and their order. Every column is checked before anything is read, and an
error names it; text that cannot be understood is refused as a whole, with the place. Loads neither
the engine nor, until a type is made, pyarrow.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any

from logstore.codec import ARROW_COLUMNS
from logstore.errors import OptionError, shown
from logstore.scan.record_batches import ColumnSource
from logstore.schema.column_types import (
    BOOL,
    DATE,
    DOUBLE,
    TIME,
    TIMESTAMP,
    ColumnType,
    Fixed,
    Whole,
)
from logstore.schema.stream_schema import Schema, folded
from logstore.tuples import NamedTuple

NAMELESS = "_"
FIRST_SUFFIX = 2


def column_name(field: bytes) -> str:
    """The name of a field as the name of a column."""
    return field.decode("utf-8", "backslashreplace").replace("\0", "\\x00") or NAMELESS


def field_columns(fields: Iterable[bytes], taken: Iterable[str] = ()) -> dict[bytes, str]:
    """The column of each field, in the order of the fields; ``taken``: standard columns."""
    used = {folded(name) for name in taken}
    found = {field: column_name(field) for field in fields}
    late: list[bytes] = []
    for field, name in found.items():
        if folded(name) in used:
            late.append(field)
        used.add(folded(name))
    for field in late:
        found[field] = _free_name(found[field], used)
        used.add(folded(found[field]))
    return found


def stream_tables(streams: Iterable[bytes], taken: Iterable[str] = ()) -> dict[bytes, str]:
    """The table of each stream of a store; ``taken``: names of tables that are no streams."""
    names = list(streams)
    counts = Counter(folded(column_name(name)) for name in names)
    alike = [column_name(name) for name in names if counts[folded(column_name(name))] > 1]
    return field_columns(names, [*taken, *alike])


def _free_name(name: str, used: set[str]) -> str:
    number = FIRST_SUFFIX
    while folded(f"{name}_{number}") in used:
        number += 1
    return f"{name}_{number}"


_COLUMN = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"]|"")+)"|`(?P<ticked>(?:[^`]|``)+)`|(?P<bare>[^\s,"`()]+))'
    r"(?:\s+(?P<type>[A-Za-z_][A-Za-z0-9_]*(?:\s*\([\d\s,]*\))?))?\s*(?:,|$)"
)
_DECIMAL = re.compile(r"(?:decimal|numeric|decimal128)\s*\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\)")
_TYPES = {
    "int8": ("tinyint", "byte"),
    "int16": ("smallint", "short"),
    "int32": ("int", "integer"),
    "int64": ("bigint", "long"),
    "uint8": (),
    "uint16": (),
    "uint32": (),
    "uint64": (),
    "float32": ("float", "real"),
    "float64": ("double",),
    "bool_": ("boolean", "bool"),
    "string": ("text", "varchar"),
    "binary": ("bytes",),
    "date32": ("date",),
}
_NAMED = {each: made for made, others in _TYPES.items() for each in (made, *others)}
_KNOWN = "string, binary, int, bigint, double, boolean, timestamp, date or decimal(p, s)"


def parse_columns(text: str) -> dict[str, Any]:
    """Names, and their types of pyarrow or None, in order.

    Args:
        text: the columns, with commas between them.

    Returns:
        What ``columns=`` and ``schema=`` of a scan take.

    Raises:
        OptionError: it is no list of columns, a type is not known, or a column is named twice.
    """
    found: dict[str, Any] = {}
    at = 0
    while at < len(text) or not found:
        match = _COLUMN.match(text, at)
        if match is None or match.end() == at:
            raise OptionError(
                f"no column at {text[at:][:40]!r}: give names and types, as in 'temp double, hum "
                'long, "a name" string\''
            )
        name = match["bare"] or (match["quoted"] or "").replace('""', '"')
        name = name or match["ticked"].replace("``", "`")
        if name in found:
            raise OptionError(f"a column is named twice: {name}")
        found[name] = None if match["type"] is None else _parsed_type(name, match["type"].lower())
        at = match.end()
    return found


def _parsed_type(name: str, text: str) -> Any:
    import pyarrow as pa

    if text in {"timestamp", "timestamptz"}:
        return pa.timestamp("us", tz="UTC")
    if text == "timestamp_ntz":
        return pa.timestamp("us")
    if text in _NAMED:
        return getattr(pa, _NAMED[text])()
    decimal = _DECIMAL.fullmatch(text)
    if decimal is not None:
        digits, scale = int(decimal[1]), int(decimal[2] or 0)
        if 1 <= digits <= 38 and scale <= digits:
            return pa.decimal128(digits, scale)
    raise OptionError(f"column {name!r} cannot be {text}, only {_KNOWN}")


# -- the columns of a stream's schema ---------------------------------------------------------
def schema_columns(schema: Schema) -> list[Target]:
    """The columns of a schema that is kept with a stream, each under a name that is free beside the
    standard columns."""
    columns = {column.field: column for column in schema.columns}
    return [
        Target(
            name,
            arrow_type_of(columns[field].type),
            nullable=columns[field].nullable,
            field=columns[field].name,
        )
        for field, name in field_columns(columns, ARROW_COLUMNS).items()
    ]


def arrow_type_of(kind: ColumnType) -> Any:
    """The type of Arrow that a column's values have; texts of a UUID, an enum or JSON are text."""
    import pyarrow as pa

    if isinstance(kind, Fixed):
        return pa.decimal128(kind.digits, kind.scale)
    made = {
        "bool": pa.bool_,
        "int": pa.int32,
        "long": pa.int64,
        "double": pa.float64,
        "binary": pa.binary,
        "date": pa.date32,
        "timestamp": lambda: pa.timestamp("us", tz="UTC"),
        "time": lambda: pa.time64("us"),
    }
    return made.get(kind.name, pa.string)()


def column_type_of(kind: Any) -> ColumnType | None:
    """The type of columns whose values an Arrow type has; None: it has texts, or there is none."""
    from pyarrow import types

    if types.is_integer(kind):  # one that is unsigned is among those with a bit more
        unsigned = types.is_unsigned_integer(kind)
        return Whole(str(kind), kind.bit_width + unsigned)
    if types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return Fixed(kind.precision, kind.scale)
    tests = [
        (types.is_floating, DOUBLE),
        (types.is_boolean, BOOL),
        (types.is_timestamp, TIMESTAMP),
        (types.is_date32, DATE),
        (types.is_time64, TIME),
    ]
    return next((found for test, found in tests if test(kind)), None)


def is_exact(kind: Any) -> bool:
    """Whether an Arrow type reads the values of its ``column_type_of`` as they are: none is null,
    and none is rounded or cut. Of whole numbers their bits tell it."""
    from pyarrow import types

    if types.is_timestamp(kind):
        return kind.unit == "us" and kind.tz is not None  # without a zone no stored text is read
    return not types.is_floating(kind) or types.is_float64(kind)


# -- the columns of streams with a codec ------------------------------------------------------
def value_columns(kinds: Mapping[bytes, set[type]]) -> list[Target]:
    """The columns of fields of which values were looked at, each of the type that these had; text,
    which is JSON of what is nested, if they had several, or none that a column can have."""
    return [
        _value_column(name, field.decode(), kinds[field])
        for field, name in field_columns(kinds, ARROW_COLUMNS).items()
    ]


def _value_column(name: str, field: str, kinds: set[type]) -> Target:
    import pyarrow as pa

    found: list[tuple[set[type], Any]] = [
        ({bool}, pa.bool_()),
        ({int}, pa.int64()),
        ({int, float}, pa.float64()),
        ({datetime}, pa.timestamp("us", tz="UTC")),
        ({date}, pa.date32()),
        ({bytes}, pa.binary()),
    ]
    for wanted, made in found:
        if kinds and kinds <= wanted:
            exact = partial(_of_its_type, name, wanted, made)
            return Target(name, made, field=field, of_value=exact)
    return Target(name, pa.string(), field=field)


def value_kind(value: Any) -> type | None:
    """What decides the type of a column of values; None: it says nothing."""
    if value is None:
        return None
    kind = type(value)
    if kind is int and not -(1 << 63) <= value < 1 << 63:
        return str
    return str if kind is datetime and value.tzinfo is None else kind


def _of_its_type(name: str, wanted: set[type], made: Any, value: Any) -> Any:
    kind = value_kind(value)
    is_exact = kind is not int or float not in wanted or int(float(value)) == value
    if kind is None or (kind in wanted and is_exact):
        return value
    raise OptionError(
        f"column {name!r} is {made} by the entries that were looked at, and an entry has "
        f"{shown(value)}: read it in the column fields, or name the types with schema="
    )


# -- the columns that a user asks for ---------------------------------------------------------
class Target(NamedTuple):
    """A column that is asked for. ``standard``: the standard column that it is; empty: it is a
    field, of the column's name unless ``field`` says another one. ``read``: what makes its values
    of what is stored, one by one, where Arrow cannot. ``of_value``: what makes them of what a codec
    gives, in streams that have one; None: what its text is as the type."""

    name: str
    type: Any
    standard: str = ""
    nullable: bool = True
    field: str | None = None
    read: Callable[[bytes], Any] | None = None
    of_value: Callable[[Any], Any] | None = None

    @property
    def read_from(self) -> str:
        """The name of the field, for a column that is not a standard one."""
        return self.name if self.field is None else self.field


def typed_columns(columns: Mapping[str, Any]) -> list[Target]:
    """The columns of these names and Arrow types, checked; None: the column's own type."""
    import pyarrow as pa

    from logstore.codec.arrow_builder import arrow_type

    found: list[Target] = []
    for name, wanted in columns.items():
        if not isinstance(name, str):
            raise OptionError(f"the names of columns must be str: {name!r}")
        standard = name if name in ARROW_COLUMNS else ""
        kind = arrow_type(standard, binary=False) if wanted is None else wanted
        if not isinstance(kind, pa.DataType):
            raise OptionError(f"column {name!r} needs a pyarrow type, not {kind!r}")
        target = Target(name, kind, standard)
        if source_of(target) is None:
            raise OptionError(
                f"column {name!r} cannot be {kind}: it is {arrow_type(standard, binary=False)} here"
                if standard
                else f"field {name!r} cannot be read as {kind}, only as text, bytes, a number, "
                "boolean, timestamp, time64, date32 or decimal128"
            )
        found.append(target)
    return found


def source_of(target: Target) -> ColumnSource | None:
    """What the column is gathered from; None if it cannot be of its type."""
    import pyarrow as pa

    from logstore.codec.arrow_builder import arrow_type

    name, kind = target.standard, target.type
    if not name:
        binary = kind == pa.binary() or target.read is not None
        plain = ColumnSource(target.read_from, standard=False, binary=binary)
        return plain if _is_castable(kind) else None
    for binary in (False, True):
        if kind == arrow_type(name, binary):
            return ColumnSource(name, standard=True, binary=binary)
        if name == "fields" and kind == _key_values(binary):
            return ColumnSource("pairs", standard=True, binary=binary)
    if name in ("ms", "seq") and (kind == pa.uint64() or _holds_an_exact_number(kind)):
        return ColumnSource(f"{name}_exact", standard=True)
    return None


def _is_castable(kind: Any) -> bool:
    """Whether a field's text can be cast to a type."""
    from pyarrow import types

    return any(
        test(kind)
        for test in (
            types.is_string,
            types.is_binary,
            types.is_integer,
            types.is_float32,
            types.is_float64,
            types.is_boolean,
            types.is_timestamp,
            types.is_time64,
            types.is_date32,
            types.is_decimal128,
        )
    )


def _holds_an_exact_number(kind: Any) -> bool:
    from pyarrow import types

    whole = types.is_decimal128(kind) and kind.scale == 0
    return bool(whole and kind.precision >= _EXACT_DIGITS)


def _key_values(binary: bool) -> Any:
    import pyarrow as pa

    return pa.list_(
        pa.struct([("key", pa.string()), ("value", pa.binary() if binary else pa.string())])
    )


_EXACT_DIGITS = 20  # of 2**64 - 1


def targets(
    columns: Sequence[str] | Sequence[Target] | Mapping[str, Any] | None, schema: Any
) -> list[Target]:
    """The columns of a scan, checked: those that are named, else those of the schema, else the
    standard ones. The schema, or a mapping, gives the types. Behind the columns of a schema that is
    kept with the stream are the standard ones."""
    if isinstance(schema, Schema) and columns is None:
        return [*schema_columns(schema), *standard_columns()]
    types = None if schema is None else types_of(schema)
    if isinstance(columns, Mapping):
        if types is not None:
            raise OptionError("the types of columns stand in columns or in schema, not in both")
        return typed_columns(columns)
    if columns is None:
        return standard_columns() if types is None else typed_columns(types)
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
    if isinstance(schema, Schema):
        own = {each.name: each for each in schema_columns(schema)}
        return [own[name] if name in own else typed_columns({name: None})[0] for name in names]
    return typed_columns({name: (types or {}).get(name) for name in names})


def types_of(schema: Any) -> Mapping[str, Any]:
    """Names and types of a schema of pyarrow, of a mapping, of a text, or of one that is kept with
    a stream; OptionError."""
    import pyarrow as pa

    if isinstance(schema, Schema):
        return {each.name: each.type for each in schema_columns(schema)}

    if isinstance(schema, Mapping):
        return schema
    if isinstance(schema, str):
        return parse_columns(schema)
    if not isinstance(schema, pa.Schema):
        raise OptionError(
            "schema is a pyarrow.Schema, a mapping of names to types, or a text such as 'rider "
            f"string, speed double', not {shown(schema)}"
        )
    if len(set(schema.names)) != len(schema.names):
        raise OptionError(f"a column is named twice: {', '.join(schema.names)}")
    return {field.name: field.type for field in schema}


def standard_columns() -> list[Target]:
    """The standard columns, with their own types."""
    return typed_columns(dict.fromkeys(ARROW_COLUMNS))
