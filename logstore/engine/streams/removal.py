"""Taking entries out of nodes: the frames that deletes and trims have in common.

Invariants: a node whose last live entry goes is dropped, else its entries are marked; nodes that
are dropped side by side share a frame; the record is stated once, at the end.
"""

from __future__ import annotations

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.txn import nodes
from logstore.engine.txn.nodes import NodeRef
from logstore.ids import ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames


def remove(
    state: WriteTxn, record: StreamRecord, found: list[tuple[NodeRef, list[int]]],
    largest: StreamID, *, first: bool,
) -> int:  # fmt: skip
    """Delete these ordinals, none standing for the whole node; how many entries went."""
    gone = 0
    whole: list[NodeRef] = []
    for ref, ordinals in found:
        if not ordinals or len(ordinals) == ref.live:
            whole.append(ref)
            gone += ref.live
            continue
        drop_whole(state, record, whole)
        gone += len(ordinals)
        version = ref.version or record.open_version
        state.emit(frames.Tombstone(record.number, *ref.master, version, tuple(ordinals)))
    drop_whole(state, record, whole)
    state.counts["deleted_entries"] += gone
    if gone:
        state_record(state, record, record.length - gone, largest, first_gone=first)
    return gone


def drop_whole(state: WriteTxn, record: StreamRecord, whole: list[NodeRef]) -> None:
    """Drop nodes, one frame for each run of neighbours."""
    run: list[NodeRef] = []
    for ref in whole:
        if run and not _neighbours(state, record, run[-1], ref):
            state.emit(frames.Trim(record.number, *run[0].master, *run[-1].master))
            run = []
        run.append(ref)
    if run:
        state.emit(frames.Trim(record.number, *run[0].master, *run[-1].master))
    whole.clear()


def _neighbours(state: WriteTxn, record: StreamRecord, left: NodeRef, right: NodeRef) -> bool:
    for ref in nodes.refs(state, record, left.master.next(), right.master):
        if ref.master > left.master:
            return ref.master == right.master
    return False


def state_record(
    state: WriteTxn, record: StreamRecord, length: int, max_deleted: StreamID, *, first_gone: bool
) -> None:
    """WriteTxn the record after entries went; the first ID is looked up again if it is gone."""
    first = record.first
    if length == 0:
        first = ZERO_ID
    elif first_gone:
        first = nodes.first_live(state, record)
    state.emit(frames.Record(
        record.number, length, record.entries_added, *record.last, *first, *max_deleted
    ))  # fmt: skip


def vacate(state: WriteTxn, name: bytes) -> None:
    """A name is about to be given to another stream: who had it goes first, in the same commit."""
    held = state.holder(name)
    if held is None:
        state.index.confirm_absent(name)
    else:
        state.emit(frames.Drop(held.number))
