"""Texts of columns as they are compared: the key of a text has the order of its value.

A text has a key only if it surely is the one text of a value of its column, so that every reader
reads this value of it. Texts of more than TEXT_MAX_BYTES have none, and NaN and what is infinite.

Invariants: compiled code tells the same of each text (``_column_ranges.pxi``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import date, time
from functools import partial
from math import isinf
from typing import Final, TypeAlias

from logstore.schema.column_types import ColumnType, Enum, Fixed
from logstore.tuples import NamedTuple

TEXT_MAX_BYTES: Final = 64
DIGITS_MAX: Final = 18  # of a decimal, as a whole number of 64 bits
COLUMNS_MAX: Final = 256
_WHOLE = re.compile(rb"-?[1-9][0-9]*|0")
_DOUBLE = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DOUBLE_MAX_BYTES: Final = 32
_DATE = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(rb"[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}")
Key: TypeAlias = "int | float | bytes"


class RangedColumn(NamedTuple):
    """A column whose values are compared.

    ``kind``: the name of its type without what stands in brackets. ``digits``, ``scale``: of a
    decimal. ``texts``: those of an enum.
    """

    field: bytes
    kind: str
    digits: int = 0
    scale: int = 0
    texts: Collection[bytes] = ()


class ColumnRange(NamedTuple):
    """``nulls``: how many entries lack the column. ``least``, ``most``: texts of values; None: all
    entries lack it."""

    nulls: int
    least: bytes | None
    most: bytes | None


def kind_of(of: ColumnType) -> str:
    """The name of a type without what stands in brackets."""
    return of.name.partition("(")[0]


def ranged_column(field: bytes, of: ColumnType) -> RangedColumn | None:
    """A column of a type; None if values of that are not compared."""
    kind = kind_of(of)
    if kind not in KINDS:
        return None
    if isinstance(of, Fixed):
        return RangedColumn(field, kind, of.digits, of.scale)
    return RangedColumn(field, kind, texts=of.texts if isinstance(of, Enum) else ())


def filter_text(column: RangedColumn, text: bytes) -> bytes | None:
    """A text as filters have it; None if it is not surely the one text of a value. One that is too
    long for a key is."""
    if column.kind == "string":
        return text if _is_utf8(text) else None
    return None if key_of(column)(text) is None else text


def key_of(column: RangedColumn) -> Callable[[bytes], Key | None]:
    """What gives the key of a text: None if it is not surely the one text of a value."""
    match column.kind:
        case "int":
            return partial(_whole, 31)
        case "long":
            return partial(_whole, 63)
        case "double":
            return _double
        case "decimal":
            return partial(_decimal, column.digits, column.scale)
        case "enum":
            return partial(_one_of, column.texts)
        case kind:
            return _KEYS[kind]


def _whole(bits: int, text: bytes) -> int | None:
    if len(text) > 20 or _WHOLE.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -1 << bits <= number < 1 << bits else None


def _double(text: bytes) -> float | None:
    if len(text) > _DOUBLE_MAX_BYTES or _DOUBLE.fullmatch(text) is None:
        return None
    number = float(text)
    return None if isinf(number) else number


def _decimal(digits: int, scale: int, text: bytes) -> int | None:
    """The number of units of the last place."""
    whole, point, rest = text.removeprefix(b"-").partition(b".")
    number = whole + rest
    if not number.isdigit() or bool(point) != bool(scale) or len(rest) != scale:
        return None
    if not 0 < len(number) <= DIGITS_MAX or (whole[:1] == b"0" and len(whole) > 1) or not whole:
        return None
    units = int(number)
    if units >= 10**digits or (text[:1] == b"-" and not units):
        return None
    return -units if text[:1] == b"-" else units


def _bool(text: bytes) -> bytes | None:
    return text if text in (b"true", b"false") else None


def _string(text: bytes) -> bytes | None:
    return text if len(text) <= TEXT_MAX_BYTES and _is_utf8(text) else None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _one_of(texts: Collection[bytes], text: bytes) -> bytes | None:
    return text if len(text) <= TEXT_MAX_BYTES and text in texts else None


def _date(text: bytes) -> bytes | None:
    if _DATE.fullmatch(text) is None:
        return None
    try:
        date.fromisoformat(text.decode())
    except ValueError:
        return None
    return text


def _time(text: bytes) -> bytes | None:
    if _TIME.fullmatch(text) is None:
        return None
    try:
        time.fromisoformat(text.decode())
    except ValueError:
        return None
    return text


def _timestamp(text: bytes) -> bytes | None:
    if len(text) != 27 or text[10:11] != b" " or text[26:] != b"Z":
        return None
    return text if _date(text[:10]) and _time(text[11:26]) else None


def _uuid(text: bytes) -> bytes | None:
    return None if _UUID.fullmatch(text) is None else text


_KEYS: Final[dict[str, Callable[[bytes], Key | None]]] = {
    "bool": _bool,
    "string": _string,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "uuid": _uuid,
}
FILTERED_KINDS: Final = (
    "int",
    "long",
    "string",
    "enum",
    "uuid",
)  # whose equal values are equal texts
KINDS: Final = ("int", "long", "double", "decimal", "enum", *_KEYS)
