"""Plans: the nodes of streams, cut into splits of about equal bytes, and pinned.

The locators of what is in segments, the vectors, and copies of the open nodes go to the plan's
snapshot file; a split names a byte range of it. Nodes that are still in the active segment are read
from there like others: bytes before the applied position never change, and the pin keeps the file.

Invariants: each stream is planned as it stood at one moment: the index is read in pieces of
PIECE_NODES nodes, a snapshot each, many small streams in one; of a larger stream what was added
since the first piece is left out, and if anything was deleted meanwhile the walk begins again, the
last time on one snapshot. The pin is
durable before the first snapshot is taken; until the plan is done it holds every segment, and for
PLANNING_MS only. A plan that fails leaves neither pin nor file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import msgpack

from logstore.codec import ID, Section
from logstore.codec.located import NodeList
from logstore.engine.runtime import pins, snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.shm import process
from logstore.engine.shm.process import Identity
from logstore.errors import CorruptionError, OptionError, SnapshotExpired, StreamNotFoundError
from logstore.ids import MAX_ID, U64_MAX, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.log import pinfile
from logstore.row_seal import LostRowsError
from logstore.scan import snapshot as snapshotfile
from logstore.scan import walk
from logstore.scan.snapshot import Split, Writer
from logstore.tuples import NamedTuple

PIECE_NODES = 1024
PIECE_STREAMS = 256
WALKS_MAX = 3
BLOCK_BYTES = 64 << 10
SPLIT_BYTES = 16 << 20
TTL_MS = pins.LEASE_MS_MAX
PLANNING_MS = 10 * 60 * 1000
MIN_PARTITIONS_MAX = 100_000


Mark: TypeAlias = tuple[int, int, int, int, ID]


class Plan(NamedTuple):
    """The splits, and the pin that holds what they name; ``pin_id`` is empty if there are none."""

    pin_id: str
    splits: list[Split]
    entries: int
    data_bytes: int


def partition_count(
    data_bytes: int, node_count: int, *, min_partitions: int | None, cores: int
) -> int:
    """How many splits: what was asked for, else by cores and bytes; never more than nodes."""
    wanted = min_partitions or max(cores, -(-data_bytes // SPLIT_BYTES))
    return min(wanted, node_count)


def bounds(found: NodeList, parts: int) -> list[int]:
    """Where each of ``parts`` runs of nodes of about equal bytes begins, and the end; none is
    empty."""
    count, total = len(found), found.size_bytes
    sums = [total * part // parts for part in range(1, parts)]
    cuts = [0]
    for part, (at, reached, size) in enumerate(found.places(sums), 1):
        wanted = sums[part - 1]
        if at > 1 and wanted - (reached - size) < reached - wanted:
            at -= 1  # noqa: PLW2901  (the sum before is nearer)
        cuts.append(min(max(at, cuts[-1] + 1), count - parts + part))
    return [*cuts, count]


def make(
    engine: Engine,
    names: Sequence[bytes],
    start: StreamID = ZERO_ID,
    end: StreamID = MAX_ID,
    *,
    min_partitions: int | None = None,
    cores: int = 1,
    ttl_ms: int = TTL_MS,
    home: Path | None = None,
    owner: Identity | None = None,
    purpose: str = "",
) -> Plan:
    """Plan the entries of a closed interval of streams; StreamNotFoundError if one is missing.

    The pin is for the process ``owner``, by default this one. A plan of the same that it made of
    the store as it is now is used again. ``home`` takes pin and snapshot file of a store that may
    not be written to. No compaction looks there: if somebody else compacts such a store, its
    readers may have to load again.
    """
    if min_partitions is not None and not 1 <= min_partitions <= MIN_PARTITIONS_MAX:
        raise OptionError(f"minPartitions must be 1 to {MIN_PARTITIONS_MAX}: {min_partitions}")
    if not 1 <= ttl_ms <= pins.LEASE_MS_MAX:
        raise OptionError(f"a pin lives between 1 and {pins.LEASE_MS_MAX} ms: {ttl_ms}")
    owner = owner or process.identity()
    made_ms = engine.clock.now_ms()
    fs, home = engine.fs, home or engine.path
    # The position before the plan: what is committed after it makes the plan another one.
    position = snapshot.read(engine, lambda view: view.meta.applied)
    asked = (owner, str(engine.path), list(names), start, end, min_partitions, cores, ttl_ms)
    key = hashlib.sha256(repr((position, asked)).encode()).hexdigest()
    shared = _shared(engine, home, key, made_ms)
    if shared is not None:
        return shared
    pin = pins.create(fs, home, made_ms, PLANNING_MS, purpose=purpose)
    try:
        found = _Found(engine, names, start, end)
        if not len(found.nodes):
            pins.release(fs, home, pin.id)
            return Plan("", [], 0, 0)
        total, count = found.nodes.size_bytes, len(found.nodes)
        parts = partition_count(total, count, min_partitions=min_partitions, cores=cores)
        writer = Writer(fs, home, engine.uuid, pin.id, made_ms)
        place = Split(str(engine.path), str(home), engine.uuid, pin.id, 0, 0, start, end, 0, 0, 0)
        splits, table_at = _write(writer, place, found, bounds(found.nodes, parts))
        # Another plan can only find it once it names all this; the file is durable before that.
        pin = pin._replace(plan=key, table_at=table_at, table_bytes=writer.offset - table_at)
        segments = found.nodes.segments()
        pins.narrow(fs, home, pin, segments, engine.clock.now_ms(), ttl_ms, owner)
    except BaseException:
        pins.release(fs, home, pin.id)
        raise
    return Plan(pin.id, splits, found.nodes.live, total)


# -- plans that are there already -----------------------------------------------------------
def _shared(engine: Engine, home: Path, key: str, now_ms: int) -> Plan | None:
    """The plan of this name, its lease renewed; None if there is none that can be read.

    Its owner is that of the new plan, so it is not given back for a dead one meanwhile; one that
    ends soon is left alone.
    """
    fs = engine.fs
    for pin in pins.living(fs, home, now_ms):
        if pin.plan != key or pin.expires_ms - now_ms < pin.ttl_ms // 4:
            continue
        try:
            pinfile.renew(fs, home, pin.id, now_ms)
            table = msgpack.unpackb(snapshotfile.read_table(fs, home, engine.uuid, pin))
        except (SnapshotExpired, CorruptionError):
            continue  # an erasure took it, or its file is damaged: a new one is made
        splits = [
            Split(
                str(engine.path),
                str(home),
                engine.uuid,
                pin.id,
                row[0],
                row[1],
                StreamID(*row[2:4]),
                StreamID(*row[4:6]),
                *row[6:],
            )
            for row in table
        ]
        entries, size = (sum(each) for each in zip(*[split[-2:] for split in splits], strict=True))
        return Plan(pin.id, splits, entries, size)
    return None


def _table(splits: Sequence[Split]) -> bytes:
    """What `_shared` reads."""
    packed: bytes = msgpack.packb(
        [
            (
                each.offset,
                each.size_bytes,
                *each.first,
                *each.last,
                each.nodes,
                each.entries,
                each.data_bytes,
            )
            for each in splits
        ]
    )
    return packed


# -- finding the nodes ----------------------------------------------------------------------
class _Changed(Exception):  # noqa: N818  (control flow of one walk)
    """Something was deleted since the first piece."""


class _Found:
    """The nodes of streams; ``sections``: what they are of, each from which node on."""

    def __init__(
        self, engine: Engine, names: Sequence[bytes], start: StreamID, end: StreamID
    ) -> None:
        self.nodes = walk.new_list()
        self.sections: list[tuple[int, Section]] = []
        self._engine = engine
        self._start = start
        self._end = end
        at = 0
        while at < len(names):
            after = snapshot.read(engine, self._small, names, at, self.nodes.mark())
            if after == at:
                self._large(names[at])
                after += 1
            at = after

    def _add(self, name: bytes, number: int, end: StreamID, before: int) -> None:
        if len(self.nodes) > before:
            self.sections.append((before, (name, number, self._start, end)))

    def _small(self, view: Snapshot, names: Sequence[bytes], at: int, mark: Mark) -> int:
        """Streams from one on, each whole, as far as they fit into a piece; the next one.

        It may be called again: it begins with what there was before.
        """
        found = self.nodes
        found.cut(mark)
        while self.sections and self.sections[-1][0] >= len(found):
            self.sections.pop()
        first = len(found)
        for place in range(at, min(at + PIECE_STREAMS, len(names))):
            record = _record(view, names[place])
            mark, before = found.mark(), len(found)
            room = PIECE_NODES - (before - first)
            end = min(self._end, record.last)
            follows, seen = walk.piece(view, record, self._start, end, found, max(room, 1))
            if follows is not None:
                found.cut(mark)
                return place
            if self._start <= record.first and record.last <= self._end:
                _confirm(view, record, seen)
            self._add(names[place], record.number, end, before)
        return min(at + PIECE_STREAMS, len(names))

    def _large(self, name: bytes) -> None:
        """One stream, in pieces."""
        mark, before = self.nodes.mark(), len(self.nodes)
        for tries in range(1, WALKS_MAX + 1):
            self.nodes.cut(mark)
            try:
                number, end = self._walk(name, at_once=tries == WALKS_MAX)
            except _Changed:
                continue
            except LostRowsError:  # the index was built anew
                if tries == WALKS_MAX:
                    raise
                continue
            self._add(name, number, end, before)
            return

    def _walk(self, name: bytes, *, at_once: bool) -> tuple[int, StreamID]:
        """The stream's number and the end of what was read of it."""
        engine, found = self._engine, self.nodes
        first: StreamRecord | None = None
        at: StreamID | None = self._start
        end = self._end
        while at is not None:
            record, at = snapshot.read(engine, _piece, found, found.mark(), name, at, end, at_once)
            if first is None:
                first, end = record, min(end, record.last)
            elif _deleted(record) != _deleted(first):
                raise _Changed
        assert first is not None
        if self._start <= first.first and first.last <= self._end:
            snapshot.read(engine, _confirm_all, name)
        return first.number, end


