"""The schema of entries that are there: the narrowest types that all of their texts have.

A number with a zero before it is text, as a postal code is; so are the texts of two types. A field
that not every entry has is nullable. The order is that in which fields are met first.

Invariants: every entry that was looked at can be read by the schema that is found. One column is
kept a field, and no entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from logstore.errors import OptionError
from logstore.schema import column_types
from logstore.schema.column_types import BINARY, STRING, ColumnType
from logstore.schema.stream_schema import COLUMNS_MAX, Column, Schema

# In the order in which they are tried; what nothing reads is text, or else bytes.
_CANDIDATES: tuple[ColumnType, ...] = (
    column_types.BOOL,
    column_types.LONG,
    column_types.DOUBLE,
    column_types.DATE,
    column_types.TIMESTAMP,
    column_types.TIME,
    column_types.UUID_TYPE,
    column_types.JSON,
)
_NO_TEXTS = {column_types.BOOL, column_types.LONG, column_types.DOUBLE, column_types.JSON}


class _Seen:
    """What one field was seen to hold."""

    def __init__(self) -> None:
        self.count = 0
        self.candidates = list(_CANDIDATES)
        self.text = True  # all of it is UTF-8

    def look(self, text: bytes | str) -> None:
        """Look at one more value; a str is a text for certain, and no number."""
        self.count += 1
        if isinstance(text, str):
            self.candidates = [each for each in self.candidates if each not in _NO_TEXTS]
            text = text.encode("utf-8", "surrogatepass")
        self.candidates = [each for each in self.candidates if _reads(each, text)]
        if self.text and not self.candidates:
            self.text = _reads(STRING, text)

    @property
    def type(self) -> ColumnType:
        """The narrowest type."""
        return self.candidates[0] if self.candidates else STRING if self.text else BINARY


def _reads(kind: ColumnType, text: bytes) -> bool:
    """Whether a text would be taken for a value of a type by somebody who reads it."""
    if kind is column_types.BOOL and text in {b"0", b"1"}:
        return False
    if kind is column_types.JSON and text[:1] not in {b"{", b"["}:
        return False
    if kind in {column_types.LONG, column_types.DOUBLE} and text.lstrip(b"-").startswith(b"0"):
        digits = text.lstrip(b"-")
        if len(digits) > 1 and digits[1:2].isdigit():
            return False
    try:
        value = kind.read(text)
    except ValueError:
        return False
    if kind is not column_types.DOUBLE:
        return True
    if value - value != 0:  # 'nan' and 'inf' are words
        return False
    # a whole number of which a double would lose digits is a name of something
    return not text.lstrip(b"-").isdigit() or int(value) == int(text)


def infer(entries: Iterable[Sequence[bytes | Any]]) -> Schema:
    """The schema of entries.

    Args:
        entries: of each its names and texts by turns; of a repeated name all count. A str is a
            text that is no number, and not nested.

    Raises:
        OptionError: there is no entry, or there are more than ``COLUMNS_MAX`` fields; or two whose
            names differ by case only.
    """
    fields: dict[bytes, _Seen] = {}
    count = 0
    for flat in entries:
        count += 1
        for name, text in dict(zip(flat[::2], flat[1::2], strict=True)).items():
            seen = fields.get(name)
            if seen is None:
                seen = fields[name] = _Seen()
                if len(fields) > COLUMNS_MAX:
                    raise OptionError(
                        f"the entries have more than {COLUMNS_MAX} fields: set a schema of those "
                        "that matter, with '*' at its end"
                    )
            seen.look(text)
    if not fields:
        raise OptionError("there is no entry to infer a schema from: set one")
    columns = [
        Column(name.decode("utf-8", "surrogateescape"), seen.type, seen.count < count)
        for name, seen in fields.items()
    ]
    return Schema(columns)


def wider(schema: Schema, found: Schema) -> Schema:
    """A schema that reads what two others do, with the columns of both: one of two types is text. A
    column that the first one does not have may be null.

    Raises:
        OptionError: there are too many columns, or two whose names differ by case only.
    """
    columns: list[Column] = []
    for column in schema.columns:
        other = found.column(column.field) or column
        kind = _common(column.type, other.type)
        nullable = column.nullable or other.nullable
        columns.append(column._replace(type=kind, nullable=nullable))
    if not schema.is_open:
        new = (each for each in found.columns if schema.column(each.field) is None)
        columns += [each._replace(nullable=True) for each in new]
    return Schema(columns, is_open=schema.is_open)


def _common(one: ColumnType, other: ColumnType) -> ColumnType:
    for kind in (one, other, STRING):
        if kind.reads_all_of(one) and kind.reads_all_of(other):
            return kind
    return BINARY
