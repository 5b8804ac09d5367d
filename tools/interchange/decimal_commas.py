"""Numbers with a decimal comma in CSV: which columns have them, and their texts with a point.

Invariants: a column is found only if all of its values are such numbers, and none can be one with
its thousands apart: what is "1,234" to one is "1.234" to another. In such a column a point is no
decimal point, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from logstore.errors import SchemaError, shown
from logstore.schema import schema_inference
from logstore.schema.column_types import DOUBLE, STRING
from logstore.schema.stream_schema import Schema

NUMBERS = ("double", "decimal", "int", "long")  # types whose texts may have one
Columns: TypeAlias = Sequence[tuple[bytes, Sequence[bytes]]]  # of the first rows: fields, texts
_NUMBER = r"-?(?:[0-9]+(?:,[0-9]*)?|,[0-9]+)(?:[eE][+-]?[0-9]+)?"
_WHOLE = re.compile(_NUMBER.encode())
_THOUSANDS = re.compile(rb"-?[1-9][0-9]{0,2},[0-9]{3}")


def _is_found(texts: Sequence[bytes], *, surely: bool = False) -> bool:
    """Whether the values of a column are numbers with a decimal comma; ``surely``: also where all
    could be numbers with their thousands apart."""
    with_comma = [text for text in texts if b"," in text]
    if not with_comma or not (surely or not all(map(_THOUSANDS.fullmatch, with_comma))):
        return False
    if not all(map(_WHOLE.fullmatch, texts)):
        return False
    pointed = ([b"c", text.replace(b",", b".")] for text in texts)
    (column,) = schema_inference.infer(pointed).columns
    return column.type is DOUBLE


def with_point(text: bytes) -> bytes:
    """A number with a point in place of its comma; what is none as it is. SchemaError for a number
    with a point."""
    if _WHOLE.fullmatch(text):
        return text.replace(b",", b".")
    if b"." in text:
        raise SchemaError(f"{shown(text.decode('utf-8', 'replace'))} has no decimal comma: "
                          "--decimal . reads a point")  # fmt: skip
    return text


def columns_with_point(cells: Any) -> Any:
    """The same of a column of Arrow. SchemaError."""
    import pyarrow.compute as pc

    if pc.any(pc.match_substring(cells, ".")).as_py():
        raise SchemaError("a number has no decimal comma")
    is_number = pc.match_substring_regex(cells, f"^(?:{_NUMBER})$")
    return pc.if_else(is_number, pc.replace_substring(cells, ",", "."), cells)


def of_numbers(schema: Schema) -> frozenset[bytes]:
    """The fields that may have them."""
    return frozenset(each.field for each in schema.columns if each.type.name.startswith(NUMBERS))


def found(columns: Columns, fields: frozenset[bytes]) -> frozenset[bytes]:
    """Which of some fields have them in the first rows."""
    return frozenset(field for field, texts in columns if field in fields and _is_found(texts))


def typed(columns: Columns, schema: Schema, *, surely: bool) -> tuple[Schema, frozenset[bytes]]:
    """The schema that was found in the first rows, with the types of such numbers, and the fields
    that have them; ``surely``: all numbers have a decimal comma."""
    commas = frozenset(
        field
        for field, texts in columns
        if (column := schema.column(field)) is not None
        and column.type is STRING
        and _is_found(texts, surely=surely)
    )
    now = [
        each._replace(type=DOUBLE)
        if each.field in commas
        else each._replace(type=STRING)
        if surely and each.type is DOUBLE  # by a point
        else each
        for each in schema.columns
    ]
    schema = Schema(now, is_open=schema.is_open)
    return schema, of_numbers(schema) if surely else commas
