"""What takes the space of a store, and how much of it a compaction would give back.

``logstore du`` and ``map``, and the web view, show it by segment and by stream. Of a segment's
bytes, *live* are entries that are there, of sealed nodes and of open ones; *tombstoned* are deleted
entries inside nodes that live; *dead* is all else: what was written anew elsewhere, what was
trimmed, frames of groups and of settings, heads.

What ``compact()`` would give back is computed with its threshold, or another one: the active
segment is sealed; segments that are mostly dead are emptied and removed with their hints; what
still lives in them, and nodes of which most is deleted, is written anew. Not counted: what merging
small nodes saves, pins that hold segments back for a while, the index, and checkpoints.

Invariants: read in short snapshots, nothing is changed; live, tombstoned and dead add up to the
size of the file. Deleted entries of a node are counted by their share of its entries. An open node
counts where it begins, as far as that segment has room. Nodes without tombstones are not decoded:
the rows of their segments count them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from logstore import format as fmt
from logstore import fsinfo
from logstore.compaction import measure
from logstore.compaction.measure import rows_and_active, size_bytes
from logstore.compaction.node_choice import NodeChooser
from logstore.engine.runtime import pins
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.index.keys import Locator
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


def log_bytes(
    engine: Engine, threshold: float = THRESHOLD, opens: dict[int, int] | None = None
) -> int:
    """By how many bytes ``compact()`` would make the files of the log smaller; never below 0.

    ``opens``: bytes of all open nodes, written anew, by the segment in which they begin, if the
    caller has looked at them anyway.
    """
    rows, active = rows_and_active(engine)
    # Of each segment the nodes that stay if it does: in bytes with their frames, and as they would
    # be written anew. First all of its nodes, as if nothing had been deleted in them.
    staying = {number: row.live_bytes + _HEAD * row.live_nodes for number, row in rows.items()}
    stay_anew = {
        number: row.live_bytes + (_HEAD + _MOVED_BYTES) * row.live_nodes
        for number, row in rows.items()
    }
    chooser = NodeChooser(set(), threshold)
    written = 0
    for locator in _with_tombstones(engine):
        live, number = locator.live, fmt.segment_of(locator.position)
        anew = _HEAD + _MOVED_BYTES + locator.payload_bytes * live // max(1, locator.entries)
        anew = anew if live else 0
        stay_anew[number] = stay_anew.get(number, 0) - locator.payload_bytes - _HEAD - _MOVED_BYTES
        if chooser.must(locator):
            staying[number] = staying.get(number, 0) - locator.payload_bytes - _HEAD
            written += anew
        else:
            stay_anew[number] += anew
    freed = victims = 0
    for number in rows:
        size = size_bytes(engine, number)
        body = size - fmt.SEGMENT_HEAD_BYTES
        if number == active and body <= 0:
            continue  # an empty one is not sealed
        if staying[number] < (1 - threshold) * max(1, body):
            freed += size + _hint_bytes(engine, number)
            written += stay_anew[number]
            victims = max(victims, number)
    if not victims:
        return 0
    if active in rows:
        freed -= fmt.SEGMENT_HEAD_BYTES  # of the segment behind the one that is sealed
    if written:
        written += fmt.SEGMENT_HEAD_BYTES + fmt.HINT_HEAD.size
    if opens is None:
        opens = _opens(engine)
    # Open nodes are written anew if they begin in a victim, or before one.
    moved = sum(size for number, size in opens.items() if number <= victims)
    return max(0, freed - written - moved)


def anew_bytes(open_bytes: int) -> int:
    """The bytes that an open node of this size takes once it is written anew."""
    return open_bytes + fmt.OPEN_BODY.size + fmt.FRAME_HEAD_BYTES


def _with_tombstones(engine: Engine) -> Iterator[Locator]:
    """The nodes with tombstones. What they hold is counted outside of the snapshots, which may be
    read more than once."""
    after: bytes | None = b""
    while after is not None:
        page, after = snapshot.read(engine, _tombstoned_page, after)
        for _, locator in page:
            yield locator


def _tombstoned_page(
    view: Snapshot, after: bytes
) -> tuple[list[tuple[int, Locator]], bytes | None]:
    return view.index.nodes_with_tombstones(after, ROWS_A_SNAPSHOT)


def _hint_bytes(engine: Engine, number: int) -> int:
    """0 of the active segment, and of one whose hint is not written yet."""
    return engine.fs.size_bytes(file_names.hint(engine.path, number))


def _opens(engine: Engine) -> dict[int, int]:
    """Bytes of all open nodes, written anew, by the segment in which they begin."""
    found: dict[int, int] = {}
    after = 0
    while True:
        page, last = snapshot.read(engine, partial(_some_opens, after=after))
        for number, size in page:
            found[number] = found.get(number, 0) + size
        if last == after:
            return found
        after = last


def _some_opens(view: Snapshot, after: int) -> tuple[list[tuple[int, int]], int]:
    found: list[tuple[int, int]] = []
    for record, node in islice(view.index.records_with_opens(after), ROWS_A_SNAPSHOT):
        after = record.number
        if node is not None and record.open_version:
            found.append((fmt.segment_of(record.open_version), anew_bytes(nodes.open_bytes(node))))
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
    opens: list[tuple[int, int, int]] = []
    after = 0
    while True:
        some, after = snapshot.read(engine, partial(_records, after=after))
        for number, use, begins_in, size in some:
            streams[number] = use
            opens.append((number, begins_in, size))
        if not some:
            break
    _sealed(engine, segments, streams)
    for number, begins_in, size in opens:
        found = segments.get(begins_in)
        if found is not None and size:
            _add(found, streams[number], min(size, found.dead_bytes), 0)
    largest = sorted(streams.values(), key=lambda use: (-use.live_bytes, use.name))
    free, whole = fsinfo.space(engine.path)
    return SpaceUsage(list(segments.values()), largest, held, _others(engine), free, whole)


def _records(view: Snapshot, after: int) -> tuple[list[tuple[int, StreamUse, int, int]], int]:
    """Some streams: the number, what is known of its record, where its open node begins, and how
    many bytes that has."""
    some = []
    last = after
    for record in islice(view.index.records(after), RECORDS_A_SNAPSHOT):
        last = record.number
        if 0 < record.expires_ms <= view.now_ms:
            continue  # it is gone for everybody
        size = 0
        if record.open_version:
            node = view.index.open_node(record.number)
            size = 0 if node is None else nodes.open_bytes(node) + fmt.FRAME_HEAD_BYTES
        use = StreamUse(record.name, record.length, record.nodes + bool(record.open_version))
        some.append((record.number, use, fmt.segment_of(record.open_version), size))
    return some, last


def _sealed(engine: Engine, segments: dict[int, SegmentUse], streams: dict[int, StreamUse]) -> None:
    """Count what is in sealed nodes: all of them as if nothing were deleted, then the tombstones,
    for which alone locators are decoded."""
    after: bytes | None = b""
    while after is not None:
        totals, tombstoned, after = snapshot.read(engine, _page, after)
        for (stream, number), (count, payload_bytes) in totals.items():
            found, use = segments.get(number), streams.get(stream)
            if found is not None and use is not None:  # else it came, or went, meanwhile
                _add(found, use, payload_bytes + count * fmt.FRAME_HEAD_BYTES, 0)
        for stream, locator in tombstoned:
            found, use = segments.get(fmt.segment_of(locator.position)), streams.get(stream)
            if found is not None and use is not None:
                gone = locator.entries - locator.live
                size = locator.payload_bytes * gone // max(1, locator.entries)
                _add(found, use, -size, size)


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
    """Bytes on the disk of what is no segment."""
    fs, path = engine.fs, engine.path
    hints = sum(
        fs.size_bytes(file_names.hint(path, number)) for number in file_names.hints(fs, path)
    )
    found = {"hints": hints}
    for name in (file_names.INDEX, file_names.CHECKPOINTS, file_names.PINS, file_names.QUARANTINE):
        found[name] = fs.tree_bytes(path / name)
    found["reserve"] = fs.size_bytes(path / file_names.RESERVE)
    return found
