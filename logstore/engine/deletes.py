"""Deciding deletes by ID and by range, as XDEL does them; removing streams; setting IDs.

Invariants: IDs are checked before this is called; a node whose last live entry goes is dropped,
else its entries are marked; the largest deleted ID is kept in the record. All is decided before
the first frame.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.codec import codec
from logstore.engine import nodes
from logstore.engine.adds import create, existing
from logstore.engine.nodes import NodeRef
from logstore.engine.state import State
from logstore.engine.trims import state_record
from logstore.errors import OptionError, UsageError
from logstore.ids import StreamID
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames


def delete(state: State, name: bytes, ids: Sequence[StreamID]) -> int:
    """Delete entries by ID; how many there were."""
    record = state.record_by_name(name)
    if record is None or not record.length:
        return 0
    found: list[tuple[NodeRef, list[int]]] = []
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
            found.append((ref, ordinals))
    return _remove(state, record, found, largest, first=record.first in set(wanted))


def delete_range(state: State, name: bytes, start: StreamID, end: StreamID) -> int:
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
    return _remove(state, record, found, largest, first=start <= record.first)


def _remove(
    state: State, record: StreamRecord, found: list[tuple[NodeRef, list[int]]],
    largest: StreamID, *, first: bool,
) -> int:  # fmt: skip
    gone = 0
    whole: list[NodeRef] = []
    for ref, ordinals in found:
        if not ordinals or len(ordinals) == ref.live:
            whole.append(ref)
            gone += ref.live
            continue
        _drop_whole(state, record, whole)
        gone += len(ordinals)
        version = ref.version or record.open_version
        state.emit(frames.Tombstone(record.number, *ref.master, version, tuple(ordinals)))
    _drop_whole(state, record, whole)
    if gone:
        state_record(state, record, record.length - gone, largest, first_gone=first)
    return gone


def _drop_whole(state: State, record: StreamRecord, whole: list[NodeRef]) -> None:
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


def _neighbours(state: State, record: StreamRecord, left: NodeRef, right: NodeRef) -> bool:
    for ref in nodes.refs(state, record, left.master.next(), right.master):
        if ref.master > left.master:
            return ref.master == right.master
    return False


def drop(state: State, name: bytes) -> bool:
    """Remove a stream with all its entries; False if there is none."""
    record = state.record_by_name(name)
    if record is None:
        return False
    state.emit(frames.Drop(record.number))
    return True


def create_empty(state: State, name: bytes) -> bool:
    """Make an empty stream; False if there is one."""
    if state.record_by_name(name) is not None:
        return False
    create(state, name)
    return True


def set_id(
    state: State, name: bytes, last: StreamID, entries_added: int | None,
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
    deleted = record.max_deleted if max_deleted is None else max_deleted
    added = record.entries_added if entries_added is None else entries_added
    if last < record.max_deleted:
        raise UsageError("The ID specified in XSETID is smaller than current max_deleted_entry_id")
    if record.length and last < nodes.last_live(state, record):
        raise UsageError("The ID specified in XSETID is smaller than the target stream top item")
    if entries_added is not None and record.length > entries_added:
        raise UsageError(
            "The entries_added specified in XSETID is smaller than the target stream length"
        )
    state.emit(frames.Record(
        record.number, record.length, added, *last, *record.first, *deleted
    ))  # fmt: skip
