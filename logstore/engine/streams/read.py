"""Reading a range in batches: each on a snapshot of its own, resumed by ID.

Invariants: a batch reads at most NODES_MAX nodes or BYTES_MAX bytes, so that no snapshot lives
long; what is appended behind a batch is seen by the next one; entries come in the order of IDs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from logstore.codec import codec
from logstore.engine.reading.reader_loading import MISS
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.codec.entry_objects import EntryMaker
    from logstore.codec.node_types import ID
    from logstore.engine.reading.reader_interface import Reader

NODES_MAX = 64
BYTES_MAX = 1 << 20


Interval: TypeAlias = tuple[StreamID, StreamID]
SnapshotRead: TypeAlias = Callable[..., Any]  # ``snapshot.read``, or ``snapshot.read_at_once``


class Maker(Protocol):
    """What makes entries of a node: all of them, or those alone that are wanted."""

    @property
    def entries(self) -> Callable[[bytes, int, int, bytes, ID, ID, int, bool], list[Any]]:
        """Called with a node and its vector, two IDs, how many at most (-1: all) and whether in
        reverse: those between the IDs, in order."""
        ...


class Batch(NamedTuple):
    """Entries of a range, and the rest of it that was not read; None if it was read whole.

    They are what the codec finds in nodes (``NodeEntry``), or what a maker made of that.
    """

    entries: list[Any]
    rest: Interval | None


def record(
    engine: Engine, name: bytes, on_snapshot: SnapshotRead = snapshot.read
) -> StreamRecord | None:
    """The record of a stream, the caller's own; None if there is no such stream.

    ``on_snapshot`` reads what is not kept; it may refuse to wait for that.
    """
    reader = engine.reader
    if reader is None:
        alone: StreamRecord | None = on_snapshot(engine, Snapshot.record, name)
        return alone
    found: Any = reader.record(name)
    if found is MISS:
        found, stream = on_snapshot(engine, _record_in, reader, name)
        if stream is not None:
            reader.keep(stream)
    known: StreamRecord | None = found
    return known


def _record_in(view: Snapshot, reader: Reader, name: bytes) -> tuple[StreamRecord | None, Any]:
    return view.record(name), reader.of(view, name)


def schema_at(engine: Engine, name: bytes) -> int:
    """The position of the frame of a stream's schema; 0: it has none, or there is no stream."""
    reader = engine.reader
    found: Any = MISS if reader is None else reader.schema_at(name)
    if found is MISS:
        kept = record(engine, name)
        return 0 if kept is None else kept.schema_at
    at: int = found
    return at


def get(engine: Engine, name: bytes, id: StreamID, maker: EntryMaker) -> Any:
    """The entry with this ID, made; None if there is none. LostRowsError as ``read_batch``."""
    reader = engine.reader
    if reader is None:
        return _counted(engine, snapshot.read(engine, _get, name, id, maker))
    entry = reader.get(name, id, maker)
    if entry is MISS:
        entry, stream = snapshot.read(engine, _get_in, reader, name, id, maker)
        if stream is not None:
            reader.keep(stream)
    return _counted(engine, entry)


def _get_in(
    view: Snapshot, reader: Reader, name: bytes, id: StreamID, maker: EntryMaker
) -> tuple[Any, Any]:
    """An entry that is not kept, and the stream that may be kept now."""
    stream = reader.of(view, name)
    if stream is None:
        return None, None
    entry = reader.get_in(stream, view, id, maker)
    return (_get(view, name, id, maker) if entry is MISS else entry), stream


def keep_places(engine: Engine, name: bytes, ids: Sequence[StreamID]) -> None:
    """Have the read core keep where the nodes lie that IDs belong to, and the nodes."""
    reader = engine.reader
    if reader is not None:
        stream = snapshot.read(engine, _places_in, reader, name, ids)
        if stream is not None:
            reader.keep(stream)


def _places_in(view: Snapshot, reader: Reader, name: bytes, ids: Sequence[StreamID]) -> Any:
    stream = reader.of(view, name)
    for id in ids if stream is not None else ():
        reader.place_in(stream, view, *id)
    return stream


def _counted(engine: Engine, entry: Any) -> Any:
    if entry is not None:
        engine.metrics.count("read_entries", 1)
    return entry


def _get(view: Snapshot, name: bytes, id: StreamID, maker: EntryMaker) -> Any:
    """The entry, looked up in the index: the twin of what the read core does."""
    record = view.record(name)
    if record is None or not record.length or not record.first <= id <= record.last:
        return None
    number = record.number
    if record.open_version and record.open_master <= id:
        master, vector = record.open_master, b""
        node = view.open_node(number)
        if node is None:
            raise view.lost(record, "nothing")
        lp = nodes.open_listpack(view, record, node)
    else:
        floor = view.index.node_floor(number, id)
        if floor is None:  # the first entry is not above this one, so there is a node for it
            raise view.lost(record, "nothing")
        master, locator = floor
        if locator.last < id or not locator.live:
            return None
        vector = locator.vector
        lp = nodes.sealed_listpack(view, record, master, locator)
    entries = maker.entries(lp, *master, vector, id, id, 1, False)
    return entries[0] if entries else None


class RangeRead(NamedTuple):
    """What one batch reads: at most ``limit`` entries of a closed interval, or all if negative."""

    start: StreamID
    end: StreamID
    limit: int
    reverse: bool = False
    walked: Interval | None = None  # the interval of all batches, if this is one behind the first
    maker: Maker | None = None  # makes the entries