def _record(view: Snapshot, name: bytes) -> StreamRecord:
    record = view.record(name)
    if record is None:
        raise StreamNotFoundError("there is no such stream", stream=name)
    return record


def _confirm(view: Snapshot, record: StreamRecord, seen: int) -> None:
    """LostRowsError if nodes of a stream were not met because the index lost them."""
    lost = record.open_version and view.open_node(record.number) is None
    if lost or seen != record.nodes:  # dead ones before the first entry were not looked at
        view.confirm_nodes(record)


def _confirm_all(view: Snapshot, name: bytes) -> None:
    record = view.record(name)
    if record is not None:
        view.confirm_nodes(record, given=True)


def _deleted(record: StreamRecord) -> tuple[int, int]:
    """What stays the same while a stream is only added to."""
    return record.number, (record.entries_added - record.length) & U64_MAX


def _piece(
    view: Snapshot,
    found: NodeList,
    mark: Mark,
    name: bytes,
    start: StreamID,
    end: StreamID,
    at_once: bool,
) -> tuple[StreamRecord, StreamID | None]:
    """List the next nodes with live entries, or all; where to go on, None at the end."""
    found.cut(mark)  # of a snapshot that was given up
    record = _record(view, name)
    upto = min(end, record.last)
    at, _ = walk.piece(view, record, start, upto, found, PIECE_NODES)
    while at_once and at is not None:
        at, _ = walk.piece(view, record, at, upto, found, PIECE_NODES)
    return record, at


