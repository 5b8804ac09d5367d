"""Plans: the nodes of streams, cut into splits of about equal bytes, and pinned.

The locators of what is in segments, the vectors, and copies of the open nodes go to the plan's
snapshot file; a split names a byte range of it. Nodes that are still in the active segment are read
from there like others: bytes before the applied position never change, and the pin keeps the file.

Invariants: each stream is planned as it stood at one moment: the index is read in pieces of
PIECE_NODES nodes, a snapshot each, what was added since the first piece is left out, and if
anything was deleted meanwhile the walk begins again, the last time on one snapshot. The pin is
durable before the first snapshot is taken; until the plan is done it holds every segment, and for
PLANNING_MS only. A plan that fails leaves neither pin nor file.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path

import msgpack

from logstore.engine.runtime import pins, snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.shm import process
from logstore.engine.shm.process import Identity
from logstore.engine.txn import nodes
from logstore.errors import CorruptionError, OptionError, SnapshotExpired, StreamNotFoundError
from logstore.format import segment_of
from logstore.ids import MAX_ID, U64_MAX, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.log import pinfile
from logstore.row_seal import LostRowsError
from logstore.scan import snapshot as snapshotfile
from logstore.scan.snapshot import Item, Section, Split, Writer
from logstore.tuples import NamedTuple

PIECE_NODES = 1024
WALKS_MAX = 3
BLOCK_BYTES = 64 << 10
SPLIT_BYTES = 16 << 20
TTL_MS = pins.LEASE_MS_MAX
PLANNING_MS = 10 * 60 * 1000
MIN_PARTITIONS_MAX = 100_000


class Plan(NamedTuple):
    """The splits, and the pin that holds what they name; ``pin_id`` is empty if there are none."""

    pin_id: str
    splits: list[Split]
    entries: int
    data_bytes: int


class Items:
    """Packed items of the nodes found, compact: a plan may name millions of nodes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ends = array("Q")  # where in ``data`` each item ends
        self.sizes = array("Q")  # bytes of each node
        self.lives = array("Q")
        self.edges = array("Q")  # master ID and last ID of each node: four numbers
        self.segments: set[int] = set()
        self.sections: list[tuple[int, Section]] = []  # from which item on

    def __len__(self) -> int:
        return len(self.ends)

    def add(self, item: Item) -> None:
        """Add one node."""
        self.data += item.pack()
        self.ends.append(len(self.data))
        self.sizes.append(item.payload_bytes)
        self.lives.append(item.live)
        self.edges.extend((*item.master, *item.last))
        if item.position:
            self.segments.add(segment_of(item.position))

    def cut(self, count: int) -> None:
        """Forget all but the first nodes; a segment pinned for nothing does no harm."""
        del self.ends[count:], self.sizes[count:], self.lives[count:], self.edges[4 * count :]
        del self.data[self.ends[-1] if count else 0 :]

    def start_of(self, item: int) -> int:
        """Where in ``data`` an item starts."""
        return self.ends[item - 1] if item else 0


