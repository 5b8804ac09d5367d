"""Columns of text to columns of the types that a user asks for; times of Arrow to text.

A text that is not of the wanted type becomes null. An empty text is null in every type but text. A
text that is finer than the wanted unit of time is cut to it, as Spark and DuckDB do.

Times become text in UTC: the offset of a zone can have seconds, for which the text has no room, and
the years of a zone end before or after those of UTC. A time without a zone is written without one.

Invariants: batches have exactly the types of ``schema`` and as many rows as were gathered, also
without any column. What a text becomes does not depend on the texts beside it: a batch that does
not convert as a whole is halved until each value is converted alone, in the same way. A time
becomes text, and that text the same time; a time outside of the years 1 to 9999 is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any

from logstore.codec import codec
from logstore.errors import UsageError
from logstore.scan.record_batches import ColumnSource
from logstore.scan.scan_columns import Target, source_of
from logstore.schema.column_types import DECIMAL_DIGITS_MAX, TIMESTAMP

Decode = Callable[[bytes], Any]


class Shape:
    """Turns gathered batches into those that are asked for. ``strict``: a value that is not of its
    type is a UsageError, and not null. ``decode``: gives the value of what a codec stored, None for
    what it did not store."""

    def __init__(
        self, targets: Sequence[Target], *, strict: bool = False, decode: Decode | None = None
    ) -> None:
        import pyarrow as pa

        self._targets = targets
        self._strict = strict
        self._decode = decode
        self.sources = list(self._sources())
        self.schema = pa.schema([pa.field(each.name, each.type, each.nullable) for each in targets])

    def _sources(self) -> Iterator[ColumnSource]:
        for target in self._targets:
            found = source_of(target)
            assert found is not None, target
            is_coded = self._decode is not None and not target.standard
            yield found._replace(binary=True) if is_coded else found

    def batch(self, gathered: Any) -> Any:
        """The batch with the types of the schema."""
        return self.made(
            gathered,
            [
                self.array(array, target)
                for array, target in zip(gathered.columns, self._targets, strict=False)
            ],
        )

    def made(self, gathered: Any, arrays: list[Any]) -> Any:
        """A batch of arrays; without any, as many rows as were gathered."""
        import pyarrow as pa

        if not arrays:
            return gathered.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def array(self, array: Any, target: Target) -> Any:
        """A column as its type."""
        import pyarrow as pa

        decode = self._decode
        if decode is not None and not target.standard:
            return self._decoded(array, target, decode)
        if target.read is not None:
            return _read_each(array, target.read, target.type)
        if array.type == target.type:
            return array
        if not target.standard:
            return cast(array, target.type, target.name, strict=self._strict)
        if target.standard == "fields":
            inner = list(target.type.value_type)
            named = [array.values.field(at) for at in range(2)]
            pairs = pa.StructArray.from_arrays(named, fields=inner)
            return pa.ListArray.from_arrays(array.offsets, pairs, type=target.type)
        return array.cast(target.type)

    def _decoded(self, array: Any, target: Target, decode: Decode) -> Any:
        """A column of what a codec stored as its type."""
        import pyarrow as pa

        make = target.of_value
        if make is not None:
            return _read_each(array, lambda stored: make(decode(stored)), target.type)
        if pa.types.is_binary(target.type):
            return _read_each(array, lambda stored: value_bytes(decode(stored)), target.type)
        texts = _read_each(array, lambda stored: value_text(decode(stored)), pa.string())
        return cast(texts, target.type, target.name, strict=self._strict)


def value_bytes(value: Any) -> bytes | None:
    """What a codec gives as text, in the form in which streams without one have it: text and bytes
    as they are, numbers and moments as a schema writes them, what is nested as JSON."""
    if isinstance(value, bytes):
        return value
    text = value_text(value)
    return None if text is None else text.encode("utf-8", "replace")


def value_text(value: Any) -> str | None:
    """The same, where what is no UTF-8 is replaced."""
    match value:
        case None:
            return None
        case str():
            return value.encode("utf-8", "replace").decode()
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.decode("utf-8", "replace")
        case datetime() | date() if not isinstance(value, datetime) or value.tzinfo is None:
            return value.isoformat()
        case datetime():
            return TIMESTAMP.write(value).decode()
        case dict() | list() | tuple():
            return _JSON(_named(value)).encode("utf-8", "replace").decode()
        case _:
            return str(value)


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=value_text).encode


def _named(value: Any) -> Any:
    """A nested value, in which names of mappings are text."""
    if isinstance(value, dict):
        return {value_text(name) or "": _named(each) for name, each in value.items()}
    return [_named(each) for each in value] if isinstance(value, list | tuple) else value


def _read_each(array: Any, read: Callable[[bytes], Any], target: Any) -> Any:
    """What is made of each value of an array of bytes, of equal ones once."""
    import pyarrow as pa

    coded = array.dictionary_encode()
    values = pa.array([read(each) for each in coded.dictionary.to_pylist()], target)
    return values.take(coded.indices)


def cast(array: Any, target: Any, column: str, *, strict: bool) -> Any:
    """A text array as ``target``; others become null, or are a UsageError if ``strict``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.type.equals(target):
        return array
    convert = converter(target)
    try:
        return convert(array)
    except pa.ArrowInvalid:
        pass
    coded = pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)
    coded = coded.dictionary_encode()
    values = _halve(pa, coded.dictionary, convert, target, column, strict)
    return values.take(coded.indices)