def read_batch(
    engine: Engine, name: bytes, asked: RangeRead, on_snapshot: SnapshotRead = snapshot.read
) -> Batch:
    """The next entries; ``on_snapshot``: as of ``record``.

    LostRowsError if the index has lost some of what there must be.
    """
    start, end, limit, reverse, walked, maker = asked
    if start > end or limit == 0:
        return Batch([], None)
    reader = engine.reader
    batch: Batch
    if reader is None:
        batch = on_snapshot(engine, _read, name, asked)
    else:
        decode = codec().entries if maker is None else maker.entries
        got = reader.batch(name, start, end, limit, reverse, walked, decode)
        if got is MISS:
            batch, stream = on_snapshot(engine, _read_in, reader, name, asked, decode)
            if stream is not None:
                reader.keep(stream)
        else:
            batch = _batch(start, end, reverse, *got)
    if batch.entries:
        engine.metrics.count("read_entries", len(batch.entries))
    return batch


def _read_in(
    view: Snapshot, reader: Reader, name: bytes, asked: RangeRead, decode: Any
) -> tuple[Batch, Any]:
    """A batch that is not kept, and the stream that may be kept now."""
    start, end, limit, reverse, walked, _ = asked
    stream = reader.of(view, name)
    if stream is None:
        return Batch([], None), None
    got = reader.batch_in(stream, view, start, end, limit, reverse, decode)
    if got is MISS:
        return _read(view, name, asked), stream
    entries, stop, met = got
    if met >= 0:
        record = view.record(name)
        assert record is not None
        confirm(view, record, start, end, met, walked)
    return _batch(start, end, reverse, entries, stop), stream


def _batch(
    start: StreamID, end: StreamID, reverse: bool, entries: list[Any], stop: StreamID | None
) -> Batch:
    """Entries of an interval, where the node that begins, or in reverse ends, at ``stop`` was not
    read."""
    if stop is None:
        return Batch(entries, None)
    if reverse:
        return Batch(entries, (start, _before(stop, end, entries)))
    return Batch(entries, (_after(stop, start, entries), end))


def read_on(
    once: Callable[[Callable[[Snapshot], Batch]], Batch],
    name: bytes,
    asked: RangeRead,
) -> Batch:
    """As ``read_batch``, on what ``once`` reads: a snapshot of the caller's, or the view inside a
    commit."""
    if asked.start > asked.end or asked.limit == 0:
        return Batch([], None)
    return once(lambda view: _read(view, name, asked))


def _read(view: Snapshot, name: bytes, asked: RangeRead) -> Batch:
    start, end, limit, reverse, walked, maker = asked
    record = view.record(name)
    if record is None or not record.length:
        return Batch([], None)
    walk = nodes.refs_reverse if reverse else nodes.refs
    decode: Callable[..., list[Any]] = codec().entries if maker is None else maker.entries
    entries: list[Any] = []
    count = size = live = 0
    for ref in walk(view, record, start, end):
        if count >= NODES_MAX or size >= BYTES_MAX:
            return _batch(start, end, reverse, entries, ref.last if reverse else ref.master)
        if not ref.live:
            continue
        live += ref.live
        lp, vector = nodes.listpack(view, record, ref)
        left = -1 if limit < 0 else limit - len(entries)
        entries += decode(lp, *ref.master, vector, start, end, left, reverse)
        if 0 <= limit <= len(entries):
            break
        count += 1
        size += len(lp)
    else:
        if isinstance(view, Snapshot):
            confirm(view, record, start, end, live, walked)
    return Batch(entries, None)


def confirm(
    view: Snapshot,
    record: StreamRecord,
    start: StreamID,
    end: StreamID,
    live: int,
    walked: Interval | None,
) -> None:
    """LostRowsError if a walk that came to its end met less than there must be: LMDB's pages have
    no checksum, and nodes of a damaged one seem not to be there.

    A walk of one batch is held against the entries, one of several against the nodes; where nothing
    was met, there must be a place where nothing is.
    """
    if start <= record.first and record.last <= end:
        if live != record.length:
            raise view.lost(record, f"{live} of {record.length} entries")
    elif walked is not None:
        if walked[0] <= record.first and record.last <= walked[1]:
            view.confirm_nodes(record, given=True)
    elif not live and record.first <= start <= record.last:
        if record.open_version and record.open_master <= start:
            node: object = view.open_node(record.number)
        else:
            node = view.index.node_floor(record.number, start)
        if node is None:
            raise view.lost(record, "nothing")


def _last(entries: list[Any]) -> StreamID:
    last = entries[-1]
    id: StreamID = StreamID(*last[1:3]) if isinstance(last, tuple) else last.id
    return id


def _after(master: StreamID, start: StreamID, entries: list[Any]) -> StreamID:
    """Where to go on with a node that was not read: all below it was looked at, given or not."""
    low = max(master, start)
    if not entries:
        return low
    last = _last(entries)
    return max(low, last.next()) if last < MAX_ID else MAX_ID


def _before(last: StreamID, end: StreamID, entries: list[Any]) -> StreamID:
    high = min(last, end)
    if not entries:
        return high
    given = _last(entries)
    return min(high, given.previous()) if given > ZERO_ID else ZERO_ID
