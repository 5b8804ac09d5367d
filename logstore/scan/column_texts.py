"""Columns of Arrow as the texts of entries: as Arrow casts them, or as a stream's schema has them.

A column whose type is that of its column of the schema is cast as a whole. Whatever else a column
holds becomes text first, and that is read as a text of the schema's type, value by value: so what
a schema takes does not depend on how a file spells it. A timestamp without a zone is in UTC, and
what is finer than a microsecond is cut off, as of a text. A text in a column of JSON is a JSON
text, as scans give it; what is nested becomes JSON, in which times and decimals are text.

Invariants: a value has the text that ``ColumnType.write`` makes of it (test_column_texts). What
does not fit names its row and its column.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from logstore.codec import codec
from logstore.errors import InvalidEntryError, SchemaError
from logstore.scan import conversion, scan_records
from logstore.scan.scan_columns import arrow_type_of
from logstore.schema.column_types import ColumnType, Enum, Fixed, Whole
from logstore.schema.stream_schema import Column

NO_TEXT = "<value out of range"
PLAIN_SCALE_MAX = 6  # Arrow writes decimals of more digits behind the point with an exponent
_MICROSECONDS = len("2026-11-26 12:00:00.000000")
_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_DOUBLE = r"^-?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)$"


def is_text(kind: Any) -> bool:
    """Whether values of a type are text."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_binary(kind: Any) -> bool:
    """Whether values of a type are bytes."""
    import pyarrow as pa

    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


# -- as Arrow casts them ----------------------------------------------------------------------
def values(column: Any, name: str, row: int) -> Any:
    """A column as text, bytes or integers, a list or an array; ``row``: the number of its first
    row."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    # The codec takes text and bytes as they are, and makes the text of integers.
    if not (is_text(kind) or is_binary(kind) or pa.types.is_integer(kind)):
        column = _as_text(column, name, row)
    return _narrow(column)


def _narrow(column: Any) -> Any:
    """Text, bytes or integers, as an array as the codec reads it; else as a list."""
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return column.to_pylist()
    if pa.types.is_integer(kind):
        plain = pa.int64()
    else:
        plain = pa.string() if is_text(kind) else pa.binary()
    try:
        return column.cast(plain)
    except pa.ArrowInvalid:  # a number of more than 63 bits, or more than 2 GiB
        return column.to_pylist()


def _as_text(column: Any, name: str, row: int) -> Any:
    """A column cast to text; InvalidEntryError for a time without a text."""
    import pyarrow as pa

    is_time = pa.types.is_time(column.type)
    if is_time or conversion.is_time(column.type):
        try:
            return times(column) if is_time else conversion.time_text(column)
        except conversion.OutOfRange as error:
            raise InvalidEntryError(f"row {row + error.place}: column {name!r}: {error}") from error
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidEntryError(f"column {name!r}: no {column.type} as text: {error}") from error


def times(column: Any) -> Any:
    """Times of day as text; OutOfRange for a value that Arrow shows as out of range."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = column.cast(pa.string())
    odd = pc.index(pc.starts_with(found, NO_TEXT), True).as_py()
    if odd >= 0:
        raise conversion.OutOfRange(odd, "a time is out of its range")
    return found


# -- as JSON ----------------------------------------------------------------------------------
# Arrow casts nothing nested to text, and its Python values have no units of time:
# test_values_of_each_arrow_type_as_text.
def nested_value(scalar: Any) -> Any:
    """A value of Arrow for JSON."""
    import pyarrow as pa

    kind = scalar.type
    if not scalar.is_valid:
        return None
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_union(kind):
        return nested_value(scalar.value)
    if pa.types.is_dictionary(kind):
        return nested_value(scalar.dictionary[scalar.index.as_py()])
    if not pa.types.is_nested(kind):
        return _leaf(scalar)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return {name: nested_value(scalar[at]) for at, name in enumerate(names)}
    if pa.types.is_map(kind):
        pairs = [(each[0], each[1]) for each in scalar.values]  # they may have other names
        return {_key(nested_value(name)): nested_value(each) for name, each in pairs}
    return [nested_value(each) for each in scalar.values]