def malformed(array: Any, found: Any) -> Any:
    """Which values of a text array became null in ``found`` because they are not of its type.

    A boolean array without nulls; None if there is no such value.
    """
    import pyarrow.compute as pc

    if found.null_count == array.null_count:
        return None
    empty = pc.fill_null(pc.equal(array, ""), True)
    return pc.and_(pc.invert(empty), found.is_null())


def converter(target: Any) -> Callable[[Any], Any]:
    """What makes a type of text arrays; ArrowInvalid if a text is not of it."""
    import pyarrow as pa

    if pa.types.is_timestamp(target):
        return partial(parsed_times, target=target)
    if pa.types.is_time64(target):
        return partial(_times_of_day, target=target)
    if pa.types.is_decimal128(target):
        return partial(_decimals, target=target)
    return lambda array: array.cast(target)


def _halve(
    pa: Any, array: Any, convert: Callable[[Any], Any], target: Any, column: str, strict: bool
) -> Any:
    try:
        return convert(array)
    except pa.ArrowInvalid:
        pass
    if len(array) == 1:
        if strict:
            raise UsageError(
                f"a value of field {column!r} is no {target}: {array[0].as_py()[:100]!r}; read the "
                "column as string, or with mode=PERMISSIVE, which makes it null"
            )
        return pa.nulls(1, target)
    middle = len(array) // 2
    halves = (array.slice(0, middle), array.slice(middle))
    return pa.concat_arrays([_halve(pa, half, convert, target, column, strict) for half in halves])


A_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_YEAR_1, _YEAR_10000 = -62_135_596_800, 253_402_300_800  # seconds since 1970
_DAY_S = 86_400


def is_time(kind: Any) -> bool:
    """Whether values of a type are dates or timestamps."""
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


class OutOfRange(Exception):  # noqa: N818
    """A time that has no text. The caller names its column and row."""

    def __init__(self, place: int, why: str) -> None:
        super().__init__(why)
        self.place = place


def time_text(column: Any) -> Any:
    """Timestamps or dates as Arrow writes them, in UTC if they have a zone.

    Raises:
        OutOfRange: a value is not in the years 1 to 9999; its place.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    check_years(column)
    if pa.types.is_timestamp(kind):
        unit = kind.unit
        return codec().moment_texts(column, A_SECOND[unit], _DIGITS[unit], kind.tz is not None)
    return column.cast(pa.string())


def check_years(column: Any) -> None:
    """OutOfRange for a value of timestamps or dates that is not in the years 1 to 9999."""
    place = _outside(column)
    if place >= 0:
        kind = column.type
        value = column.cast(_number_type(kind))[place].as_py()
        raise OutOfRange(place, f"a {kind} of {value} is not in the years 1 to 9999")


def _number_type(kind: Any) -> Any:
    import pyarrow as pa

    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


def _outside(column: Any) -> int:
    """The first place whose value is not in the years 1 to 9999; -1: there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    numbers = column.cast(_number_type(kind))
    if pa.types.is_date32(kind):
        low, end = _YEAR_1 // _DAY_S, _YEAR_10000 // _DAY_S
    else:
        a_second = A_SECOND[kind.unit] if pa.types.is_timestamp(kind) else 1000
        low, end = _YEAR_1 * a_second, _YEAR_10000 * a_second
    ends = pc.min_max(numbers)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (least >= low and most < end):
        return -1
    return next(
        at
        for at, value in enumerate(numbers.to_pylist())
        if value is not None and not low <= value < end
    )


