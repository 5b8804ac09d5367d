"""What takes the space of a store: by segment and by stream, live, tombstoned and dead; pins.

For ``logstore du`` and ``map``, and the web view. Of a segment's bytes, *live* are entries that are
there, of sealed nodes and of open ones; *tombstoned* are deleted entries inside nodes that live;
*dead* is all else: what was written anew elsewhere, what was trimmed, frames of groups and of
settings, heads.

Invariants: read in short snapshots, nothing is changed; the three add up to the size of the file.
Deleted entries of a node are counted by their share of its entries. An open node counts where it
begins, as far as that segment has room.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from logstore import format as fmt
from logstore import fsinfo
from logstore.compaction import measure
from logstore.engine.runtime import pins
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.index.keys import Locator
from logstore.log import file_names, segment
from logstore.log.pinfile import Pin

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
        """What is neither live nor tombstoned."""
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
class Usage:
    """All of a store."""

    segments: list[SegmentUse]  # oldest first
    streams: list[StreamUse]  # the largest first
    pins: list[Pin]
    other_bytes: dict[str, int]  # of what is no segment: hints, index, checkpoints, pins ...
    free_bytes: int  # of the file system, for this user
    disk_bytes: int  # of the file system in all

    @property
    def log_bytes(self) -> int:
        """Of all segments."""
        return sum(each.size_bytes for each in self.segments)

    @property
    def live_bytes(self) -> int:
        """Of all segments."""
        return sum(each.live_bytes for each in self.segments)

    @property
    def tombstoned_bytes(self) -> int:
        """Of all segments."""
        return sum(each.tombstoned_bytes for each in self.segments)

    @property
    def dead_bytes(self) -> int:
        """Of all segments."""
        return sum(each.dead_bytes for each in self.segments)


def usage(engine: Engine, held: list[Pin] | None = None) -> Usage:
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
    return Usage(list(segments.values()), largest, held, _others(engine), free, whole)


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
