"""The entries of an interval of an open store: as record batches, or only counted.

A scan reads some nodes on one snapshot, then the next ones on the next snapshot.

A count of a stream with many nodes goes by sums. The first count lists all nodes, and keeps for
each NODES_A_MARK-th node how many entries are below its master ID: a mark. Later counts find the
ends of their interval among the marks, and list a few nodes at each end.

Invariants: no snapshot lives longer than NODES_MAX nodes take to decode, and none is held while the
caller has a batch. A scan goes on by ID behind the last entry that it took: so nodes that were
rewritten, merged or moved meanwhile are neither skipped nor read twice. A count is that of one
moment. Marks hold while nothing was removed: the stream's first entry and the difference between
entries added and length stay, and the sum at the last mark with all behind it is the length. Each
count checks that in its own snapshot, and makes the marks anew where they do not hold. Marks are
about IDs and name no node, so nodes may be merged or moved.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from logstore.codec import ID, Section
from logstore.codec.node_list import Item, read_item
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.segments import SegmentGone, Segments
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import DamagedStoreError, StreamNotFoundError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.keys import Locator, StreamRecord
from logstore.scan.listing import Listing, list_piece, new_list, removal_mark
from logstore.scan.node_skipping import NodeSkipping
from logstore.scan.record_batches import Gather, LocatedReader
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


NODES_MAX = 256


class SegmentNodes:
    """Reads the bytes of nodes of an open store."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments

    def around(self, position: int, size_bytes: int) -> bytes:
        """Unchecked bytes of a segment."""
        return self._segments.around(position, size_bytes)

    def listpack(self, section: Section, item: Item) -> bytes:
        """The listpack of one node, checked."""
        locator = Locator(item.position, item.size_bytes, item.live, StreamID(*item.last))
        master = StreamID(*item.master)
        return self._segments.node(section[1], master, locator)


class StreamScan:
    """How far one stream was scanned. ``step`` may be called again after an error."""

    def __init__(
        self,
        engine: Engine,
        name: bytes,
        start: StreamID,
        end: StreamID,
        skipping: NodeSkipping | None = None,
    ) -> None:
        self._engine = engine
        self._skipping = skipping
        self.name = name
        self.start = start
        self.end = end
        self.started = False
        self._whole = False  # the interval holds all entries of the stream
        self.done = start > end

    def step(self, view: Snapshot, gather: Gather) -> bool:
        """Add the next nodes; whether the batch is full."""
        record = view.record(self.name)
        if record is None:
            self.done = True
            return True
        if not self.started:
            self.started, self._whole = True, self.start <= record.first <= record.last <= self.end
            self.end = min(self.end, record.last)
        return self._nodes(view, record, gather)

    def _nodes(self, view: Snapshot, record: StreamRecord, gather: Gather) -> bool:
        found = new_list()
        follows, _ = list_piece(view, record, self.start, self.end, found, NODES_MAX)
        skipping = self._skipping
        items = found.items() if skipping is None else skipping.left(record, found)
        engine = self._engine
        reader = LocatedReader(SegmentNodes(engine.segments), engine.seed)
        section = self.name, record.number, self.start, self.end
        try:
            full = reader.add(gather, section, items, 0) < len(items)
        finally:  # also after an error, so that a node that was added is not added again
            left = read_item(items, reader.at)
            if left is not None:
                # The nodes before this one have no live entry above its master ID.
                self.start = max(self.start, StreamID(*left[0].master))
        if full:
            return True
        if follows is not None:
            self.start = follows
            return False
        if self._whole:
            view.confirm_nodes(record, given=True)
        self.done = True
        return True


def _step(view: Snapshot, scan: StreamScan, gather: Gather) -> bool:
    return scan.step(view, gather)


def batches(
    engine: Engine,
    names: Iterable[bytes],
    start: StreamID,
    end: StreamID,
    gather: Gather,
    skipping: NodeSkipping | None = None,
) -> Iterator[pa.RecordBatch]:
    """The live entries of a closed interval, stream after stream. Each stream is read up to the
    last entry that it had when the scan reached it.

    Each batch is read on snapshots of its own: an entry that is deleted meanwhile may come or not.
    No entry comes twice, and no live entry is left out, but for nodes that ``skipping`` leaves out.
    """
    for name in names:
        scan = StreamScan(engine, name, start, end, skipping)
        while not scan.done:
            while not snapshot.read(engine, _step, scan, gather):
                pass
            if not scan.done:  # small streams share a batch
                yield from gather.take()
    yield from gather.take()


