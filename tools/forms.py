"""The forms of stored bytes outside: readable text, faithful JSON.

Invariants: JSON gives the bytes back exactly; scan.records says in which forms. Text is for eyes:
what is not printable, and the backslash itself, becomes a backslash escape.
"""

from __future__ import annotations

import shlex
from typing import Any

from logstore.api.entry import Entry
from logstore.scan import records


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
    return records.entry_object(str(entry.id), entry.pairs)


def name_object(name: bytes) -> dict[str, str]:
    """A stream's name for JSON: ``name``, or ``name_base64`` when it is no UTF-8."""
    try:
        return {"name": name.decode()}
    except UnicodeDecodeError:
        return {"name_base64": records.in_base64(name)}