# -- the snapshot file ----------------------------------------------------------------------
def _write(
    writer: Writer, place: Split, found: _Found, cuts: Sequence[int]
) -> tuple[list[Split], int]:
    """The splits, and where in the file they are listed. A block ends with its split, with its
    stream, or at BLOCK_BYTES."""
    splits: list[Split] = []
    ends = sorted({*cuts, *(first for first, _ in found.sections)})
    pieces = iter(found.nodes.pieces(ends, BLOCK_BYTES))
    at = node = number = 0
    try:
        for high in cuts[1:]:
            split = place._replace(offset=writer.offset)
            while node < high:
                one = next(pieces)
                while number + 1 < len(found.sections) and found.sections[number + 1][0] <= node:
                    number += 1
                writer.block(found.sections[number][1], one.nodes, found.nodes.items(at, one.end))
                split = split._replace(
                    first=split.first if split.nodes else StreamID(*one.first),
                    last=StreamID(*one.last),
                    nodes=split.nodes + one.nodes,
                    entries=split.entries + one.live,
                    data_bytes=split.data_bytes + one.size_bytes,
                )
                at, node = one.end, node + one.nodes
            splits.append(split._replace(size_bytes=writer.offset - split.offset))
        table_at = writer.offset
        writer.block((b"", 0, ZERO_ID, ZERO_ID), 0, _table(splits))
        writer.finish()
    finally:
        writer.close()
    return splits, table_at
