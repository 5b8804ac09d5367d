"""The forms of stored bytes outside: readable text, faithful JSON.

Invariants: JSON gives the bytes back exactly. An entry is ``{"id", "fields": {..}}`` when all of it
is UTF-8 and no field name repeats, ``{"id", "pairs": [[field, value], ..]}`` when one does, and
``{"id", "pairs_base64": [..]}`` when anything is not UTF-8. Text is for eyes: what is not
printable, and the backslash itself, becomes a backslash escape.
"""

from __future__ import annotations

import shlex
from base64 import b64encode
from typing import Any

from logstore.entry import Entry


def readable(raw: bytes) -> str:
    """Bytes as printable text, unambiguous by its backslash escapes."""
    text = raw.decode("utf-8", "surrogateescape")
    return text if text.isprintable() and "\\" not in text else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def entry_line(entry: Entry[bytes]) -> str:
    """An entry on one line: its ID, then field=value, quoted as a shell would want them."""
    parts = (f"{readable(name)}={readable(value)}" for name, value in entry.pairs)
    return " ".join([str(entry.id), *(shlex.quote(part) for part in parts)])


def entry_object(entry: Entry[bytes]) -> dict[str, Any]:
    """An entry for JSON, in the first of the three forms that is faithful."""
    pairs = entry.pairs
    try:
        text = [(name.decode(), value.decode()) for name, value in pairs]
    except UnicodeDecodeError:
        packed = [[_base64(name), _base64(value)] for name, value in pairs]
        return {"id": str(entry.id), "pairs_base64": packed}
    fields = dict(text)
    if len(fields) < len(text):
        return {"id": str(entry.id), "pairs": [list(pair) for pair in text]}
    return {"id": str(entry.id), "fields": fields}


def name_object(name: bytes) -> dict[str, str]:
    """A stream's name for JSON: ``name``, or ``name_base64`` when it is no UTF-8."""
    try:
        return {"name": name.decode()}
    except UnicodeDecodeError:
        return {"name_base64": _base64(name)}


def _base64(raw: bytes) -> str:
    return b64encode(raw).decode("ascii")