def partition_count(
    data_bytes: int, node_count: int, *, min_partitions: int | None, cores: int
) -> int:
    """How many splits: what was asked for, else by cores and bytes; never more than nodes."""
    wanted = min_partitions or max(cores, -(-data_bytes // SPLIT_BYTES))
    return min(wanted, node_count)


def bounds(sizes: Sequence[int], parts: int) -> list[int]:
    """Where each of ``parts`` runs of about equal sums begins, and the end; none is empty."""
    sums = list(accumulate(sizes))
    cuts = [0]
    for part in range(1, parts):
        target = sums[-1] * part // parts
        at = bisect_left(sums, target) + 1
        if at > 1 and target - sums[at - 2] < sums[at - 1] - target:
            at -= 1
        cuts.append(min(max(at, cuts[-1] + 1), len(sums) - parts + part))
    return [*cuts, len(sums)]


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
        items = Items()
        for name in names:
            _collect(engine, name, start, end, items)
        if not len(items):
            pins.release(fs, home, pin.id)
            return Plan("", [], 0, 0)
        total = sum(items.sizes)
        parts = partition_count(total, len(items), min_partitions=min_partitions, cores=cores)
        writer = Writer(fs, home, engine.uuid, pin.id, made_ms)
        place = Split(str(engine.path), str(home), engine.uuid, pin.id, 0, 0, start, end, 0, 0, 0)
        splits, table_at = _write(writer, place, items, bounds(items.sizes, parts))
        # Another plan can only find it once it names all this; the file is durable before that.
        pin = pin._replace(plan=key, table_at=table_at, table_bytes=writer.offset - table_at)
        pins.narrow(fs, home, pin, items.segments, engine.clock.now_ms(), ttl_ms, owner)
    except BaseException:
        pins.release(fs, home, pin.id)
        raise
    return Plan(pin.id, splits, sum(items.lives), total)


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


def _collect(engine: Engine, name: bytes, start: StreamID, end: StreamID, items: Items) -> None:
    before = len(items)
    for walk in range(1, WALKS_MAX + 1):
        items.cut(before)
        limit = PIECE_NODES if walk < WALKS_MAX else None
        try:
            section = _walk(engine, name, start, end, items, limit)
        except _Changed:
            continue
        except LostRowsError:  # the index was built anew
            if walk == WALKS_MAX:
                raise
            continue
        if len(items) > before:
            items.sections.append((before, section))
        return


def _walk(
    engine: Engine, name: bytes, start: StreamID, end: StreamID, items: Items, limit: int | None
) -> Section:
    first: StreamRecord | None = None
    at: StreamID | None = start
    upto = end
    while at is not None:
        record, found, at = snapshot.read(engine, _piece(name, at, end, limit))
        if first is None:
            first, end = record, min(end, record.last)
        elif _deleted(record) != _deleted(first):
            raise _Changed
        for item in found:
            items.add(item)
    assert first is not None
    if start <= first.first and first.last <= upto:
        snapshot.read(engine, partial(_confirm, name=name))
    return Section(first.number, name, start, end)


def _confirm(view: Snapshot, name: bytes) -> None:
    """LostRowsError if nodes of a stream were not met because the index lost them."""
    record = view.record(name)
    if record is not None:
        view.confirm_nodes(record, given=True)


def _deleted(record: StreamRecord) -> tuple[int, int]:
    """What stays the same while a stream is only added to."""
    return record.number, (record.entries_added - record.length) & U64_MAX


def _piece(
    name: bytes, start: StreamID, end: StreamID, limit: int | None
) -> Callable[[Snapshot], tuple[StreamRecord, list[Item], StreamID | None]]:
    """The record, the next nodes with live entries, and where to go on; None at the end."""

    def piece(view: Snapshot) -> tuple[StreamRecord, list[Item], StreamID | None]:
        record = view.record(name)
        if record is None:
            raise StreamNotFoundError("there is no such stream", stream=name)
        found: list[Item] = []
        for ref in nodes.refs(view, record, start, end):
            if not ref.live or ref.last < start:
                continue
            if limit is not None and len(found) >= limit:
                return record, found, found[-1].last.next()
            found.append(_item(view, record, ref))
        return record, found, None

    return piece


def _item(view: Snapshot, record: StreamRecord, ref: nodes.NodeRef) -> Item:
    if ref.locator is not None:
        return Item(
            ref.locator.position,
            ref.locator.payload_bytes,
            ref.live,
            ref.master,
            ref.last,
            ref.locator.vector,
            b"",
        )
    lp, vector = nodes.listpack(view, record, ref)
    return Item(0, len(lp), ref.live, ref.master, ref.last, vector, lp)


# -- the snapshot file ----------------------------------------------------------------------
def _write(writer: Writer, place: Split, items: Items, cuts: list[int]) -> tuple[list[Split], int]:
    """The splits, and where in the file they are listed."""
    splits: list[Split] = []
    try:
        for low, high in pairwise(cuts):
            offset = writer.offset
            _blocks(writer, items, low, high)
            split = place._replace(
                offset=offset,
                size_bytes=writer.offset - offset,
                first=StreamID(*items.edges[4 * low : 4 * low + 2]),
                last=StreamID(*items.edges[4 * high - 2 : 4 * high]),
                nodes=high - low,
                entries=sum(items.lives[low:high]),
                data_bytes=sum(items.sizes[low:high]),
            )
            splits.append(split)
        table_at = writer.offset
        writer.block(Section(0, b"", ZERO_ID, ZERO_ID), 0, _table(splits))
        writer.finish()
    finally:
        writer.close()
    return splits, table_at


def _blocks(writer: Writer, items: Items, low: int, high: int) -> None:
    """Write the items of one split: a block ends with the split, its stream or BLOCK_BYTES."""
    number = bisect_right(items.sections, low, key=lambda each: each[0]) - 1
    at = low
    while at < high:
        section = items.sections[number][1]
        number += 1
        stop = min(high, items.sections[number][0] if number < len(items.sections) else high)
        while at < stop:
            after = at + 1
            while after < stop and items.ends[after] - items.start_of(at) <= BLOCK_BYTES:
                after += 1
            data = items.data[items.start_of(at) : items.start_of(after)]
            writer.block(section, after - at, data)
            at = after