def time_milliseconds(column: Any) -> list[int]:
    """Timestamps without null as milliseconds since 1970, rounded down."""
    import pyarrow as pa

    a_second = A_SECOND[column.type.unit]
    return [value * 1000 // a_second for value in column.cast(pa.int64()).to_pylist()]


def parsed_times(array: Any, target: Any) -> Any:
    """A text array as timestamps: with an offset, or without one, which is UTC.

    Raises:
        pyarrow.ArrowInvalid: a text is no timestamp of this kind.
    """
    import pyarrow as pa

    try:
        return _parsed_zone(array, target)
    except pa.ArrowInvalid:
        return _parsed_zone(_cut_digits(array, _DIGITS[target.unit]), target)


def _parsed_zone(array: Any, target: Any) -> Any:
    import pyarrow as pa

    if target.tz is None:
        return array.cast(target)
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        return array.cast(pa.timestamp(target.unit)).cast(target)


def _times_of_day(array: Any, target: Any) -> Any:
    """A text array as times of day, which Arrow reads as parts of moments only."""
    import pyarrow as pa
    import pyarrow.compute as pc

    moments = pc.binary_join_element_wise("1970-01-01", array, " ")
    return moments.cast(pa.timestamp(target.unit)).cast(target)


_DECIMAL = re.compile(r"([+-]?)([0-9]*)(\.?)([0-9]*)(?:[eE]([+-]?)([0-9]+))?")
_EXPONENT_DIGITS_MAX = 10  # a larger exponent has no text with so many digits


def _decimals(array: Any, target: Any) -> Any:
    """A text array as decimals. Texts of more digits than the type has, and those with an exponent,
    are written as Arrow can read them first: of these it makes other numbers (its own wrap around
    at 128 bits), or reads outside of its tables."""
    import pyarrow as pa
    import pyarrow.compute as pc

    digits = DECIMAL_DIGITS_MAX - target.scale
    longest = pc.max(pc.binary_length(array)).as_py() or 0
    if longest <= digits and not any(
        pc.any(pc.match_substring(array, each)).as_py() for each in "eE"
    ):
        return array.cast(target)
    pattern = rf"^[+-]?0*\d{{0,{digits}}}(\.\d{{0,{target.scale}}})?$"
    is_plain = pc.fill_null(pc.match_substring_regex(array, pattern), True)
    if not pc.all(is_plain).as_py():
        others = array.filter(pc.invert(is_plain)).to_pylist()
        plain = pa.array([_plain_decimal(each, target) for each in others], array.type)
        array = pc.replace_with_mask(array, pc.invert(is_plain), plain)
    return array.cast(target)


def _plain_decimal(text: str, target: Any) -> str:
    """The text of a decimal number with as many digits behind the point as its type has."""
    import pyarrow as pa

    found = _DECIMAL.fullmatch(text)
    if found is None or not (found[2] or found[4]):
        raise pa.ArrowInvalid("no decimal number")
    digits = (found[2] + found[4]).lstrip("0")
    significant = digits.rstrip("0")
    exponent = int((found[6] or "0").lstrip("0")[:_EXPONENT_DIGITS_MAX] or "0")
    power = len(digits) - len(significant) - len(found[4])
    power += -exponent if found[5] == "-" else exponent
    zeros = power + target.scale
    if significant and (zeros < 0 or len(significant) + zeros > target.precision):
        raise pa.ArrowInvalid("the number has more digits than its type")
    unscaled = (significant + "0" * zeros if significant else "").zfill(target.scale + 1)
    point = len(unscaled) - target.scale
    return f"{found[1]}{unscaled[:point]}.{unscaled[point:]}"


def _cut_digits(array: Any, digits: int) -> Any:
    """Texts of times with at most so many digits behind the second."""
    import pyarrow.compute as pc

    kept = rf"\.\d{{{digits}}}" if digits else ""
    more = rf"\d{{1,{9 - digits}}}" if digits else r"\.\d{1,9}"
    pattern = rf"^(\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d{kept}){more}(Z|[+-]\d\d(?::?\d\d)?)?$"
    return pc.replace_substring_regex(array, pattern, r"\1\2")