def _leaf(scalar: Any) -> Any:
    """A value that is not nested, for JSON."""
    import pyarrow as pa

    kind = scalar.type
    if conversion.is_time(kind) or pa.types.is_time(kind):
        column = pa.repeat(scalar, 1)
        return (conversion.time_text if conversion.is_time(kind) else times)(column)[0].as_py()
    value = scalar.as_py()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return scan_records.in_base64(value)
    if isinstance(value, float) and value - value != 0:
        return str(value)  # JSON has no NaN, and no infinity
    return value if isinstance(value, str | int | float) else str(value)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# -- as a schema has them ---------------------------------------------------------------------
def typed_values(column: Any, of: Column, row: int) -> Any:
    """A column as a schema's column has its values: text, bytes or integers, null as None, in a
    list or an array.

    Args:
        column: an array of Arrow.
        of: the column of the schema.
        row: the number of the first row.

    Raises:
        SchemaError: a value is not of the column's type; it names the row.
        InvalidEntryError: a time has no text.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count and not of.nullable:
        first = column.is_null().to_pylist().index(True)
        raise SchemaError(f"row {row + first}: {of.null_refused}")
    found = _together(column, of.type)
    if found is not None:
        return found if isinstance(found, list) else _narrow(found)
    return _one_by_one(column, of, row)


def _one_by_one(column: Any, of: Column, row: int) -> list[Any]:
    texts: list[Any] = []
    for value in _objects(column, of, row):
        try:
            texts.append(None if value is None else of.written(value))
        except SchemaError as error:
            raise SchemaError(f"row {row + len(texts)}: {error.message}") from None
    return texts


def _objects(column: Any, of: Column, row: int) -> list[Any]:
    """The values of a column as ``ColumnType.write`` takes them."""
    import pyarrow as pa

    types, kind = pa.types, column.type
    is_plain = is_text(kind) or is_binary(kind)
    if isinstance(kind, pa.BaseExtensionType):
        if str(kind) == "extension<arrow.uuid>" and of.type.name == "uuid":
            found: list[Any] = column.to_pylist()
            return found
        return _objects(column.storage, of, row)
    if types.is_nested(kind) or (of.type.name == "json" and not is_plain):
        try:
            return [nested_value(each) for each in column]
        except conversion.OutOfRange as error:
            raise InvalidEntryError(f"column {of.name!r}: {error}") from error
    if isinstance(of.type, Fixed) and types.is_floating(kind):
        numbers: list[Any] = column.to_pylist()
        return numbers
    found = values(column, of.name, row)
    texts = list(map(_encoded, found if isinstance(found, list) else found.to_pylist()))
    if kind == pa.time64("ns"):  # whole microseconds are as any others
        return [None if each is None else each.removesuffix(b"000") for each in texts]
    return texts


def _encoded(value: Any) -> Any:
    """A value as bytes, of which each type reads its text."""
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode("utf-8", "surrogatepass")


_Together: TypeAlias = Callable[[Any, ColumnType], Any]


def _together(column: Any, kind: ColumnType) -> Any:
    """The texts of a whole column, as an array or a list; None if it must be looked at value by
    value."""
    import pyarrow as pa

    make = _TOGETHER.get(kind.name)
    if make is None:
        make = _fixed if isinstance(kind, Fixed) else _enum if isinstance(kind, Enum) else None
    if make is None or isinstance(column.type, pa.BaseExtensionType):
        return None
    try:
        found = make(column, kind)
        if found is None and is_text(column.type):
            return _from_text(column, kind, make)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, conversion.OutOfRange):
        return None
    return found


def _from_text(column: Any, kind: ColumnType, make: _Together) -> Any:
    """Texts whose values have these very texts, which is so of all that was written by a schema. Of
    doubles others, too: where they are numbers at all, Arrow reads them as Python does."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type != pa.string():
        column = column.cast(pa.string())
    told = codec().canonical_texts(column, kind.name)
    if told is not None:
        return told
    target = arrow_type_of(kind)
    if target == pa.string():
        return None
    found = make(conversion.converter(target)(column), kind)
    if found is None:
        return None
    if not isinstance(found, pa.Array):
        found = pa.array(found, pa.int64()) if isinstance(kind, Whole) else pa.array(found)
    same = pc.equal(column, found.cast(pa.string()))
    if not same.false_count:
        return column
    others = column.filter(pc.invert(same))
    is_double = kind.name == "double"
    if is_double and not pc.match_substring_regex(others, _DOUBLE, ignore_case=True).false_count:
        return found
    return None


