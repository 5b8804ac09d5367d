"""Deciding deletes that heed what groups hold of the entries: as XDELEX of Redis 8.2.

Invariants: IDs are decided one after another, each seeing the ones before; all is decided before
the first frame but for what groups hold, which goes first.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.streams import delete as deletes
from logstore.engine.streams.reference_policy import check_mode, referenced, release
from logstore.engine.txn.lookup import Lookup
from logstore.ids import StreamID


def delete(state: WriteTxn, stream: bytes, ids: Sequence[StreamID], mode: str = "keep") -> int:
    """Delete entries by ID; how many."""
    if mode == "keep":
        return deletes.delete(state, stream, ids)
    return delete_ids(state, stream, ids, mode).count(1)


def delete_ids(
    state: WriteTxn, stream: bytes, ids: Sequence[StreamID], mode: str = "keep"
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
