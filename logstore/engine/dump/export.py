"""A stream as servers hold it: its nodes' exact bytes with their tombstones, its groups.

Invariants: an export is of one moment, that of its first snapshot. The index is read in pieces, a
snapshot each; what was added since is left out; if anything was deleted or compacted meanwhile,
which the record's counts and the sum of live entries tell, the walk begins again, the last time on
one snapshot. The nodes' bytes are read afterwards, without a snapshot: sealed nodes never change.
If a segment was dropped before they were read, all begins again (``read``), or, where a pin holds
them (``pinned``), it cannot be dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from logstore.codec import codec
from logstore.codec.pending_run import EVERYONE
from logstore.engine.dump import dumped_ids
from logstore.engine.runtime import pins
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.segments import SegmentGone
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import (
    CorruptionError,
    DamagedStoreError,
    SnapshotExpiredError,
    StreamNotFoundError,
    TooLargeError,
)
from logstore.features.schema_rows import SchemaRows
from logstore.format import POSITION_SEGMENT_BITS
from logstore.ids import MAX_ID, U64_MAX, ZERO_ID, StreamID
from logstore.index.group_keys import NO_ONE, GroupRecord
from logstore.index.keys import Locator, StreamRecord
from logstore.log import pinfile
from logstore.rdb.value import (
    NOBODY,
    ConsumerValue,
    GroupValue,
    Node,
    PendingValue,
    StreamInfoValue,
    StreamValue,
)
from logstore.tuples import NamedTuple

PIECE_NODES = 4096
WALKS_MAX = 3
READS_MAX = 5
READ_MAX_BYTES = 1 << 30


class Export(NamedTuple):
    """What was found of a stream: where its sealed nodes lie, its open node, all the rest.

    Nodes without a live entry, which the store keeps until compaction as the peers keep them, are
    not among them: newer servers refuse a whole file for one.
    """

    stream: int
    info: StreamInfoValue
    sealed: list[tuple[StreamID, Locator]]
    open_node: Node | None
    schema: str = ""  # the text of its schema; empty: it has none
    pin_id: str = ""  # of the pin that is renewed while the nodes are read; empty: there is none

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return len(self.sealed) + (self.open_node is not None)

    @property
    def node_bytes(self) -> int:
        """About how many bytes the nodes have."""
        open_bytes = len(self.open_node[1]) if self.open_node is not None else 0
        return sum(locator.payload_bytes for _, locator in self.sealed) + open_bytes

    def nodes(self, engine: Engine) -> Iterator[Node]:
        """The nodes as servers would hold them; SegmentGone if no pin held them."""
        fold = codec().fold
        clock, pin = engine.clock, self.pin_id
        lease = pinfile.Lease(engine.fs, engine.path, pin, clock.now_ms()) if pin else None
        for master, locator in self.sealed:
            if lease is not None:
                lease.keep(clock.now_ms())
            lp = engine.segments.node(self.stream, master, locator)
            yield master.packed(), fold(lp, locator.vector) if locator.vector else lp
        if self.open_node is not None:
            yield self.open_node


def read(engine: Engine, name: bytes, most_bytes: int = READ_MAX_BYTES) -> StreamValue:
    """The whole stream, in memory; StreamNotFoundError, TooLargeError."""
    for _ in range(READS_MAX):
        found = _find(engine, name)
        if found.node_bytes > most_bytes:
            raise TooLargeError(
                f"the stream's nodes have {found.node_bytes} bytes, more than are taken into "
                f"memory at once ({most_bytes}): write an RDB file",
                stream=name,
            )
        try:
            return StreamValue(list(found.nodes(engine)), found.info)
        except SegmentGone:
            continue
    with pinned(engine, name) as found:
        return StreamValue(list(found.nodes(engine)), found.info)


@contextmanager
def pinned(engine: Engine, name: bytes) -> Iterator[Export]:
    """The stream while nothing of it goes away, so that it is read as slowly as it must be.

    Needs a store that may be written to. ``nodes`` raises SnapshotExpiredError if an erasure took
    the pin away, or nothing was read for an hour; DamagedStoreError if a segment is gone though the
    pin holds it.
    """
    fs, path = engine.fs, engine.path
    pin = pins.create(fs, path, engine.clock.now_ms(), pins.LEASE_MS_MAX, purpose="dump")
    try:
        found = _find(engine, name)
        shift = POSITION_SEGMENT_BITS
        segments = {locator.position >> shift for _, locator in found.sealed}
        pins.narrow(fs, path, pin, segments, engine.clock.now_ms(), pins.LEASE_MS_MAX)
        yield found._replace(pin_id=pin.id)
    except SegmentGone as gone:
        try:
            pinfile.check(fs, path, pin.id, engine.clock.now_ms())
        except SnapshotExpiredError:
            raise SnapshotExpiredError(
                "what was to be exported was erased meanwhile, or nothing was read for an hour: "
                "begin again",
                stream=name,
            ) from None
        raise DamagedStoreError(
            "a segment that the stream needs is missing: run 'logstore check'",
            stream=name,
            segment=gone.args[0],
        ) from None
    finally:
        pins.release(fs, path, pin.id)


class _StreamChanged(Exception):  # noqa: N818  (control flow of one walk)
    """Something was deleted or compacted since the first piece."""


def _find(engine: Engine, name: bytes) -> Export:
    for _ in range(WALKS_MAX - 1):
        try:
            return _walk(engine, name, PIECE_NODES)
        except _StreamChanged:
            continue
    try:
        return _walk(engine, name, None)
    except _StreamChanged:
        raise CorruptionError(
            "the index does not have as many entries as it says: run 'logstore check'", stream=name
        ) from None


def _walk(engine: Engine, name: bytes, limit: int | None) -> Export:
    found, record = snapshot.read(engine, partial(_begin, name=name, limit=limit))
    taken = len(found.sealed)
    while limit is not None and taken == limit:
        after = found.sealed[-1][0]
        more = snapshot.read(engine, partial(_go_on, before=record, after=after, limit=limit))
        found.sealed.extend(more)
        taken = len(more)
    live = sum(locator.live for _, locator in found.sealed)
    if found.open_node is not None:
        live += codec().counts(found.open_node[1])[0]
    if live != record.length:
        raise _StreamChanged
    return _living(found)


def seen(view: Snapshot, name: bytes) -> Export:
    """The stream on a view that is at hand already; StreamNotFoundError."""
    return _living(_begin(view, name, None)[0])


def behind(view: Snapshot, name: bytes, after: StreamID | None) -> Export:
    """The same, of the sealed nodes only those behind the one with this master ID."""
    found, record = _begin(view, name, 0)
    return _living(found._replace(sealed=_sealed(view, record, after, None)))


def undisturbed(found: Export) -> tuple[int, int, StreamID]:
    """What stays the same while a stream is only added to, or compacted."""
    info = found.info
    added = info.length if info.entries_added is None else info.entries_added
    return found.stream, (added - info.length) & U64_MAX, StreamID(*info.max_deleted)


def _living(found: Export) -> Export:
    """Without nodes of which all entries were deleted."""
    sealed = [each for each in found.sealed if each[1].live]
    node = found.open_node
    empty = node is not None and not codec().counts(node[1])[0]
    return found._replace(sealed=sealed, open_node=None if empty else node)


def _begin(view: Snapshot, name: bytes, limit: int | None) -> tuple[Export, StreamRecord]:
    """All but the nodes behind the first piece."""
    record = view.record(name)
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=name)
    open_node: Node | None = None
    ref = nodes.open_ref(view, record)
    if ref is not None:
        open_node = (ref.master.packed(), nodes.listpack(view, record, ref)[0])
    info = StreamInfoValue(
        record.length,
        record.last,
        record.first,
        record.max_deleted,
        record.entries_added,
        [group_value(view, each) for each in view.index.groups.of_stream(record.number)],
        dumped_ids.export(view, record.number),
    )
    sealed = _sealed(view, record, None, limit)
    schema = SchemaRows(view.index).text(record.number) if record.schema_at else None
    return Export(record.number, info, sealed, open_node, schema or ""), record


def _go_on(
    view: Snapshot, before: StreamRecord, after: StreamID, limit: int
) -> list[tuple[StreamID, Locator]]:
    """The next piece of sealed nodes."""
    record = view.record(before.name)
    if record is None or _undisturbed(record) != _undisturbed(before):
        raise _StreamChanged
    return _sealed(view, before, after, limit)


def _undisturbed(record: StreamRecord) -> tuple[int, int, StreamID]:
    """What stays the same while a stream is only added to."""
    return record.number, (record.entries_added - record.length) & U64_MAX, record.max_deleted


def _sealed(
    view: Snapshot, record: StreamRecord, after: StreamID | None, limit: int | None
) -> list[tuple[StreamID, Locator]]:
    """Sealed nodes behind ``after`` that the record knows of: not those that were made since."""
    found: list[tuple[StreamID, Locator]] = []
    for master, locator in view.index.nodes(record.number, after or ZERO_ID, MAX_ID):
        if master == after:
            continue
        if record.open_version and master >= record.open_master:
            break
        if len(found) == limit:
            break
        found.append((master, locator))
    return found


def group_value(view: Snapshot, group: GroupRecord) -> GroupValue:
    """A group with its consumers and pending entries."""
    txn = view.index.groups
    made = GroupValue(group.name, group.last, group.entries_read)
    places = {NO_ONE: NOBODY}
    for place, consumer in enumerate(txn.consumers(group.number), 1):
        places[consumer.number] = place
        made.consumers.append(ConsumerValue(consumer.name, consumer.seen_ms, consumer.active_ms))
    pending, line = PendingValue(), list[tuple[int, bytes]]()
    for run in txn.runs(group.number):  # with the times that they have: also of what was put off
        for ms, seq, owner, time_ms, count in run.between(run.first, run.last, EVERYONE):
            id = StreamID(ms, seq).packed()
            if owner == NO_ONE:
                line.append((time_ms, id))
            pending.add(id, time_ms if owner != NO_ONE else 0, count, places[owner])
    made.pending = pending
    made.nacked = [id for _, id in sorted(line)]
    return made