AT_ONCE_NODES = 2048  # up to so many are listed without marks, in a millisecond
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
    """How many live entries a closed interval has; only nodes at its ends are read."""
    record = snapshot.read(engine, Snapshot.record, name)
    if record is None or start > end:
        return 0
    if start <= record.first and record.last <= end:
        return record.length
    if record.nodes > AT_ONCE_NODES:
        found = _count_by_marks(engine, name, record.number, start, end)
        if found is not None:
            return found
    return _count_listed(engine, name, start, end)


def _count_listed(engine: Engine, name: bytes, start: StreamID, end: StreamID) -> int:
    for _ in range(snapshot.TRIES):
        try:
            found = Listing(engine, [name], start, end)
        except StreamNotFoundError:  # it was dropped meanwhile
            return 0
        count = snapshot.read(engine, _listed_count, engine, found)
        if count is not None:
            return count
    raise DamagedStoreError("a segment that the index names is missing: run 'logstore check'")


def _listed_count(_: Snapshot, engine: Engine, found: Listing) -> int | None:
    """How many live entries were listed; None if a node at an end was moved since."""
    try:
        return _live_count(engine, (section for _, section in found.sections), found.nodes.items())
    except SegmentGone:
        return None


# -- marks -----------------------------------------------------------------------------------
def _count_by_marks(
    engine: Engine, name: bytes, number: int, start: StreamID, end: StreamID
) -> int | None:
    """A count by marks, which are made if there are none; None if they do not hold."""
    marks = _kept_marks(engine, number)
    if marks is None:
        few = snapshot.read(engine, _count_few, engine, name, start, end)
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
            found = snapshot.read(engine, _count_between, engine, name, marks, start, end)
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
    """What stays the same while nothing is removed: the first entry, and `removal_mark`."""
    if record is None:
        raise StreamNotFoundError("there is no such stream")
    return record.first, removal_mark(record)


def _kept_marks(engine: Engine, number: int) -> Marks | None:
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
    """The marks, and those of nodes listed from the last mark on; None if its node was merged."""
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


def _count_few(
    view: Snapshot, engine: Engine, name: bytes, start: StreamID, end: StreamID
) -> int | None:
    """The count, if the interval has few nodes; else None."""
    record = view.record(name)
    if record is None:
        return 0
    found = new_list()
    follows, _ = list_piece(view, record, start, end, found, AT_ONCE_NODES)
    if follows is not None:
        return None
    return _live_count(engine, [(name, record.number, start, end)], found.items())


def _count_between(
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
    behind, nodes = _live_in(view, engine, record, StreamID(*marks.ids[-1]), MAX_ID)
    if marks.below[-1] + behind != record.length:
        return None
    upto = record.length
    if end < record.last:
        upto = _count_below(view, engine, record, marks, end.next())
    return upto - _count_below(view, engine, record, marks, start), nodes


def _count_below(
    view: Snapshot, engine: Engine, record: StreamRecord, marks: Marks, at: StreamID
) -> int:
    """How many live entries are below an ID."""
    place = bisect_right(marks.ids, at) - 1
    if place < 0 or at <= record.first:
        return 0
    mark = StreamID(*marks.ids[place])
    if mark == at:
        return marks.below[place]
    return marks.below[place] + _live_in(view, engine, record, mark, at.previous())[0]


def _live_in(
    view: Snapshot, engine: Engine, record: StreamRecord, start: StreamID, end: StreamID
) -> tuple[int, int]:
    """How many live entries an interval has, and how many nodes."""
    found = new_list()
    at: StreamID | None = start
    while at is not None:
        at, _ = list_piece(view, record, at, end, found, AT_ONCE_NODES)
    section = record.name, record.number, start, end
    return _live_count(engine, [section], found.items()), len(found)


def _live_count(engine: Engine, sections: Iterable[Section], items: bytes) -> int:
    """How many live entries the listed nodes have in these intervals."""
    gather = Gather.counting()
    # Nodes in the middle of an interval are not read.
    reader = LocatedReader(SegmentNodes(engine.segments), engine.seed, at_once_bytes=0)
    for section in sections:
        reader.add(gather, section, items, 0)
    return gather.rows
