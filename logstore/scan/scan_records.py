"""Entries as JSON that keeps every byte: one entry as an object, or many as lines.

Invariants: the JSON gives back the bytes exactly. An entry is ``{"id", "fields": {..}}`` when all
of it is UTF-8 and no field name repeats, ``{"id", "pairs": [[field, value], ..]}`` when one does,
and ``{"id", "pairs_base64": [..]}`` when anything is not UTF-8. Its line is what ``json.dumps``
makes of that object.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any, TypeAlias

from logstore.schema.column_types import JSON, Fixed

if TYPE_CHECKING:
    from logstore.schema.column_types import ColumnType
    from logstore.schema.stream_schema import Schema

# The ID of an entry, and its fields and values in turn; bytes that are not UTF-8 are lone
# surrogates in the text.
TextRow: TypeAlias = tuple[tuple[int, int], tuple[str, ...]]


def entry_object(id: str, pairs: Sequence[tuple[bytes, bytes]]) -> dict[str, Any]:
    """An entry, in the first of the three forms that is faithful."""
    try:
        text = [(name.decode(), value.decode()) for name, value in pairs]
    except UnicodeDecodeError:
        return {"id": id, "pairs_base64": [[in_base64(each) for each in pair] for pair in pairs]}
    fields = dict(text)
    if len(fields) < len(text):
        return {"id": id, "pairs": [list(pair) for pair in text]}
    return {"id": id, "fields": fields}


def json_lines(rows: Iterable[TextRow]) -> bytes:
    """The lines of entries. All lines are made by one format, in which only IDs and values differ.

    ``rows`` is iterated over twice if an entry is not UTF-8.
    """
    known: dict[tuple[str, ...], str] = {}
    lines: list[str] = []
    parts: list[int | str] = []
    names: tuple[str, ...] | None = None
    line = ""
    for id, flat in rows:
        if flat[::2] != names:
            names = flat[::2]
            line = known.get(names) or known.setdefault(names, _line(names))
        lines.append(line)
        parts += id
        parts += map(quoted, flat[1::2])
    try:
        return ("".join(lines) % tuple(parts)).encode()
    except UnicodeEncodeError:  # there is a lone surrogate: some bytes are not UTF-8
        return b"".join(map(_dumped, rows))


def _line(names: Sequence[str]) -> str:
    """The line of an entry with these fields, as a format for the ID's numbers and the values."""
    shown = [quoted(name).replace("%", "%%") for name in names]
    if len(set(names)) < len(names):
        return f'{{"id": "%d-%d", "pairs": [{", ".join(f"[{name}, %s]" for name in shown)}]}}\n'
    return f'{{"id": "%d-%d", "fields": {{{", ".join(f"{name}: %s" for name in shown)}}}}}\n'


def _dumped(row: TextRow) -> bytes:
    (ms, seq), flat = row
    raw = [part.encode("utf-8", "surrogateescape") for part in flat]
    pairs = list(zip(raw[::2], raw[1::2], strict=True))
    return json.dumps(entry_object(f"{ms}-{seq}", pairs), ensure_ascii=False).encode() + b"\n"


# -- of a stream with a schema ----------------------------------------------------------------
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBERS = frozenset({"int", "long"})


class TypedLines:
    """Makes lines in which values are what a schema says: numbers, true and false, and what is
    nested. A column that an entry lacks is null where import would give it a default. Whoever reads
    them by the schema again has the same entries. Null in a column of JSON is no value to them:
    such an entry is in ``pairs_base64``."""

    def __init__(self, schema: Schema) -> None:
        self._shown = {column.name: _shown_as(column.type) for column in schema.columns}
        self._nulls = [
            column.name
            for column in schema.columns
            if column.nullable and column.default is not None
        ]

    def __call__(self, rows: Iterable[TextRow]) -> bytes:
        """The lines of entries."""
        return b"".join(map(self._line, rows))

    def _line(self, row: TextRow) -> bytes:
        (ms, seq), flat = row
        names = flat[::2]
        nulls = [name for name in self._nulls if name not in names]
        try:
            values = [
                self._shown.get(name, quoted)(value)
                for name, value in zip(names, flat[1::2], strict=True)
            ]
            pairs = [
                *zip(map(quoted, names), values, strict=True),
                *((quoted(name), "null") for name in nulls),
            ]
            return _line_of(f"{ms}-{seq}", pairs, repeats=len(set(names)) < len(names))
        except (UnicodeEncodeError, _NullError):
            return _in_base64(row, nulls)


class CodedLines:
    """Makes lines in which values are what a codec gives: ``shown`` makes JSON of what it stored.
    An entry with what the codec did not store is in ``pairs_base64``."""

    def __init__(self, shown: Callable[[bytes], str]) -> None:
        self._shown = shown

    def __call__(self, rows: Iterable[TextRow]) -> bytes:
        """The lines of entries."""
        return b"".join(map(self._line, rows))

    def _line(self, row: TextRow) -> bytes:
        (ms, seq), flat = row
        names = flat[::2]
        try:
            values = [self._shown(_raw(stored)) for stored in flat[1::2]]
            pairs = list(zip(map(quoted, names), values, strict=True))
            return _line_of(f"{ms}-{seq}", pairs, repeats=len(set(names)) < len(names))
        except Exception:  # noqa: BLE001  whatever a codec raises, and a name that is no UTF-8
            return _in_base64(row, ())


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class _NullError(Exception):
    """A value of JSON that is null, which in a line stands for no value."""


def _shown_as(kind: ColumnType) -> Callable[[str], str]:
    if isinstance(kind, Fixed) or kind.name in _NUMBERS:
        return _number
    return {"bool": _bool, "double": _double, "json": _json}.get(kind.name, quoted)


# A dead letter can have any value: what is none of its type is text.
def _number(text: str) -> str:
    return text if _NUMBER.fullmatch(text) else quoted(text)


def _double(text: str) -> str:
    return "-0.0" if text == "-0" else _number(text)  # which Python reads as a whole 0


def _bool(text: str) -> str:
    return text if text in {"true", "false"} else quoted(text)


def _json(text: str) -> str:
    try:
        JSON.read(text.encode())
    except ValueError:
        return quoted(text)
    if text == "null":
        raise _NullError
    return text


def _line_of(id: str, pairs: Sequence[tuple[str, str]], *, repeats: bool) -> bytes:
    """A line of names and values that are JSON."""
    if repeats:
        inner = ", ".join(f"[{name}, {value}]" for name, value in pairs)
        return f'{{"id": "{id}", "pairs": [{inner}]}}\n'.encode()
    inner = ", ".join(f"{name}: {value}" for name, value in pairs)
    return f'{{"id": "{id}", "fields": {{{inner}}}}}\n'.encode()


def _in_base64(row: TextRow, nulls: Sequence[str]) -> bytes:
    (ms, seq), flat = row
    raw = [in_base64(part.encode("utf-8", "surrogateescape")) for part in flat]
    pairs: list[list[str | None]] = [list(pair) for pair in zip(raw[::2], raw[1::2], strict=True)]
    pairs += [[in_base64(name.encode()), None] for name in nulls]
    return json.dumps({"id": f"{ms}-{seq}", "pairs_base64": pairs}).encode() + b"\n"


def in_base64(raw: bytes) -> str:
    """Bytes as text."""
    return b64encode(raw).decode("ascii")
