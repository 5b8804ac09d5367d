"""Plans: the nodes of streams, cut into splits of about equal bytes, and pinned.

The plan's snapshot file holds the locators of nodes in segments, the vectors, and copies of the
open nodes; a split names a byte range of it. Nodes in the active segment are read from there like
others: bytes before the applied position never change, and the pin keeps the file.

A pin keeps the segments of a plan from compaction. So a segment that is gone, or is shorter than
when it was sealed, was damaged by somebody else: `lost_segments` tells which nodes of the plan that
concerns. It looks at the sizes of files, and reads none.

Invariants: each stream is planned as it stood at one moment (`listing`), or all streams as they
stood at a kept moment (`moment`), whose pin is checked once the plan's own pin holds every segment.
The plan's pin is durable before the first snapshot is taken. Until the plan is made it holds every
segment, for ``pins.PLANNING_MS`` at most. A plan that fails leaves neither pin nor file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgpack

from logstore import format as fmt
from logstore.codec.node_list import NodeList, read_item, segments_of
from logstore.engine.runtime import pins
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm import process_identity
from logstore.engine.shm.process_identity import Identity
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import CorruptionError, OptionError, SnapshotExpiredError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.log import file_names, pinfile
from logstore.log.shipped import ShippedFiles
from logstore.scan import snapshot_file
from logstore.scan.listing import Listing
from logstore.scan.moment import KeptMoment
from logstore.scan.record_batches import Loss, Losses
from logstore.scan.snapshot_file import Listed, Split, Writer
from logstore.store_path import UriPath
from logstore.tuples import NamedTuple

INLINE_BYTES = 48 << 10  # of locators in a split: pickled, the split is below 64 KiB
# A task costs Spark as much as reading 3 MB; its split is never in memory as a whole.
SPLIT_BYTES = 64 << 20
COUNT_ENTRIES = 2 << 20  # of a task that only counts: with fewer, one more costs more than it saves
TTL_MS = pins.LEASE_MS_MAX
MIN_PARTITIONS_MAX = 100_000


class Plan(NamedTuple):
    """The splits, and the pin that holds what they name; ``pin_id`` is empty if there are none."""

    pin_id: str
    splits: list[Split]
    entries: int
    data_bytes: int


def partition_count(
    data_bytes: int, node_count: int, *, min_partitions: int | None, cores: int
) -> int:
    """How many splits: what was asked for, else as many for each core as the bytes need; at most
    one a node."""
    wanted = min_partitions or cores * max(1, -(-data_bytes // (SPLIT_BYTES * cores)))
    return min(wanted, node_count)


def _parts(found: Listed, min_partitions: int | None, cores: int, counting: bool) -> int:
    """How many splits the plan has. The time of a count depends on entries, not on bytes."""
    count, size = len(found.nodes), found.nodes.size_bytes
    if counting:
        size, cores = 0, max(1, min(cores, -(-found.nodes.live // COUNT_ENTRIES)))
    return partition_count(size, count, min_partitions=min_partitions, cores=cores)


def bounds(found: NodeList, parts: int) -> list[int]:
    """Cut nodes into ``parts`` of about equal bytes, none of them empty: where each begins, and the
    end of the last."""
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
    moment: str = "",
    lossy: bool = False,
    counting: bool = False,
) -> Plan:
    """Plan the entries of a closed interval of streams; StreamNotFoundError if one is missing.

    The plan reads the open node itself. If that is damaged it is an error; with ``lossy`` it is
    listed, and the reader of the plan finds a damaged node.

    ``counting``: the reader wants no columns, and so reads only the nodes at the ends of the
    interval.

    ``moment``: the token of a kept moment, whose entries are planned. ``owner``: the process that
    the pin is for; None: this one. If that process made an equal plan, and nothing was committed
    since, that plan is used again. ``home``: the directory for pin and snapshot file where the
    store may not be written to. Compaction does not look there: if somebody compacts such a store,
    its readers may have to load again.
    """
    if min_partitions is not None and not 1 <= min_partitions <= MIN_PARTITIONS_MAX:
        raise OptionError(f"minPartitions must be 1 to {MIN_PARTITIONS_MAX}: {min_partitions}")
    if not 1 <= ttl_ms <= pins.LEASE_MS_MAX:
        raise OptionError(f"a pin lives between 1 and {pins.LEASE_MS_MAX} ms: {ttl_ms}")
    if isinstance(engine.path, UriPath):
        listed = _listed(engine, names, start, end, "", lossy)
        return _inline(engine, engine.path, listed, min_partitions, cores, counting)
    owner = owner or process_identity.identity()
    made_ms = engine.clock.now_ms()
    fs, home = engine.fs, home or engine.path
    if moment:  # renews its lease, also where an equal plan is there already
        KeptMoment(fs, engine.path, engine.uuid, moment, made_ms)
    # The position before the plan: a later commit makes the plan another one.
    position = 0 if moment else snapshot.read(engine, lambda view: view.meta.applied)
    what = (str(engine.path), list(names), start, end, moment, lossy)
    asked = (owner, *what, min_partitions, cores, ttl_ms, counting)
    key = hashlib.sha256(repr((position, asked)).encode()).hexdigest()
    shared = _shared(engine, home, key, made_ms)
    if shared is not None:
        return shared
    with pins.planning(fs, home, made_ms, purpose=purpose) as pin:
        found = _listed(engine, names, start, end, moment, lossy)
        if not len(found.nodes):
            pins.release(fs, home, pin.id)
            return Plan("", [], 0, 0)
        parts = _parts(found, min_partitions, cores, counting)
        writer = Writer(fs, home, engine.uuid, pin.id, made_ms)
        place = Split(str(engine.path), str(home), engine.uuid, pin.id, 0, 0, start, end, 0, 0, 0)
        cuts = bounds(found.nodes, parts)
        splits, table_at = snapshot_file.write_splits(writer, place, found, cuts, _table)
        # An equal plan finds this one by its key only from here on; the file is durable before.
        made = pin._replace(plan=key, table_at=table_at, table_bytes=writer.offset - table_at)
        segments = found.nodes.segments()
        pins.narrow(fs, home, made, segments, engine.clock.now_ms(), ttl_ms, owner)
    return Plan(pin.id, splits, found.nodes.live, found.nodes.size_bytes)


def _listed(
    engine: Engine, names: Sequence[bytes], start: StreamID, end: StreamID, moment: str, lossy: bool
) -> Listed:
    """The nodes of the store as it is now, or at a moment. The moment's pin is checked after the
    plan's own was made: from then on the plan's pin holds its segments."""
    if not moment:
        try:
            return Listing(engine, names, start, end)
        except CorruptionError:  # real damage: the listing has read again before it raised
            if not lossy:
                raise
        return Listing(engine, names, start, end, lossy=True)
    now_ms = engine.clock.now_ms()
    kept = KeptMoment(engine.fs, engine.path, engine.uuid, moment, now_ms)
    return kept.listed(names, start, end)


# -- plans of what was shipped --------------------------------------------------------------
def _inline(
    engine: Engine,
    path: UriPath,
    found: Listed,
    min_partitions: int | None,
    cores: int,
    counting: bool,
) -> Plan:
    """A plan of a store at a URI, where nothing is written: each split carries its blocks. No pin
    holds the objects that it names; a newer state may remove them."""
    if not len(found.nodes):
        return Plan("", [], 0, 0)
    assert isinstance(engine.fs, ShippedFiles)
    parts = _parts(found, min_partitions, cores, counting)
    parts = min(len(found.nodes), max(parts, -(-found.nodes.nbytes // INLINE_BYTES)))
    writer = snapshot_file.InlineWriter(engine.uuid)
    place = Split(path.uri, "", engine.uuid, "", 0, 0, ZERO_ID, MAX_ID, 0, 0, 0)
    splits, _ = snapshot_file.write_splits(writer, place, found, bounds(found.nodes, parts), _table)
    whole: list[Split] = []
    for each in splits:
        split = each._replace(blocks=writer.part(each))
        numbers: set[int] = set()
        for _, items in snapshot_file.read(engine.fs, split):
            numbers |= segments_of(items)
        files = [file_names.segment(Path(), number).as_posix() for number in sorted(numbers)]
        whole.append(split._replace(objects=tuple(engine.fs.parts[file] for file in files)))
    return Plan("", whole, found.nodes.live, found.nodes.size_bytes)


# -- plans that are there already -----------------------------------------------------------
def _shared(engine: Engine, home: Path, key: str, now_ms: int) -> Plan | None:
    """The plan of this key, its lease renewed; None if there is none that can be read.

    The key names the owner, so the plan is not given back as that of a dead process. A plan whose
    lease ends soon is not used.
    """
    fs = engine.fs
    for pin in pins.living(fs, home, now_ms):
        if pin.plan != key or pin.expires_ms - now_ms < pin.ttl_ms // 4:
            continue
        try:
            pinfile.renew(fs, home, pin.id, now_ms)
            table = msgpack.unpackb(snapshot_file.read_table(fs, home, engine.uuid, pin))
        except (SnapshotExpiredError, CorruptionError):
            continue  # an erasure removed it, or its file is damaged: a new plan is made
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
        entries = sum(split.entries for split in splits)
        return Plan(pin.id, splits, entries, sum(split.data_bytes for split in splits))
    return None


def _table(splits: Sequence[Split]) -> bytes:
    """The splits of a plan, as `_shared` reads them."""
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


def lost_segments(engine: Engine, made: Plan) -> list[Loss]:
    """The losses of a plan, in its order; none where its pin is not in the store."""
    if not made.pin_id or made.splits[0].home != made.splits[0].store:
        return []
    there = _short_segments(engine, made.pin_id)
    if not there:
        return []
    losses = Losses(allowed=True)
    for split in made.splits:
        for section, items in snapshot_file.read(engine.fs, split):
            at, lost_upto = 0, -1
            while (one := read_item(items, at)) is not None:
                item, after = one
                segment, offset = fmt.position_parts(item.position)
                end = offset + fmt.FRAME_HEAD_BYTES + item.size_bytes
                if end > there.get(segment, end):
                    error = _segment_error(segment, there[segment])
                    losses.add_node(section, item, error, beside=at == lost_upto)
                    lost_upto = after
                at = after
    return losses.found


def _short_segments(engine: Engine, pin_id: str) -> dict[int, int]:
    """The sizes of pinned segments that are shorter than when they were sealed; 0: gone."""
    pin = pinfile.read(engine.fs, engine.path, pin_id)
    if pin is None or pin.segments is None:
        return {}
    sealed = snapshot.read(engine, _sealed_bytes, sorted(pin.segments))
    sizes = {
        number: engine.fs.size_bytes(file_names.segment(engine.path, number)) for number in sealed
    }
    return {number: size for number, size in sizes.items() if size < max(1, sealed[number])}


def _sealed_bytes(view: Snapshot, numbers: Sequence[int]) -> dict[int, int]:
    """The sizes of segments when they were sealed; 0 for one that is not sealed."""
    rows = {number: view.index.segment(number) for number in numbers}
    return {number: 0 if row is None else row.total_bytes for number, row in rows.items()}


def _segment_error(segment: int, size_bytes: int) -> CorruptionError:
    why = f"the segment's file ends at {size_bytes}" if size_bytes else "the segment's file is gone"
    return CorruptionError(
        f"{why}: restore it from a backup, or see docs/recovery.md", segment=segment
    )
