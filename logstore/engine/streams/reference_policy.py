"""What groups hold of entries that are to be deleted: kept, removed too, or in the way.

``keep`` (KEEPREF) leaves pending entries alone, ``delete`` (DELREF) removes them from every group,
``acked`` (ACKED) deletes only what no group still needs. As XDELEX of Redis 8.2.

Invariants: an entry is referenced if some group has not read so far, or has it pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import lt
from typing import Literal, TypeAlias

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.txn import pel_scan
from logstore.errors import OptionError
from logstore.ids import StreamID, packed_ids
from logstore.index.group_keys import ID_BYTES, GroupRecord
from logstore.index.keys import StreamRecord
from logstore.log import groupframe as frames

References: TypeAlias = Literal["keep", "delete", "acked"]
MODES = ("keep", "delete", "acked")


def check_mode(mode: str) -> None:
    """OptionError for a word that is not a mode."""
    if mode not in MODES:
        raise OptionError(f"references must be one of {', '.join(MODES)}: {mode!r}")


def referenced(state: WriteTxn, record: StreamRecord, id: StreamID) -> bool:
    """Whether a group has not read so far, or has the entry pending."""
    for group in state.groups.of_stream(record.number):
        if group.last < id:
            return True
        if group.pending and pel_scan.find(state.groups.txn, group.number, id) is not None:
            return True
    return False


def removed(state: WriteTxn, group: GroupRecord, ids: Sequence[StreamID]) -> int:
    """Entries are no longer pending in a group; how many were."""
    if not group.pending:
        return 0
    if not all(map(lt, ids, islice(ids, 1, None))):
        ids = sorted(set(ids))
    given = packed_ids(ids)
    there = pel_scan.present(state.groups.txn, group.number, given)
    if there:
        state.emit(frames.Ack(group.number, there))
    return len(there) // ID_BYTES


def release(state: WriteTxn, record: StreamRecord, ids: Sequence[StreamID]) -> None:
    """Take entries out of every group's pending list."""
    for group in state.groups.of_stream(record.number):
        removed(state, group, ids)
