"""What takes the space of a store, and how much of it a compaction would give back.

This is the one place that tells it: to ``info``, metrics, ``top`` and the web view in all
(`log_use`), to ``du`` and ``map``, and the web view, by segment and by stream (`usage`). Both give
the same sums. Of a segment's bytes, *live* are entries that are there, of sealed nodes and of open
ones; *tombstoned* are deleted entries inside nodes that live; *dead* is all else: what was written
anew elsewhere, what was trimmed, frames of groups and of settings, heads of frames. A stream's live
and tombstoned bytes are those of its nodes, as ``Stream.info`` has them.

What ``compact()`` would give back is computed with its threshold, or another one: the active
segment is sealed; segments that are mostly dead are emptied and removed with their hints; what
still lives in them, and nodes of which most is deleted, is written anew. Not counted: what merging
small nodes saves, pins that hold segments back for a while, the index, and checkpoints.

Invariants: read in short snapshots, nothing is changed; live, tombstoned and dead add up to the
size of the file. Deleted entries of a node are counted by their share of its entries. An open node
counts in the segment in which it begins, and as far as that has no room in the next ones. Nodes
without tombstones are not decoded: the rows of their segments count them. Streams that expired are
dead, as they are gone for everybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TypeAlias

from logstore import format as fmt
from logstore import fsinfo
from logstore.compaction import measure
from logstore.compaction.measure import gone_bytes, rows_and_active, size_bytes
from logstore.compaction.node_choice import NodeChooser
from logstore.engine.runtime import pins
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.index.keys import Locator, OpenNode, SegmentRow, StreamRecord
from logstore.log import file_names, segment
from logstore.log.pinfile import Pin

THRESHOLD = 0.5  # of ``compact()``
ROWS_A_SNAPSHOT = 10_000
_HEAD = fmt.FRAME_HEAD_BYTES
# What a node that moves costs beside its bytes: its place in an adopt frame, its item in a hint.
# Items of hints are compressed, to about a quarter.
_MOVED_BYTES = (
    fmt.ADOPT_ITEM.size + fmt.MASTER.size + (fmt.HINT_ITEM.size + fmt.NODE_BODY.size) // 4
)


@dataclass(slots=True)
class OpenUse:
    """What a walk over the records of streams finds: bytes of open nodes, and what expired."""

    anew: dict[int, int] = field(default_factory=dict)  # written anew, by the segment they begin in
    live_bytes: int = 0
    tombstoned_bytes: int = 0
    expired: set[int] = field(default_factory=set)  # numbers of streams that nobody sees
    expired_bytes: int = 0  # of their sealed nodes

    def count(self, record: StreamRecord, node: OpenNode | None, now_ms: int) -> int:
        """Count a stream in; the bytes of its open node."""
        expired = 0 < record.expires_ms <= now_ms
        if expired:
            self.expired.add(record.number)
            self.expired_bytes += record.node_bytes
        if node is None or not record.open_version:
            return 0
        live, gone = open_parts(node)
        number, anew = fmt.segment_of(record.open_version), _anew_bytes(live + gone)
        self.anew[number] = self.anew.get(number, 0) + anew
        if not expired:
            self.live_bytes += live
            self.tombstoned_bytes += gone
        return live + gone

    def merge(self, other: OpenUse) -> None:
        """Count what another page has."""
        for number, size in other.anew.items():
            self.anew[number] = self.anew.get(number, 0) + size
        self.live_bytes += other.live_bytes
        self.tombstoned_bytes += other.tombstoned_bytes
        self.expired |= other.expired
        self.expired_bytes += other.expired_bytes


@dataclass(slots=True)
class LogUse:
    """The log in all."""

    sizes: dict[int, int]  # bytes of each segment
    live_bytes: int
    tombstoned_bytes: int
    reclaimable_bytes: int  # by how much ``compact()`` would make the files of the log smaller

    @property
    def log_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(self.sizes.values())

    @property
    def dead_bytes(self) -> int:
        """Bytes that are neither live nor tombstoned."""
        return max(0, self.log_bytes - self.live_bytes - self.tombstoned_bytes)


def log_use(engine: Engine, threshold: float = THRESHOLD, opens: OpenUse | None = None) -> LogUse:
    """The log in all: at the cost of a look at each stream's record and at nodes with tombstones.

    ``opens``: what the records of all streams say, if the caller has walked over them anyway.
    """
    if opens is None:
        opens = _opens(engine)
    rows, active = rows_and_active(engine)
    sizes = {number: size_bytes(engine, number) for number in rows}
    live = sum(row.live_bytes for row in rows.values()) - opens.expired_bytes + opens.live_bytes
    tombstoned = 0
    stays = _Stays.of(rows, threshold)
    for stream, locator in _with_tombstones(engine):
        stays.count(locator)
        if stream not in opens.expired and fmt.segment_of(locator.position) in rows:
            tombstoned += gone_bytes(locator)
    back = _given_back(engine, sizes, active, stays, opens.anew)
    return LogUse(sizes, max(0, live - tombstoned), tombstoned + opens.tombstoned_bytes, back)


@dataclass(slots=True)
class _Stays:
    """Bytes of nodes that stay if their segment does: with their frames, and as they would be
    written anew. First all nodes, as if nothing had been deleted in them."""

    threshold: float
    chooser: NodeChooser
    staying: dict[int, int]
    anew: dict[int, int]
    written: int = 0  # of nodes that are written anew wherever they are

    @classmethod
    def of(cls, rows: dict[int, SegmentRow], threshold: float) -> _Stays:
        """What the counters of segments say."""
        moved = _HEAD + _MOVED_BYTES
        return cls(
            threshold,
            NodeChooser(set(), threshold),
            {number: row.live_bytes + _HEAD * row.live_nodes for number, row in rows.items()},
            {number: row.live_bytes + moved * row.live_nodes for number, row in rows.items()},
        )

    def count(self, locator: Locator) -> None:
        """A node with tombstones."""
        number, size = fmt.segment_of(locator.position), locator.payload_bytes
        anew = 0
        if locator.live:
            left = size * locator.live // max(1, locator.entries)
            anew = _HEAD + _MOVED_BYTES + left
        self.anew[number] = self.anew.get(number, 0) - size - _HEAD - _MOVED_BYTES
        if self.chooser.must(locator):
            self.staying[number] = self.staying.get(number, 0) - size - _HEAD
            self.written += anew
        else:
            self.anew[number] += anew


def _given_back(
    engine: Engine, sizes: dict[int, int], active: int, stays: _Stays, opens: dict[int, int]
) -> int:
    """By how many bytes the files of the log would become smaller; never below 0."""
    freed = victims = 0
    written = stays.written
    for number, size in sizes.items():
        body = size - fmt.SEGMENT_HEAD_BYTES
        if number == active and body <= 0:
            continue  # an empty one is not sealed
        if stays.staying[number] < (1 - stays.threshold) * max(1, body):
            freed += size + _hint_bytes(engine, number)
            written += stays.anew[number]
            victims = max(victims, number)
    if not victims:
        return 0
    if active in sizes:
        freed -= fmt.SEGMENT_HEAD_BYTES  # of the segment behind the one that is sealed
    if written:
        written += fmt.SEGMENT_HEAD_BYTES + fmt.HINT_HEAD.size
    # Open nodes are written anew if they begin in a victim, or before one.
    moved = sum(size for number, size in opens.items() if number <= victims)
    return max(0, freed - written - moved)


def open_parts(node: OpenNode) -> tuple[int, int]:
    """Bytes of an open node: of the entries that are there, and of deleted ones."""
    size = nodes.open_bytes(node)
    live, deleted = nodes.open_counts(node)
    gone = size * deleted // max(1, live + deleted)
    return size - gone, gone


def _anew_bytes(open_bytes: int) -> int:
    """The bytes that an open node of this size takes once it is written anew."""
    return open_bytes + fmt.OPEN_BODY.size + fmt.FRAME_HEAD_BYTES


def _with_tombstones(engine: Engine) -> Iterator[tuple[int, Locator]]:
    """The nodes with tombstones, and their streams. What they hold is counted outside of the
    snapshots, which may be read more than once."""
    after: bytes | None = b""
    while after is not None:
        page, after = snapshot.read(engine, _tombstoned_page, after)
        yield from page


def _tombstoned_page(
    view: Snapshot, after: bytes
) -> tuple[list[tuple[int, Locator]], bytes | None]:
    return view.index.nodes_with_tombstones(after, ROWS_A_SNAPSHOT)


def _hint_bytes(engine: Engine, number: int) -> int:
    """0 of the active segment, and of one whose hint is not written yet."""
    return engine.fs.size_bytes(file_names.hint(engine.path, number))


def _opens(engine: Engine) -> OpenUse:
    """What the records of all streams say."""
    found, after = OpenUse(), 0
    while True:
        page, last = snapshot.read(engine, partial(_some_opens, after=after))
        found.merge(page)
        if last == after:
            return found
        after = last


def _some_opens(view: Snapshot, after: int) -> tuple[OpenUse, int]:
    found = OpenUse()
    for record, node in islice(view.index.records_with_opens(after), ROWS_A_SNAPSHOT):
        after = record.number
        found.count(record, node, view.now_ms)
    return found, after


RECORDS_A_SNAPSHOT = NODES_A_SNAPSHOT = 10_000


@dataclass(slots=True)
class SegmentUse:
    """A segment, and whose entries it holds."""

    number: int
    created_ms: int
    compacted: bool  # a compaction wrote it
    active: bool  # commits are still appended to it
    size_bytes: int
    live_bytes: int = 0
    tombstoned_bytes: int = 0
    streams: dict[bytes, int] = field(default_factory=dict)  # live bytes by name
    pins: list[str] = field(default_factory=list)  # IDs of the pins that keep it

    @property
    def dead_bytes(self) -> int:
        """Bytes that are neither live nor tombstoned."""
        return max(0, self.size_bytes - self.live_bytes - self.tombstoned_bytes)


@dataclass(slots=True)
class StreamUse:
    """A stream, and what its entries take."""

    name: bytes
    entries: int
    nodes: int = 0
    live_bytes: int = 0
    tombstoned_bytes: int = 0
    segments: set[int] = field(default_factory=set)


@dataclass(slots=True)
class SpaceUsage:
    """All of a store."""

    segments: list[SegmentUse]  # oldest first
    streams: list[StreamUse]  # the largest first
    pins: list[Pin]
    other_bytes: dict[str, int]  # of what is no segment: hints, index, checkpoints, pins ...
    free_bytes: int  # of the file system, for this user
    disk_bytes: int  # of the file system in all

    @property
    def log_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(each.size_bytes for each in self.segments)

    @property
    def live_bytes(self) -> int:
        """Live bytes of all segments."""
        return sum(each.live_bytes for each in self.segments)

    @property
    def tombstoned_bytes(self) -> int:
        """Tombstoned bytes of all segments."""
        return sum(each.tombstoned_bytes for each in self.segments)

    @property
    def dead_bytes(self) -> int:
        """Dead bytes of all segments."""
        return sum(each.dead_bytes for each in self.segments)


def usage(engine: Engine, held: list[Pin] | None = None) -> SpaceUsage:
    """What takes the space of a store; ``held`` are its pins, if they are known already."""
    if held is None:
        held = pins.living(engine.fs, engine.path, engine.clock.now_ms(), clean=False)
    rows, active = measure.rows_and_active(engine)
    segments = {
        number: SegmentUse(
            number,
            _made_ms(engine, number) or row.born_ms,
            row.role != fmt.Role.MAIN,
            number == active,
            measure.size_bytes(engine, number),
            pins=[pin.id for pin in held if pin.segments is None or number in pin.segments],
        )
        for number, row in sorted(rows.items())
    }
    streams: dict[int, StreamUse] = {}
    opens: list[tuple[StreamUse, int, tuple[int, int]]] = []
    after = 0
    while True:
        some, after = snapshot.read(engine, partial(_records, after=after))
        for number, use, begins_in, parts in some:
            streams[number] = use
            opens.append((use, begins_in, parts))
        if not some:
            break
    _sealed(engine, segments, streams)
    for use, begins_in, parts in opens:
        _open(segments, use, begins_in, *parts)
    largest = sorted(streams.values(), key=lambda use: (-use.live_bytes, use.name))
    free, whole = fsinfo.space(engine.path)
    return SpaceUsage(list(segments.values()), largest, held, _others(engine), free, whole)


_Records: TypeAlias = list[tuple[int, StreamUse, int, tuple[int, int]]]


def _records(view: Snapshot, after: int) -> tuple[_Records, int]:
    """Some streams: the number, what is known of its record, where its open node begins, and the
    live and tombstoned bytes of that."""
    some = []
    last = after
    for record, node in islice(view.index.records_with_opens(after), RECORDS_A_SNAPSHOT):
        last = record.number
        if 0 < record.expires_ms <= view.now_ms:
            continue  # it is gone for everybody
        is_open = node is not None and record.open_version
        parts = open_parts(node) if node is not None and is_open else (0, 0)
        use = StreamUse(record.name, record.length, record.nodes + bool(record.open_version))
        some.append((record.number, use, fmt.segment_of(record.open_version), parts))
    return some, last


def _sealed(engine: Engine, segments: dict[int, SegmentUse], streams: dict[int, StreamUse]) -> None:
    """Count what is in sealed nodes: all of them as if nothing were deleted, then the tombstones,
    for which alone locators are decoded."""
    after: bytes | None = b""
    while after is not None:
        totals, tombstoned, after = snapshot.read(engine, _page, after)
        for (stream, number), (_, payload_bytes) in totals.items():
            found, use = segments.get(number), streams.get(stream)
            if found is not None and use is not None:  # else it came, or went, meanwhile
                _add(found, use, payload_bytes, 0)
        for stream, locator in tombstoned:
            found, use = segments.get(fmt.segment_of(locator.position)), streams.get(stream)
            if found is not None and use is not None:
                size = gone_bytes(locator)
                _add(found, use, -size, size)


def _open(
    segments: dict[int, SegmentUse], use: StreamUse, begins_in: int, live: int, gone: int
) -> None:
    """Count an open node where it begins, and what has no room there in the next segments: what
    was appended to it since stands in them."""
    for found in segments.values():
        if found.number >= begins_in and live + gone:
            some = min(live, found.dead_bytes)
            more = min(gone, found.dead_bytes - some)
            if some or more:
                _add(found, use, some, more)
            live, gone = live - some, gone - more


def _page(
    view: Snapshot, after: bytes
) -> tuple[dict[tuple[int, int], list[int]], list[tuple[int, Locator]], bytes | None]:
    return view.index.node_totals_from(after, NODES_A_SNAPSHOT)


def _add(found: SegmentUse, use: StreamUse, live: int, tombstoned: int) -> None:
    found.live_bytes += live
    found.tombstoned_bytes += tombstoned
    found.streams[use.name] = found.streams.get(use.name, 0) + live
    use.live_bytes += live
    use.tombstoned_bytes += tombstoned
    use.segments.add(found.number)


def _made_ms(engine: Engine, number: int) -> int:
    """When a segment was made, as its file says (unix ms); 0 if it is gone."""
    try:
        file = engine.fs.open(file_names.segment(engine.path, number))
    except FileNotFoundError:
        return 0
    try:
        return segment.read_head(file, number, engine.uuid).created_ms
    finally:
        file.close()


def _others(engine: Engine) -> dict[str, int]:
    """Bytes on the disk of what is no segment; statistics count as hints."""
    fs, path = engine.fs, engine.path
    derived = [name for name in fs.names(path / file_names.LOG) if file_names.is_derived(name)]
    found = {"hints": sum(fs.size_bytes(path / file_names.LOG / name) for name in derived)}
    for name in (file_names.INDEX, file_names.CHECKPOINTS, file_names.PINS, file_names.QUARANTINE):
        found[name] = fs.tree_bytes(path / name)
    found["reserve"] = fs.size_bytes(path / file_names.RESERVE)
    return found
