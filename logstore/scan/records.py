"""An entry for JSON, faithful.

Invariants: JSON gives the bytes back exactly. An entry is ``{"id", "fields": {..}}`` when all of it
is UTF-8 and no field name repeats, ``{"id", "pairs": [[field, value], ..]}`` when one does, and
``{"id", "pairs_base64": [..]}`` when anything is not UTF-8.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any


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


def in_base64(raw: bytes) -> str:
    """Bytes as text."""
    return b64encode(raw).decode("ascii")
