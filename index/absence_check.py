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

LOST = "the index lost a name: delete its directory and reopen"


def named(
    txn: Any, names: Any, name: bytes, record: Callable[[int], StreamRecord | None]
) -> StreamRecord | None:
    """The stream that has a name; None if there is none, for sure.

    ``record`` gives a stream by its number. CorruptionError if anything says that the name exists,
    or cannot be believed, and there is no stream.
    """
    with txn.cursor(db=names) as cursor:
        value = _neighbours(cursor, keys.name_key(name))
        if value is not None:
            holder = record(int.from_bytes(value, "little"))
            if holder is None or holder.name != name:
                raise CorruptionError(LOST)
            return holder
        twins = _neighbours(cursor, keys.twin_key(name)) or b""
    for at in range(0, len(twins), 8):
        holder = record(int.from_bytes(twins[at : at + 8], "little"))
        if holder is None or holder.name == name:
            raise CorruptionError(LOST)
    return None


def _neighbours(cursor: Any, key: bytes) -> bytes | None:
    """The value under a key; None if the rows before and behind its place are right, and no row is
    there."""
    behind = cursor.set_range(key)
    if behind:
        there, data = cursor.item()
        value = unseal(there, data)
        if there == key:
            return value
    if cursor.prev() if behind else cursor.last():
        before, data = cursor.item()
        unseal(before, data)
        if before >= key:
            raise CorruptionError("the index lost its order: delete its directory and reopen")
    return None
