"""What groups hold of entries that are to be deleted: kept, removed too, or in the way.

``keep`` (KEEPREF) leaves pending entries alone, ``delete`` (DELREF) removes them from every group,
``acked`` (ACKED) deletes only what no group still needs. As XDELEX of Redis 8.2.

Invariants: an entry is referenced if some group has not read so far, or has it pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from logstore.engine import deletes, walks
from logstore.engine.lookup import Lookup
from logstore.engine.state import State
from logstore.errors import OptionError
from logstore.ids import StreamID
from logstore.index.keys import StreamRecord
from logstore.log import groupframe as frames

References: TypeAlias = Literal["keep", "delete", "acked"]
MODES = ("keep", "delete", "acked")


def check_mode(mode: str) -> None:
    """OptionError for a word that is not a mode."""
    if mode not in MODES:
        raise OptionError(f"references must be one of {', '.join(MODES)}: {mode!r}")


def referenced(state: State, record: StreamRecord, id: StreamID) -> bool:
    """Whether a group has not read so far, or has the entry pending."""
    for group in state.groups.of_stream(record.number):
        if group.last < id:
            return True
        if group.pending and walks.find(state.groups.txn, group.number, id) is not None:
            return True
    return False


def release(state: State, record: StreamRecord, ids: Sequence[StreamID]) -> int:
    """Take entries out of every group's pending list."""
    gone = 0
    for group in state.groups.of_stream(record.number):
        if not group.pending:
            continue
        there = [
            each for each in sorted(set(ids))
            if walks.find(state.groups.txn, group.number, each) is not None
        ]  # fmt: skip
        if there:
            state.emit(frames.Ack(group.number, b"".join([each.packed() for each in there])))
            gone += len(there)
    return gone


def delete_ids(
    state: State, stream: bytes, ids: Sequence[StreamID], mode: str = "keep"
) -> list[int]:
    """As XDELEX, per ID: -1 there is none, 1 deleted, 2 still referenced."""
    check_mode(mode)
    record = state.record_by_name(stream)
    if record is None:
        return [-1] * len(ids)
    lookup = Lookup(state, record)
    replies: list[int] = []
    going: set[StreamID] = set()
    for id in ids:
        if mode == "acked" and id not in going and referenced(state, record, id):
            replies.append(2)
        elif id in lookup and id not in going:
            replies.append(1)
            going.add(id)
        else:
            replies.append(-1)
    if mode == "delete":
        release(state, record, ids)
    if going:
        deletes.delete(state, stream, sorted(going))
    return replies
