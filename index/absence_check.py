"""Whether another record knows a name: asked before a stream of that name is made.

A row that damage made unfindable looks like one that never was. A stream made in its place would
take the name, and leave the other without one, in the log as well. So a name counts as absent only
if its second record is absent too, and if the rows beside both places are right and in order: both
records may be gone with one page.

Invariants: reads only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logstore.errors import CorruptionError
from logstore.index import keys
from logstore.index.keys import StreamRecord
from logstore.row_seal import unseal

_LOST = "the index lost a name: delete its directory and reopen"


def confirm_absent(
    txn: Any, names: Any, name: bytes, record: Callable[[int], StreamRecord | None]
) -> None:
    """CorruptionError if anything says that the name exists, or cannot be believed."""
    with txn.cursor(db=names) as cursor:
        if _neighbours(cursor, keys.name_key(name)) is not None:
            raise CorruptionError(_LOST)  # it has a number, and that has no record
        key = keys.twin_key(name)
        value = _neighbours(cursor, key)
    for at in range(0, len(value or b""), 8):
        holder = record(int.from_bytes((value or b"")[at : at + 8], "little"))
        if holder is None or holder.name == name:
            raise CorruptionError(_LOST)


def _neighbours(cursor: Any, key: bytes) -> bytes | None:
    """The value under a key; the row there or behind, and the row before, are right."""
    value: bytes | None = None
    behind = cursor.set_range(key)
    if behind:
        there, data = cursor.item()
        value = unseal(there, data)
        if there != key:
            value = None
    if cursor.prev() if behind else cursor.last():
        before, data = cursor.item()
        unseal(before, data)
        if before >= key:
            raise CorruptionError("the index lost its order: delete its directory and reopen")
    return value
