"""Columns and their types as text, such as ``temp double, hum long``: what a command line can say.

A name stands bare, or in "double quotes" or `backticks` with its own quote doubled. Behind it is a
type, as Spark, SQL or Arrow call it, or none: then a field is text, and a standard column what it
is. Invariant: what cannot be understood is refused as a whole, with the place.
"""

from __future__ import annotations

import re
from typing import Any

from logstore.errors import OptionError

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


def columns(text: str) -> dict[str, Any]:
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
        found[name] = None if match["type"] is None else _type(name, match["type"].lower())
        at = match.end()
    return found


def _type(name: str, text: str) -> Any:
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
