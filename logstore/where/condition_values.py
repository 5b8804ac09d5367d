"""Values that are compared, as they are read of what is stored.

A column with a type is read by it. Without one, what is stored is read as what it is compared
with: as a number, a moment, or as it is. The same holds for what stands in JSON. What cannot be
read so is null, as it is in a scan.

Invariants: where a scan of Arrow casts a text, `loose` reads the same value of it, or null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from math import inf, isnan
from typing import Any, Final

from logstore.schema.column_types import (
    BINARY,
    BOOL,
    DATE,
    DOUBLE,
    JSON,
    STRING,
    TIME,
    TIMESTAMP,
    ColumnType,
    Uuid,
)

_NUMBER = re.compile(
    rb"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan(?:\([a-z0-9_]*\))?)",
    re.IGNORECASE,
)
_DAY = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HOUR = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}")


def moment_of(text: bytes) -> datetime:
    """A moment, or a day, which is its beginning in UTC. ValueError."""
    if _DAY.fullmatch(text) is not None:
        text += b" 00:00"
    return TIMESTAMP.read(text)


def _number(text: bytes) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("is no number")
    return float(text.partition(b"(")[0])


def _moment(text: bytes) -> datetime:
    return moment_of(text + b":00" if _HOUR.fullmatch(text) is not None else text)


def _text(text: bytes) -> str:
    return text.decode("utf-8", "replace")


_LOOSE: Final[dict[ColumnType, Callable[[bytes], Any]]] = {
    DOUBLE: _number,
    STRING: _text,
    BOOL: BOOL.read,
    TIMESTAMP: _moment,
    DATE: DATE.read,
    TIME: TIME.read,
    BINARY: BINARY.read,
}


def loose(kind: ColumnType) -> Callable[[bytes], Any]:
    """Reads what is stored in a stream without a schema as a type; ValueError."""
    return _LOOSE[kind]


def strict(kind: ColumnType) -> Callable[[bytes], Any]:
    """Reads what is stored in a column of a type, as it is compared; ValueError."""
    if isinstance(kind, Uuid):
        return lambda text: str(kind.read(text))
    return kind.read


def comparable(value: Any) -> Any:
    """A value whose order is that of the rule: NaN equals NaN, and is above all numbers."""
    if isinstance(value, float):
        return (1, 0.0) if isnan(value) else (0, value)
    return value


# -- JSON -------------------------------------------------------------------------------------
def parsed_json(text: bytes) -> Any:
    """The value of a JSON text; None if it is none."""
    try:
        return JSON.read(text)
    except ValueError:
        return None


def step_into(value: Any, path: tuple[str | int, ...]) -> Any:
    """What stands at the end of a path; None if nothing does."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step] if step < len(value) else None
        else:
            return None
    return value


def picked(value: Any, kind: ColumnType) -> Any:
    """A value of JSON, or of a codec, as a type; None if it is none of that. As BINARY: whether it
    is there."""
    if kind == BINARY:
        return None if value is None else b""
    if kind == DOUBLE:
        return _float(value)
    wanted: type = _KINDS[kind]
    if isinstance(value, str) and wanted is not str:
        try:
            return (
                _LOOSE[kind](value.encode("utf-8", "surrogatepass")) if wanted is not bool else None
            )
        except ValueError:
            return None
    if not isinstance(value, wanted) or (wanted is date and isinstance(value, datetime)):
        return None
    if isinstance(value, datetime):
        return None if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value


_KINDS: Final[dict[ColumnType, type]] = {
    STRING: str,
    BOOL: bool,
    TIMESTAMP: datetime,
    DATE: date,
    TIME: time,
}


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf
