"""Plans: the nodes of streams, cut into splits of about equal bytes, and pinned.

The locators of what is in segments, the vectors, and copies of the open nodes go to the plan's
snapshot file; a split names a byte range of it. Nodes that are still in the active segment are read
from there like others: bytes before the applied position never change, and the pin keeps the file.

Invariants: each stream is planned as it stood at one moment (`listing`), or all of them as at one
that is kept (`moment`): its pin is looked at once the plan's own holds every segment. The pin is
durable before the first snapshot is taken; until the plan is done it holds every segment, and for
``pins.PLANNING_MS`` only. A plan that fails leaves neither pin nor file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgpack

from logstore.codec.node_list import NodeList, segments_of
from logstore.engine.runtime import pins
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm import process_identity
from logstore.engine.shm.process_identity import Identity
from logstore.engine.snapshots import snapshot
from logstore.errors import CorruptionError, OptionError, SnapshotExpiredError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.log import file_names as logfiles
from logstore.log import pinfile
from logstore.log.shipped import ShippedFiles
from logstore.scan import blocks
from logstore.scan import snapshot_file as snapshotfile
from logstore.scan.blocks import Listed
from logstore.scan.listing import Listing
from logstore.scan.moment import Kept
from logstore.scan.snapshot_file import Split, Writer
from logstore.tuples import NamedTuple
from logstore.uri_path import UriPath

INLINE_BYTES = 48 << 10  # of locators, which a split takes along: pickled it is below 64 KiB
# A task costs Spark what reading 3 MB costs; what it reads is never in memory as a whole.
SPLIT_BYTES = 64 << 20
COUNT_ENTRIES = 2 << 20  # below which a second task costs more than it saves where nothing is read
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
    """How many splits: what was asked for, else as many for each core as its bytes need; never more
    than nodes."""
    wanted = min_partitions or cores * max(1, -(-data_bytes // (SPLIT_BYTES * cores)))
    return min(wanted, node_count)


def _parts(found: Listed, min_partitions: int | None, cores: int, counting: bool) -> int:
    """How many splits the plan has; to count takes time by entries, whatever their bytes."""
    count, size = len(found.nodes), found.nodes.size_bytes
    if counting:
        size, cores = 0, max(1, min(cores, -(-found.nodes.live // COUNT_ENTRIES)))
    return partition_count(size, count, min_partitions=min_partitions, cores=cores)


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
    moment: str = "",
    lossy: bool = False,
    counting: bool = False,
) -> Plan:
    """Plan the entries of a closed interval of streams; StreamNotFoundError if one is missing.

    A node that the plan itself must read and cannot, the open one, is an error; or, with ``lossy``,
    a node that who reads the plan meets as a damaged one.

    ``counting``: who reads the splits wants no columns, and so reads no nodes but those at the ends
    of the interval.

    With a ``moment`` the entries are those of then. The pin is for the process ``owner``, by
    default this one. A plan of the same that it made of the store as it is now is used again.
    ``home`` takes pin and snapshot file of a store that may not be written to. No compaction looks
    there: if somebody else compacts such a store, its readers may have to load again.
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
    if moment:  # also where a plan of it is there already: its time begins anew
        Kept(fs, engine.path, engine.uuid, moment, made_ms)
    # The position before the plan: what is committed after it makes the plan another one.
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
        splits, table_at = blocks.write(writer, place, found, cuts, _table)
        # Another plan can only find it once it names all this; the file is durable before that.
        made = pin._replace(plan=key, table_at=table_at, table_bytes=writer.offset - table_at)
        segments = found.nodes.segments()
        pins.narrow(fs, home, made, segments, engine.clock.now_ms(), ttl_ms, owner)
    return Plan(pin.id, splits, found.nodes.live, found.nodes.size_bytes)


def _listed(
    engine: Engine, names: Sequence[bytes], start: StreamID, end: StreamID, moment: str, lossy: bool
) -> Listed:
    """The nodes of now, or of a moment, whose pin is looked at behind the plan's own: what it holds
    is held by that from here on."""
    if not moment:
        try:
            return Listing(engine, names, start, end)
        except CorruptionError:  # what only seemed to be damage was looked at again
            if not lossy:
                raise
        return Listing(engine, names, start, end, lossy=True)
    now_ms = engine.clock.now_ms()
    kept = Kept(engine.fs, engine.path, engine.uuid, moment, now_ms)
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
    """A plan of a store at a URI, where nothing is written: each split has its part with it. No pin
    holds what it names; a newer state may take it away."""
    if not len(found.nodes):
        return Plan("", [], 0, 0)
    assert isinstance(engine.fs, ShippedFiles)
    parts = _parts(found, min_partitions, cores, counting)
    parts = min(len(found.nodes), max(parts, -(-found.nodes.nbytes // INLINE_BYTES)))
    writer = snapshotfile.InlineWriter(engine.uuid)
    place = Split(path.uri, "", engine.uuid, "", 0, 0, ZERO_ID, MAX_ID, 0, 0, 0)
    splits, _ = blocks.write(writer, place, found, bounds(found.nodes, parts), _table)
    whole: list[Split] = []
    for each in splits:
        split = each._replace(blocks=writer.part(each))
        numbers: set[int] = set()
        for _, items in snapshotfile.read(engine.fs, split):
            numbers |= segments_of(items)
        files = [logfiles.segment(Path(), number).as_posix() for number in sorted(numbers)]
        whole.append(split._replace(objects=tuple(engine.fs.parts[file] for file in files)))
    return Plan("", whole, found.nodes.live, found.nodes.size_bytes)


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
        except (SnapshotExpiredError, CorruptionError):
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
        entries = sum(split.entries for split in splits)
        return Plan(pin.id, splits, entries, sum(split.data_bytes for split in splits))
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
