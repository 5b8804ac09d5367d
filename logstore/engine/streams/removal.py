"""Removing entries from nodes: the frames that deletes and trims share, and the reference policy.

The policy says what becomes of entries that groups hold: ``keep`` (KEEPREF) leaves pending entries
alone, ``delete`` (DELREF) removes them from every group, ``acked`` (ACKED) deletes only what no
group still needs. As XDELEX of Redis 8.2.

Invariants: a node whose last live entry goes is dropped, else its entries are marked; nodes that
are dropped side by side share a frame; the record is stated once, at the end. An entry is
referenced if some group has not read so far, or has it pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.txn import nodes
from logstore.engine.txn.nodes import NodeRef
from logstore.errors import OptionError
from logstore.ids import ZERO_ID, StreamID
from logstore.index.group_keys import ID_BYTES, GroupRecord
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames
from logstore.log.groupframe import Ack
from logstore.tuples import NamedTuple


class Removed(NamedTuple):
    """What one commit of work in parts removed."""

    entries: int  # or idempotent IDs
    more: bool  # whether there may be more to remove


def remove(
    txn: WriteTxn,
    record: StreamRecord,
    going: list[tuple[NodeRef, list[int]]],
    largest: StreamID,
    *,
    first: bool,
) -> int:
    """Delete these ordinals, none standing for the whole node; how many entries went."""
    gone = 0
    whole: list[NodeRef] = []
    for ref, ordinals in going:
        if not ordinals or len(ordinals) == ref.live:
            whole.append(ref)
            gone += ref.live
            continue
        drop_whole(txn, record, whole)
        gone += len(ordinals)
        version = ref.version or record.open_version
        txn.emit(frames.Tombstone(record.number, *ref.master, version, tuple(ordinals)))
    drop_whole(txn, record, whole)
    txn.counts["deleted_entries"] += gone
    if gone:
        state_record(txn, record, record.length - gone, largest, first_gone=first)
    return gone


def drop_whole(txn: WriteTxn, record: StreamRecord, whole: list[NodeRef]) -> None:
    """Drop nodes, one frame for each run of neighbours."""
    run: list[NodeRef] = []
    for ref in whole:
        if run and not _neighbours(txn, record, run[-1], ref):
            txn.emit(frames.Trim(record.number, *run[0].master, *run[-1].master))
            run = []
        run.append(ref)
    if run:
        txn.emit(frames.Trim(record.number, *run[0].master, *run[-1].master))
    whole.clear()


def _neighbours(txn: WriteTxn, record: StreamRecord, left: NodeRef, right: NodeRef) -> bool:
    for ref in nodes.refs(txn, record, left.master.next(), right.master):
        if ref.master > left.master:
            return ref.master == right.master
    return False


def state_record(
    txn: WriteTxn, record: StreamRecord, length: int, max_deleted: StreamID, *, first_gone: bool
) -> None:
    """State the record after entries went; the first ID is looked up again if it is gone."""
    first = record.first
    if length == 0:
        first = ZERO_ID
    elif first_gone:
        first = nodes.first_live(txn, record)
    txn.emit(
        frames.Record(
            record.number, length, record.entries_added, *record.last, *first, *max_deleted
        )
    )


def vacate(txn: WriteTxn, name: bytes) -> None:
    """A name is about to be given to another stream: the one that has it is dropped first."""
    held = txn.holder(name)
    if held is None:
        txn.index.confirm_absent(name)
    else:
        txn.emit(frames.Drop(held.number))


References: TypeAlias = Literal["keep", "delete", "acked"]
MODES = ("keep", "delete", "acked")


def check_mode(mode: str) -> None:
    """OptionError for a word that is not a mode."""
    if mode not in MODES:
        raise OptionError(f"references must be one of {', '.join(MODES)}: {mode!r}")


def referenced(txn: WriteTxn, groups: Sequence[GroupRecord], id: StreamID) -> bool:
    """Whether one of the stream's ``groups`` has not read so far, or has the entry pending."""
    from logstore.engine.txn import pel

    for group in groups:
        if group.last < id:
            return True
        if group.pending and pel.find(txn.groups.index, group.number, id) is not None:
            return True
    return False


def removed(txn: WriteTxn, group: GroupRecord, ids: Sequence[StreamID]) -> int:
    """Entries are no longer pending in a group; how many were."""
    there = _pending(txn, group, ids)
    if there:
        txn.emit(Ack(group.number, there))
    return len(there) // ID_BYTES


def pending_among(txn: WriteTxn, group: GroupRecord, ids: Sequence[StreamID]) -> set[bytes]:
    """Those of some IDs that are pending in a group, each packed."""
    there = _pending(txn, group, ids)
    return {there[at : at + ID_BYTES] for at in range(0, len(there), ID_BYTES)}


def _pending(txn: WriteTxn, group: GroupRecord, ids: Sequence[StreamID]) -> bytes:
    """Those of some IDs that are pending in a group, packed and ascending."""
    if not group.pending:
        return b""
    packed, ascending = codec().pack_ids(ids)
    if not ascending:
        packed, _ = codec().pack_ids(sorted(set(ids)))
    from logstore.engine.txn import pel

    return pel.present(txn.groups.index, group.number, packed)


def release(txn: WriteTxn, record: StreamRecord, ids: Sequence[StreamID]) -> None:
    """Take entries out of every group's pending list."""
    for group in txn.groups.of_stream(record.number):
        removed(txn, group, ids)
