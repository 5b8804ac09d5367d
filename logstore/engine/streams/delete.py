"""Deciding deletes by ID and by range, as XDEL does them; removing streams; setting IDs.

Invariants: IDs are checked before this is called; a node whose last live entry goes is dropped,
else its entries are marked; the largest deleted ID is kept in the record. All is decided before
the first frame.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.streams import idempotency
from logstore.engine.streams.add import create, existing
from logstore.engine.streams.removal import remove
from logstore.engine.txn import nodes
from logstore.engine.txn.nodes import NodeRef
from logstore.errors import OptionError, UsageError
from logstore.ids import ZERO_ID, StreamID
from logstore.log import frame as frames


def delete(state: WriteTxn, name: bytes, ids: Sequence[StreamID]) -> int:
    """Delete entries by ID; how many there were."""
    record = state.record_by_name(name)
    if record is None or not record.length:
        return 0
    found: dict[StreamID, tuple[NodeRef, list[int]]] = {}  # by master ID: a node is named once
    wanted = sorted(set(ids))
    largest = record.max_deleted
    at = 0
    while at < len(wanted):
        ref = next(iter(nodes.refs_reverse(state, record, wanted[at], wanted[at])), None)
        if ref is None:
            at += 1
            continue
        lp, vector = nodes.listpack(state, record, ref)
        ordinals: list[int] = []
        begin = at
        while at < len(wanted) and (at == begin or wanted[at] <= ref.last):
            ordinal = codec().find(lp, *ref.master, *wanted[at], vector)
            if ordinal >= 0:
                ordinals.append(ordinal)
                largest = max(largest, wanted[at])
            elif at != begin:
                break  # after a lowered last ID the next node may begin below this one's end
            at += 1
        if ordinals:
            found.setdefault(ref.master, (ref, []))[1].extend(ordinals)
    return remove(state, record, list(found.values()), largest, first=record.first in set(wanted))


def delete_range(state: WriteTxn, name: bytes, start: StreamID, end: StreamID) -> int:
    """Delete all entries of the closed interval; how many there were."""
    record = state.record_by_name(name)
    if record is None or not record.length or start > end:
        return 0
    found: list[tuple[NodeRef, list[int]]] = []
    last_whole: NodeRef | None = None
    largest = record.max_deleted
    for ref in nodes.refs(state, record, start, end):
        if not ref.live:
            continue
        if start <= ref.master and ref.last <= end and ref.locator is not None:
            found.append((ref, []))  # the whole node, without reading it
            last_whole = ref
            continue
        lp, vector = nodes.listpack(state, record, ref)
        inside = [e for e in codec().ids(lp, *ref.master, vector) if start <= (e[1], e[2]) <= end]
        if inside:
            found.append((ref, [e[0] for e in inside]))
            largest = max(largest, StreamID(*inside[-1][1:]))
    if last_whole is not None:
        lp, vector = nodes.listpack(state, record, last_whole)
        top = codec().last_live_id(lp, *last_whole.master, vector)
        if top is not None:
            largest = max(largest, StreamID(*top))
    return remove(state, record, found, largest, first=start <= record.first)


def drop(state: WriteTxn, name: bytes) -> bool:
    """Remove a stream with all its entries; False if there is none."""
    record = state.record_by_name(name)
    if record is None:
        return False
    state.emit(frames.Drop(record.number))
    return True


def create_empty(state: WriteTxn, name: bytes) -> bool:
    """Make an empty stream; False if there is one."""
    if state.record_by_name(name) is not None:
        return False
    create(state, name)
    return True


def set_id(
    state: WriteTxn, name: bytes, last: StreamID, entries_added: int | None,
    max_deleted: StreamID | None,
) -> None:  # fmt: skip
    """As XSETID: move the last ID, and with it what is counted."""
    if entries_added is not None and entries_added < 0:
        raise OptionError("entries_added must be positive")
    if max_deleted is not None and last < max_deleted:
        raise UsageError(
            "The ID specified in XSETID is smaller than the provided max_deleted_entry_id"
        )
    record = existing(state, name)
    # As the peers: 0-0 is the same as none given.
    deleted = record.max_deleted
    if max_deleted is not None and max_deleted != ZERO_ID:
        deleted = max_deleted
    added = record.entries_added if entries_added is None else entries_added
    if last < record.max_deleted:
        raise UsageError("The ID specified in XSETID is smaller than current max_deleted_entry_id")
    if record.length and last < nodes.last_live(state, record):
        raise UsageError("The ID specified in XSETID is smaller than the target stream top item")
    if entries_added is not None and record.length > entries_added:
        raise UsageError(
            "The entries_added specified in XSETID is smaller than the target stream length"
        )
    lowered = last < record.last
    state.emit(frames.Record(
        record.number, record.length, added, *last, *record.first, *deleted
    ))  # fmt: skip
    if lowered:
        idempotency.forget_above(state, record.number, last)
