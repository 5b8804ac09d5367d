"""Entries as JSON that keeps every byte: one entry as an object, or many as lines.

Invariants: the JSON gives back the bytes exactly. An entry is ``{"id", "fields": {..}}`` when all
of it is UTF-8 and no field name repeats, ``{"id", "pairs": [[field, value], ..]}`` when one does,
and ``{"id", "pairs_base64": [..]}`` when anything is not UTF-8. Its line is what ``json.dumps``
makes of that object.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring as quoted
from typing import Any, TypeAlias

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


def in_base64(raw: bytes) -> str:
    """Bytes as text."""
    return b64encode(raw).decode("ascii")
