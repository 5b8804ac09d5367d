"""Moments of Arrow as text, and text as moments.

Text of a moment is in UTC: an offset of a zone can have seconds, which the text has no room for,
and years of a zone end before or behind those of UTC. What has no zone is written without one.

Invariants: a moment becomes text, and that text the same moment; one outside of the years 1 to 9999
is refused, and never written as another one. Text that is finer than the
wanted unit is cut to it, as Spark and DuckDB do.
"""

from __future__ import annotations

from typing import Any

A_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_YEAR_1, _YEAR_10000 = -62_135_596_800, 253_402_300_800  # seconds since 1970
_DAY_S = 86_400


def is_moment(kind: Any) -> bool:
    """Whether values of a type are days, or moments."""
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


class OutOfRange(Exception):  # noqa: N818
    """A moment that has no text; who knows its column and row says so."""

    def __init__(self, place: int, why: str) -> None:
        super().__init__(why)
        self.place = place


def text(column: Any) -> Any:
    """Timestamps or dates as Arrow writes them, in UTC if they have a zone.

    Raises:
        OutOfRange: a value is not in the years 1 to 9999; its place.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    place = _outside(column)
    if place >= 0:
        value = column.cast(_number(kind))[place].as_py()
        raise OutOfRange(place, f"a {kind} of {value} is not in the years 1 to 9999")
    return column.cast(pa.string())


def _number(kind: Any) -> Any:
    import pyarrow as pa

    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


def _outside(column: Any) -> int:
    """The first place whose value is not in the years 1 to 9999; -1: there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    numbers = column.cast(_number(kind))
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


def milliseconds(column: Any) -> list[int]:
    """Timestamps without null as milliseconds since 1970, rounded down."""
    import pyarrow as pa

    a_second = A_SECOND[column.type.unit]
    return [value * 1000 // a_second for value in column.cast(pa.int64()).to_pylist()]


def parsed(array: Any, target: Any) -> Any:
    """A text array as timestamps: with an offset, or without one, which is UTC.

    Raises:
        pyarrow.ArrowInvalid: a text is no timestamp of this kind.
    """
    import pyarrow as pa

    try:
        return _parsed(array, target)
    except pa.ArrowInvalid:
        return _parsed(_cut(array, _DIGITS[target.unit]), target)


def _parsed(array: Any, target: Any) -> Any:
    import pyarrow as pa

    if target.tz is None:
        return array.cast(target)
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        return array.cast(pa.timestamp(target.unit)).cast(target)


def _cut(array: Any, digits: int) -> Any:
    """Texts of moments with so many digits behind the second at most."""
    import pyarrow.compute as pc

    kept = rf"\.\d{{{digits}}}" if digits else ""
    more = rf"\d{{1,{9 - digits}}}" if digits else r"\.\d{1,9}"
    pattern = rf"^(\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d{kept}){more}(Z|[+-]\d\d(?::?\d\d)?)?$"
    return pc.replace_substring_regex(array, pattern, r"\1\2")
