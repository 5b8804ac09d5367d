"""Reading a range in batches: each on a snapshot of its own, resumed by ID.

Invariants: a batch reads at most NODES_MAX nodes or BYTES_MAX bytes, so that no snapshot lives
long; what is appended behind a batch is seen by the next one; entries come in the order of IDs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from logstore.codec import codec
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.recent_opens import OpenNow, OpensAt
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord

if TYPE_CHECKING:
    from logstore.codec.interface import ID
    from logstore.codec.making import EntryMaker

NODES_MAX = 64
BYTES_MAX = 1 << 20


Interval: TypeAlias = tuple[StreamID, StreamID]


class Maker(Protocol):
    """What makes entries of a node: all of them, or those alone that are wanted."""

    def entries(
        self,
        lp: bytes,
        master_ms: int,
        master_seq: int,
        vector: bytes,
        start: ID,
        end: ID,
        limit: int,
        reverse: bool,
        /,
    ) -> list[Any]:
        """In order, those between two IDs; at most ``limit`` unless it is negative."""
        ...


class Batch(NamedTuple):
    """Entries of a range, and the rest of it that was not read; None if it was read whole.

    They are what the codec finds in nodes (``NodeEntry``), or what a maker made of that.
    """

    entries: list[Any]
    rest: Interval | None


def get(engine: Engine, name: bytes, id: StreamID, maker: EntryMaker) -> Any:
    """The entry with this ID, made; None if there is none. LostRowsError as ``read_batch``."""
    opens: OpensAt | None = None
    if engine.follow is None and not engine.closed and not engine.gone:
        opens = engine.recent_opens.now(engine.wake)
    if opens is not None:
        kept = opens.nodes.get(name)
        if kept is not None and kept.master <= id:
            if engine.wake.dropped != engine.dropped_seen:
                engine.notice_drops()
            return _counted(engine, kept.find(id, maker))
    entry, node = snapshot.read(engine, _get, name, id, maker)
    if opens is not None and node is not None:
        engine.recent_opens.keep(engine.wake, opens, name, node)
    return _counted(engine, entry)


def _counted(engine: Engine, entry: Any) -> Any:
    if entry is not None:
        engine.metrics.count("read_entries", 1)
    return entry


def _get(
    view: Snapshot, name: bytes, id: StreamID, maker: EntryMaker
) -> tuple[Any, OpenNow | None]:
    """The entry, and the open node if it was looked for there and may be kept."""
    record = view.record(name)
    if record is None or not record.length or not record.first <= id <= record.last:
        return None, None
    number, opened = record.number, None
    if record.open_version and record.open_master <= id:
        master, vector = record.open_master, b""
        node = view.open_node(number)
        if node is None:
            raise view.lost(record, "nothing")
        lp = node.lp
        if node.runs or lp is None:
            lp = nodes.open_listpack(view, record, node)
        if not record.expires_ms:
            opened = OpenNow(master, lp)
    else:
        floor = view.index.node_floor(number, id)
        if floor is None:  # the first entry is not above this one, so there is a node for it
            raise view.lost(record, "nothing")
        master, locator = floor
        if locator.last < id or not locator.live:
            return None, None
        vector = locator.vector
        lp = nodes.sealed_listpack(view, record, master, locator)
    entries = maker.entries(lp, *master, vector, id, id, 1, False)
    return (entries[0] if entries else None), opened


def read_batch(
    engine: Engine,
    name: bytes,
    start: StreamID,
    end: StreamID,
    limit: int,
    *,
    reverse: bool = False,
    walked: Interval | None = None,
    maker: Maker | None = None,
) -> Batch:
    """The next entries of a closed interval; at most ``limit`` unless it is negative.

    ``walked``: the interval of all batches, if this is one behind the first; ``maker``: makes the
    entries. LostRowsError if the index has lost some of what there must be.
    """
    if start > end or limit == 0:
        return Batch([], None)
    batch = snapshot.read(engine, _read, name, start, end, limit, reverse, walked, maker)
    if batch.entries:
        engine.metrics.count("read_entries", len(batch.entries))
    return batch


def read_on(
    once: Callable[[Callable[[Snapshot], Batch]], Batch],
    name: bytes,
    start: StreamID,
    end: StreamID,
    limit: int,
    *,
    reverse: bool = False,
    walked: Interval | None = None,
    maker: Maker | None = None,
) -> Batch:
    """The same on what ``once`` reads: a snapshot of the caller's, or the view inside a commit."""
    if start > end or limit == 0:
        return Batch([], None)
    return once(lambda view: _read(view, name, start, end, limit, reverse, walked, maker))


def _read(
    view: Snapshot,
    name: bytes,
    start: StreamID,
    end: StreamID,
    limit: int,
    reverse: bool,
    walked: Interval | None,
    maker: Maker | None,
) -> Batch:
    record = view.record(name)
    if record is None or not record.length:
        return Batch([], None)
    walk = nodes.refs_reverse if reverse else nodes.refs
    decode: Callable[..., list[Any]] = codec().entries if maker is None else maker.entries
    entries: list[Any] = []
    count = size = live = 0
    for ref in walk(view, record, start, end):
        if count >= NODES_MAX or size >= BYTES_MAX:
            if reverse:
                return Batch(entries, (start, _before(ref, end, entries)))
            return Batch(entries, (_after(ref, start, entries), end))
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


def _after(ref: nodes.NodeRef, start: StreamID, entries: list[Any]) -> StreamID:
    """Where to go on with a node that was not read: all below it was looked at, given or not."""
    low = max(ref.master, start)
    if not entries:
        return low
    last = _last(entries)
    return max(low, last.next()) if last < MAX_ID else MAX_ID


def _before(ref: nodes.NodeRef, end: StreamID, entries: list[Any]) -> StreamID:
    high = min(ref.last, end)
    if not entries:
        return high
    last = _last(entries)
    return min(high, last.previous()) if last > ZERO_ID else ZERO_ID
