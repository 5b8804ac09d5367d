"""How many bytes of deleted entries are still in the log: for ``info``, and for who may erase.

An estimate, by share: of a frame that holds entries, the share of its bytes that the deleted ones
are of its entries; and of a log larger than WHOLE_BYTES by a sample of its frames, about as many
however long it is. What a copy elsewhere keeps (a checkpoint, a pinned snapshot) is not counted.
Invariants: read in short snapshots; nothing is changed; 0 if nothing was ever deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import TypeAlias

from logstore import format as fmt
from logstore.codec import codec
from logstore.compaction.measure import gone_bytes, locators
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.background import Pause, no_pause
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.segments import SegmentGone
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import CorruptFrameError, CorruptNodeError, UnreadableError
from logstore.format import Kind
from logstore.ids import StreamID
from logstore.index.keys import StreamRecord
from logstore.log import chain, file_names, hint, log_reader
from logstore.log import frame as frames
from logstore.tuples import NamedTuple

NODES_A_SNAPSHOT = 1_000  # a millisecond or two, in which no other thread runs
RECORDS_A_SNAPSHOT = 10_000
FRAMES_A_SNAPSHOT = 2_000
WHOLE_BYTES = 256 << 20  # of a log of which every frame is looked at
_HOLD_ENTRIES = frames.DATA_HEAD_BYTES


def tombstoned_bytes(engine: Engine, pause: Pause = no_pause) -> dict[int, int]:
    """Bytes of entries that are tombstones in sealed nodes, by segment."""
    found: dict[int, int] = {}
    for page in locators(engine, NODES_A_SNAPSHOT):
        for locator in page:
            if locator.vector:
                number = fmt.segment_of(locator.position)
                found[number] = found.get(number, 0) + gone_bytes(locator)
        pause(0)
    return found


# -- all that is deleted and still in the log ---------------------------------------------------
def deleted_bytes(engine: Engine) -> dict[int, int]:
    """Bytes of deleted entries that are still there, by segment; segments without any are left out.

    A store in which nothing was ever deleted costs a look at each stream's record. Else every
    segment's hint is read, and the active segment, and each frame of them looked at, or one in so
    many of a long log.
    """
    whole = _whole_streams(engine)
    if whole is None:
        return {}
    found: dict[int, int] = {}
    rows, meta = snapshot.read(engine, lambda view: (view.index.segment_rows(), view.meta))
    links = [*_links(engine, set(rows), meta.active_segment)]
    every = max(1, sum(link.file_bytes for link in links) // WHOLE_BYTES)
    for link in links:
        end = link.end_offset
        if link.number == meta.active_segment:
            same = fmt.segment_of(meta.applied) == link.number
            end = fmt.offset_of(meta.applied) if same else link.start_offset
        held = _frames(engine, link._replace(end_offset=end), link.number != meta.active_segment)
        held = (
            each
            for each in held
            if _sampled(each.position, every)
            and int.from_bytes(each.payload[:8], "little") not in whole
        )
        size = 0
        shares: dict[_Node, _NodeAppends] = {}
        look = partial(_gone_bytes, engine=engine, shares=shares)
        while some := list(islice(held, FRAMES_A_SNAPSHOT)):
            size += snapshot.read(engine, partial(look, some=some))
        size += sum(each.data_bytes * each.gone // max(1, each.entries) for each in shares.values())
        if size:
            found[link.number] = every * size
    return found


def _sampled(position: int, every: int) -> bool:
    """Whether a frame is in the sample: one in ``every`` is, and always the same ones."""
    return every == 1 or (position * 0x9E3779B97F4A7C15 >> 32 & 0xFFFFFFFF) % every == 0


def _whole_streams(engine: Engine) -> set[int] | None:
    """Streams that have all entries that were ever added to them; None if all streams ever made
    are there, and are such.
    """
    whole: set[int] = set()
    others = after = 0
    while True:
        some, after, following = snapshot.read(engine, partial(_records, after=after))
        whole |= {number for number, is_whole in some if is_whole}
        others += sum(not is_whole for _, is_whole in some)
        if not some:
            return None if not others and len(whole) == following - 1 else whole


def _records(view: Snapshot, after: int) -> tuple[list[tuple[int, bool]], int, int]:
    some = [
        (record.number, record.length == record.entries_added)
        for record in islice(view.records(after), RECORDS_A_SNAPSHOT)
    ]
    return some, some[-1][0] if some else after, view.meta.next_stream


def _links(engine: Engine, counted: set[int], active: int) -> Iterator[chain.Link]:
    """The segments that count, as far as they do."""
    mains = {link.number: link for link in chain.main_links(engine.fs, engine.path, engine.uuid)}
    for number in sorted(counted):
        if number in mains:
            if number <= active:
                yield mains[number]
            continue
        try:
            yield maintenance_locks.compacted_link(engine, number)
        except FileNotFoundError:
            continue  # dropped since


def _frames(engine: Engine, link: chain.Link, sealed: bool) -> Iterator[log_reader.LogFrame]:
    """The frames of a segment that hold entries, up to damage if there is any."""
    # Appends that a hint joins are as one with the entries and the bytes of all: they are in the
    # same node, whose share of deleted entries counts for each of them.
    kept = hint.read(engine.fs, engine.path, engine.uuid, link) if sealed else None
    if kept is not None:
        yield from (found for found in kept if found.kind in _HOLD_ENTRIES)
        return
    try:
        file = engine.fs.open(file_names.segment(engine.path, link.number))
    except FileNotFoundError:
        return
    try:
        for found in log_reader.scan(
            file, engine.seed, link.number, link.start_offset, link.end_offset
        ):
            if found.kind in _HOLD_ENTRIES:
                yield hint.shortened(found)
    except CorruptFrameError:
        return  # 'check' reports it
    finally:
        file.close()


class _FrameEntries(NamedTuple):
    """What a frame holds: entries up to an ID, from an ID on if that is known."""

    kind: int
    position: int
    first: StreamID
    last: StreamID
    data_bytes: int
    entries: int


_Node: TypeAlias = tuple[int, StreamID]  # of which stream, and its master ID


class _NodeAppends(NamedTuple):
    """Bytes of appends to one node, and how many of how many entries of it do not live any more."""

    data_bytes: int
    gone: int
    entries: int


def _gone_bytes(
    view: Snapshot,
    engine: Engine,
    some: list[log_reader.LogFrame],
    shares: dict[_Node, _NodeAppends],
) -> int:
    """Bytes of deleted entries in some frames. Appends to a node that is still there are not among
    them: their bytes are added to the share of that node."""
    total = 0
    appended: dict[_Node, _NodeAppends] = {}
    records: dict[int, StreamRecord | None] = {}
    for found in some:
        number = int.from_bytes(found.payload[:8], "little")
        if number not in records:
            record = view.index.record(number)
            over = record is not None and 0 < record.expires_ms <= view.now_ms
            records[number] = None if over else record
        record, held = records[number], _held(found)
        if record is None or not record.length:
            total += held.data_bytes
        elif held.kind == Kind.APPEND:
            node, gone, entries = _node_of(view, record, held)
            if node is None:
                total += held.data_bytes
            else:
                key = record.number, node
                before = appended.get(key) or shares.get(key)
                size = held.data_bytes + (0 if before is None else before.data_bytes)
                appended[key] = _NodeAppends(size, gone, entries)
        elif held.last < record.first:
            total += held.data_bytes
        else:
            gone, entries = _gone(view, record, held, _entries_in(engine, found, held))
            total += held.data_bytes * gone // max(1, entries)
    shares.update(appended)  # last, as a snapshot may be read again
    return total


def _held(found: log_reader.LogFrame) -> _FrameEntries:
    size = found.payload_bytes - _HOLD_ENTRIES[found.kind]
    if found.kind == Kind.APPEND:
        _, ms, seq, entries, _ = fmt.APPEND_BODY.unpack_from(found.payload)
        last = StreamID(ms, seq)
        return _FrameEntries(found.kind, found.position, last, last, size, entries)
    layout = fmt.OPEN_BODY if found.kind == Kind.OPEN else fmt.NODE_BODY
    _, first_ms, first_seq, ms, seq, entries = layout.unpack_from(found.payload)
    first, last = StreamID(first_ms, first_seq), StreamID(ms, seq)
    return _FrameEntries(found.kind, found.position, first, last, size, entries)


def _entries_in(engine: Engine, found: log_reader.LogFrame, held: _FrameEntries) -> int:
    """Entries in a frame that has a whole listpack, with those that were tombstones in it already.

    Its counters alone are read, not its checksum: damage is reported elsewhere.
    """
    at, size = frames.data_place(found.kind, found.offset, found.payload_bytes)
    try:
        lp = log_reader.read(engine.segments.source(found.segment), size, found.segment, at)
        return sum(codec().counts(lp))
    except (SegmentGone, CorruptNodeError, UnreadableError):
        return held.entries


def _is_in_open_node(record: StreamRecord, held: _FrameEntries) -> bool:
    return record.open_version > 0 and record.open_master <= held.last


def _node_of(
    view: Snapshot, record: StreamRecord, held: _FrameEntries
) -> tuple[StreamID | None, int, int]:
    """The node that holds a frame's last ID, and how many of how many entries of it do not live any
    more; no node if it is gone."""
    if _is_in_open_node(record, held):
        node = view.open_node(record.number)
        live, dead = (0, 1) if node is None else nodes.open_counts(node)
        return record.open_master, dead, live + dead
    floor = view.index.node_floor(record.number, held.last)
    if floor is None or floor[1].last < held.first:
        return None, 1, 1
    master, locator = floor
    return master, locator.entries - locator.live, locator.entries


def _gone(
    view: Snapshot, record: StreamRecord, held: _FrameEntries, entries: int
) -> tuple[int, int]:
    """How many of how many entries of a whole node in the log do not live any more."""
    node, gone, there = _node_of(view, record, held)
    if held.kind == Kind.NODE and node is not None and not _is_in_open_node(record, held):
        return max(0, entries - (there - gone)), entries
    return gone, there