def _bool(column: Any, _kind: ColumnType) -> Any:
    import pyarrow as pa

    return column.cast(pa.string()) if pa.types.is_boolean(column.type) else None


def _whole(column: Any, kind: ColumnType) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_integer(column.type):
        return None
    assert isinstance(kind, Whole)
    ends = pc.min_max(column)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is not None and not -kind.most - 1 <= least <= most <= kind.most:
        return None
    return column


def _double(column: Any, _kind: ColumnType) -> Any:
    import pyarrow as pa

    types = pa.types
    if types.is_integer(column.type):  # of large ones the last digits are lost, as to Python
        return double_texts(column.cast(pa.float64(), safe=False))
    if types.is_floating(column.type):
        return double_texts(column.cast(pa.float64()))
    return None


def double_texts(column: Any) -> Any:
    """Numbers of 64 bits as the shortest texts, as Arrow writes them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = codec().double_texts(column)
    if texts.null_count == column.null_count:
        return texts
    others = pc.and_(texts.is_null(), column.is_valid())
    if 2 * others.true_count > len(column):
        return column.cast(pa.string())
    return pc.replace_with_mask(texts, others, column.filter(others).cast(pa.string()))


def _fixed(column: Any, kind: ColumnType) -> Any:
    import pyarrow as pa

    assert isinstance(kind, Fixed)
    if pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(20, 0))
    if not pa.types.is_decimal(column.type):
        return None
    column = column.cast(pa.decimal128(kind.digits, kind.scale))
    if kind.scale <= PLAIN_SCALE_MAX:
        return column.cast(pa.string())
    return [None if each is None else f"{each:f}" for each in column.to_pylist()]


def _string(column: Any, _kind: ColumnType) -> Any:
    import pyarrow as pa

    if is_text(column.type):
        return column
    return column.cast(pa.string()) if is_binary(column.type) else None


def _binary(column: Any, _kind: ColumnType) -> Any:
    return column if is_binary(column.type) else None


def _date(column: Any, _kind: ColumnType) -> Any:
    import pyarrow as pa

    return conversion.time_text(column) if pa.types.is_date(column.type) else None


def _timestamp(column: Any, _kind: ColumnType) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_timestamp(column.type):
        return None
    unit = column.type.unit
    column = column.cast(pa.timestamp(unit, "UTC"))  # without a zone it is in UTC
    conversion.check_years(column)
    if unit == "ns":
        text = conversion.time_text(column)
        return pc.binary_join_element_wise(pc.utf8_slice_codeunits(text, 0, _MICROSECONDS), "Z", "")
    return conversion.time_text(column.cast(pa.timestamp("us", "UTC")))


def _time(column: Any, _kind: ColumnType) -> Any:
    import pyarrow as pa

    if not pa.types.is_time(column.type):
        return None
    return times(column.cast(pa.time64("us")))


def _uuid(column: Any, _kind: ColumnType) -> Any:
    import pyarrow.compute as pc

    if is_text(column.type) and not pc.match_substring_regex(column, _UUID).false_count:
        return column
    return None


def _enum(column: Any, kind: ColumnType) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    assert isinstance(kind, Enum)
    if not is_text(column.type):
        return None
    texts = column.cast(pa.string())
    known = pc.is_in(texts, value_set=pa.array([*kind.values, None], pa.string()))
    return None if known.false_count else texts


_TOGETHER: dict[str, _Together] = {
    "bool": _bool,
    "int": _whole,
    "long": _whole,
    "double": _double,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "time": _time,
    "uuid": _uuid,
}
