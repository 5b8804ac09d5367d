"""Deciding deletes by ID and by range, as XDEL does them; and as XDELEX, heeding groups.

Invariants: IDs are checked before this is called; a node whose last live entry goes is dropped,
else its entries are marked; the largest deleted ID is kept in the record; of deletes that heed
groups each ID sees what the ones before it did. All is decided before the first frame, but for
what groups hold of the entries, which goes first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.streams.removal import check_mode, referenced, release, remove
from logstore.engine.txn import nodes
from logstore.engine.txn.nodes import Lookup, NodeRef
from logstore.ids import ZERO_ID, StreamID
from logstore.index.keys import StreamRecord

FEW = 8  # IDs of a node that are looked up one by one


def delete(txn: WriteTxn, name: bytes, ids: Sequence[StreamID], mode: str = "keep") -> int:
    """Delete entries by ID; how many there were. ``mode``: see ``removal.References``."""
    if mode != "keep":
        return delete_ids(txn, name, ids, mode).count(1)
    record = txn.record_by_name(name)
    return 0 if record is None else delete_entries(txn, record, ids)


def delete_entries(txn: WriteTxn, record: StreamRecord, ids: Sequence[StreamID]) -> int:
    """Delete entries of a stream, whatever groups hold of them; how many there were."""
    if not record.length:
        return 0
    going: list[tuple[NodeRef, list[int]]] = []
    asked = set(ids)
    wanted = sorted(dict.fromkeys(ids))
    largest = record.max_deleted
    at = 0
    while at < len(wanted):
        if at + 1 < len(wanted):
            ref, _, high = nodes.around(txn, record, wanted[at])
        else:
            ref, high = nodes.ref_of(txn, record, wanted[at]), wanted[at]
        here = wanted[at : bisect_right(wanted, high, at)]
        at += len(here)
        if ref is None:
            continue
        lp, vector = nodes.listpack(txn, record, ref)
        ordinals, last = _ordinals(lp, vector, ref.master, here, asked)
        if ordinals:
            going.append((ref, ordinals))
            largest = max(largest, last)
    return remove(txn, record, going, largest, first=record.first in asked)


def _ordinals(
    lp: bytes, vector: bytes, master: StreamID, ids: list[StreamID], among: set[StreamID]
) -> tuple[list[int], StreamID]:
    """Where those of some IDs that are in a node stand, and the last of them; ``among``: a set that
    holds these, and none else of the node's."""
    if len(ids) > FEW:  # one pass over the node, however many they are
        there = [row for row in codec().ids(lp, *master, vector) if row[1:] in among]
        return [row[0] for row in there], StreamID(*there[-1][1:]) if there else ZERO_ID
    places = [codec().find(lp, *master, *id, vector) for id in ids]
    last = max((id for id, place in zip(ids, places, strict=True) if place >= 0), default=ZERO_ID)
    return [place for place in places if place >= 0], last


def delete_range(txn: WriteTxn, name: bytes, start: StreamID, end: StreamID) -> int:
    """Delete all entries of the closed interval; how many there were."""
    record = txn.record_by_name(name)
    if record is None or not record.length or start > end:
        return 0
    going: list[tuple[NodeRef, list[int]]] = []
    last_whole: NodeRef | None = None
    largest = record.max_deleted
    for ref in nodes.refs(txn, record, start, end):
        if not ref.live:
            continue
        if start <= ref.master and ref.last <= end and ref.locator is not None:
            going.append((ref, []))  # the whole node, without reading it
            last_whole = ref
            continue
        lp, vector = nodes.listpack(txn, record, ref)
        inside = [e for e in codec().ids(lp, *ref.master, vector) if start <= (e[1], e[2]) <= end]
        if inside:
            going.append((ref, [e[0] for e in inside]))
            largest = max(largest, StreamID(*inside[-1][1:]))
    if last_whole is not None:
        lp, vector = nodes.listpack(txn, record, last_whole)
        top = codec().last_live_id(lp, *last_whole.master, vector)
        if top is not None:
            largest = max(largest, StreamID(*top))
    return remove(txn, record, going, largest, first=start <= record.first)


def delete_ids(
    txn: WriteTxn, stream: bytes, ids: Sequence[StreamID], mode: str = "keep"
) -> list[int]:
    """As XDELEX, per ID: -1 there is none, 1 deleted, 2 still referenced."""
    check_mode(mode)
    record = txn.record_by_name(stream)
    if record is None:
        return [-1] * len(ids)
    lookup = Lookup(txn, record)
    there = {id for id in sorted(ids) if id in lookup}  # so that neighbours are read together
    replies: list[int] = []
    going: set[StreamID] = set()
    groups = txn.groups.of_stream(record.number) if mode == "acked" else []
    for id in ids:
        if groups and id not in going and referenced(txn, groups, id):
            replies.append(2)
        elif id in there and id not in going:
            replies.append(1)
            going.add(id)
        else:
            replies.append(-1)
    if mode == "delete":
        release(txn, record, ids)
    if going:
        delete_entries(txn, record, sorted(going))
    return replies
