"""Counting the entries of an interval: by sums of what is below some nodes, kept in memory.

The first count over many nodes of a stream walks all of them, and keeps for each NODES_A_MARK-th
how many entries are below its master ID. From then on a count finds its ends among these marks, and
walks a few nodes at each.

Invariants: a count is that of one moment. Marks hold as long as nothing went: the stream's first
entry, and the difference of its entries added and those there, are as they were; and the sum at the
last mark with what is behind it is the stream's length. All of it is looked at in the snapshot of
the count itself; else the marks are made anew. Nodes may be merged or moved meanwhile: marks are
about IDs, and name none.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable
from typing import TypeAlias

from logstore.codec import ID, Section
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.segments import SegmentGone
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import DamagedStoreError, StreamNotFoundError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.scan import walk
from logstore.scan.arrow import Gather
from logstore.scan.listing import Listing, removal_mark
from logstore.scan.live import Nodes
from logstore.scan.located import Stretch
from logstore.tuples import NamedTuple

AT_ONCE_NODES = 2048  # so many are walked without marks, in a millisecond
NODES_A_MARK = 64
BEHIND_MAX_NODES = 512
STREAMS_MAX = 256


_State: TypeAlias = tuple[StreamID, tuple[int, int]]


class Marks(NamedTuple):
    """Master IDs, ascending, and how many entries are below each."""

    ids: list[ID]
    below: list[int]
    since: _State  # of the stream when they were made


_lock = threading.RLock()  # a signal handler may count while we do


def count_stream(engine: Engine, name: bytes, start: StreamID, end: StreamID) -> int:
    """The live entries of a closed interval at one moment; only nodes at its ends are read."""
    record = snapshot.read(engine, Snapshot.record, name)
    if record is None or start > end:
        return 0
    if start <= record.first and record.last <= end:
        return record.length
    if record.nodes > AT_ONCE_NODES:
        found = _by_marks(engine, name, record.number, start, end)
        if found is not None:
            return found
    return _walked(engine, name, start, end)


def _walked(engine: Engine, name: bytes, start: StreamID, end: StreamID) -> int:
    for _ in range(snapshot.TRIES):
        try:
            found = Listing(engine, [name], start, end)
        except StreamNotFoundError:  # it was dropped meanwhile
            return 0
        count = snapshot.read(engine, _counted, engine, found)
        if count is not None:
            return count
    raise DamagedStoreError("a segment that the index names is missing: run 'logstore check'")


def _counted(_: Snapshot, engine: Engine, found: Listing) -> int | None:
    """The live entries of what was listed; None if a node at an end was moved since."""
    try:
        return _rows(engine, (section for _, section in found.sections), found.nodes.items())
    except SegmentGone:
        return None


# -- marks -----------------------------------------------------------------------------------
def _by_marks(
    engine: Engine, name: bytes, number: int, start: StreamID, end: StreamID
) -> int | None:
    """A count by marks, which are made if need be; None if the stream is not what it was."""
    marks = _marks(engine, number)
    if marks is None:
        few = snapshot.read(engine, _few, engine, name, start, end)
        if few is not None:
            return few
    for _ in range(2):
        try:
            if marks is None:
                state = _state(snapshot.read(engine, Snapshot.record, name))
                marks = Marks([], [], state)
                marks = _extended(marks, Listing(engine, [name], ZERO_ID, MAX_ID))
            if marks is None:
                return None
            found = snapshot.read(engine, _between, engine, name, marks, start, end)
            if found is not None:
                count, behind = found
                if behind > BEHIND_MAX_NODES:
                    last = StreamID(*marks.ids[-1])
                    marks = _extended(marks, Listing(engine, [name], last, MAX_ID))
                _keep(engine, number, marks)
                return count
        except StreamNotFoundError:
            break
        marks = None
    _keep(engine, number, None)
    return None


def _state(record: StreamRecord | None) -> _State:
    """What stays the same while a stream is only added to: its first entry, and `removal_mark`."""
    if record is None:
        raise StreamNotFoundError("there is no such stream")
    return record.first, removal_mark(record)


def _marks(engine: Engine, number: int) -> Marks | None:
    with _lock:
        found: Marks | None = engine.count_marks.get(number)
        return found


def _keep(engine: Engine, number: int, marks: Marks | None) -> None:
    with _lock:
        kept = engine.count_marks
        kept.pop(number, None)
        if marks is not None:
            kept[number] = marks
        while len(kept) > STREAMS_MAX:
            del kept[next(iter(kept))]


def _extended(marks: Marks, found: Listing) -> Marks | None:
    """Marks with those of what was listed, from the last one on; None if its node was merged."""
    ids, below = list(marks.ids), list(marks.below)
    total = below[-1] if below else 0
    ends = range(NODES_A_MARK, len(found.nodes) + NODES_A_MARK, NODES_A_MARK)
    for piece in found.nodes.pieces([min(end, len(found.nodes)) for end in ends], 1 << 62):
        if not ids or piece.first > ids[-1]:
            ids.append(piece.first)
            below.append(total)
        elif piece.first != ids[-1]:
            return None
        total += piece.live
    return Marks(ids, below, marks.since) if ids else None


def _few(view: Snapshot, engine: Engine, name: bytes, start: StreamID, end: StreamID) -> int | None:
    """The count, if there are not many nodes to look at."""
    record = view.record(name)
    if record is None:
        return 0
    found = walk.new_list()
    follows, _ = walk.piece(view, record, start, end, found, AT_ONCE_NODES)
    if follows is not None:
        return None
    return _rows(engine, [(name, record.number, start, end)], found.items())


def _between(
    view: Snapshot,
    engine: Engine,
    name: bytes,
    marks: Marks,
    start: StreamID,
    end: StreamID,
) -> tuple[int, int] | None:
    """The count of an interval, and how many nodes are behind the last mark; None if the marks do
    not hold."""
    record = view.record(name)
    if record is None or _state(record) != marks.since:
        return None
    behind, nodes = _live(view, engine, record, StreamID(*marks.ids[-1]), MAX_ID)
    if marks.below[-1] + behind != record.length:
        return None
    upto = record.length
    if end < record.last:
        upto = _below(view, engine, record, marks, end.next())
    return upto - _below(view, engine, record, marks, start), nodes


def _below(view: Snapshot, engine: Engine, record: StreamRecord, marks: Marks, at: StreamID) -> int:
    """The live entries below an ID."""
    place = bisect_right(marks.ids, at) - 1
    if place < 0 or at <= record.first:
        return 0
    mark = StreamID(*marks.ids[place])
    if mark == at:
        return marks.below[place]
    return marks.below[place] + _live(view, engine, record, mark, at.previous())[0]


def _live(
    view: Snapshot, engine: Engine, record: StreamRecord, start: StreamID, end: StreamID
) -> tuple[int, int]:
    """The live entries of an interval, and in how many nodes they are."""
    found = walk.new_list()
    at: StreamID | None = start
    while at is not None:
        at, _ = walk.piece(view, record, at, end, found, AT_ONCE_NODES)
    section = record.name, record.number, start, end
    return _rows(engine, [section], found.items()), len(found)


def _rows(engine: Engine, sections: Iterable[Section], items: bytes) -> int:
    """The live entries of listed nodes that are in these intervals."""
    gather = Gather.counting()
    # Nodes in the middle of an interval are not read.
    stretch = Stretch(Nodes(engine.segments), engine.seed, at_once_bytes=0)
    for section in sections:
        stretch.add(gather, section, items, 0)
    return gather.rows
