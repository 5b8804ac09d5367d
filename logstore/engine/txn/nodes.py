"""A stream's nodes as an operation or a reader sees them: the sealed ones, then the open one.

Invariants: the open node is the last; a node's ``live`` counts what is left after its vector; a
listpack is only looked into through the codec; a deleted entry is never found. What reads works
alike in a write transaction and on a snapshot. The open node stands in the index as its bytes while
it is small, and as a list of its frames when it is large, for an inline node never exceeds
OPEN_INLINE_MAX_BYTES: rewriting a large value at each add would be quadratic. The skeleton of a
large one holds the master entry and nothing else, and its first run counts the live entries and the
tombstones of the listpack that it begins with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from logstore.codec import codec
from logstore.codec.listpack import encode_int, finish
from logstore.engine.runtime.record_cache import CachedNode
from logstore.engine.runtime.segments import NodeSource, Segments
from logstore.errors import CorruptionError
from logstore.format import APPEND_BODY, OPEN_BODY
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.keys import Locator, Meta, NodeFrame, OpenNode, StreamRecord
from logstore.index.txn import IndexTxn
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.engine.txn.view import TxnView


_COUNTERS_MAX_BYTES = 8  # by which the two counters of a node may change their width
AHEAD_MAX = 64  # entries that a lookup decodes at a time


class View(Protocol):
    """What a write transaction and a read snapshot have in common."""

    @property
    def index(self) -> IndexTxn:
        """The index, in one transaction."""
        ...

    @property
    def segments(self) -> NodeSource:
        """Where nodes are read from."""
        ...

    @property
    def meta(self) -> Meta:
        """Where the index stands."""
        ...

    def open_node(self, stream: int) -> OpenNode | None:
        """A stream's open node."""
        ...


class NodeRef(NamedTuple):
    """A node: sealed with a locator, or the open one without."""

    master: StreamID
    locator: Locator | None
    live: int
    deleted: int  # tombstones; for a sealed node only those of its vector
    last: StreamID

    @property
    def version(self) -> int:
        """Position of the node's version; 0 for the open node, whose record has it."""
        return self.locator.position if self.locator is not None else 0


def open_counts(node: OpenNode) -> tuple[int, int]:
    """Live entries and tombstones of the open node."""
    assert node.lp is not None
    if not node.runs:
        return codec().counts(node.lp)
    gone = node.vector.bit_count()
    return node.totals()[0] - gone, node.runs[0].elements + gone


def open_bytes(node: OpenNode) -> int:
    """Bytes of the open node's listpack."""
    if not node.runs:
        assert node.lp is not None
        return len(node.lp)
    first = node.runs[0]
    heads = OPEN_BODY.size + APPEND_BODY.size * (len(node.runs) - 1)
    size = node.totals()[1] - heads
    for now, then in zip(open_counts(node), (first.entries, first.elements), strict=True):
        size += len(encode_int(now)) - len(encode_int(then))
    return size


def open_node_bytes(view: View, record: StreamRecord) -> int:
    """Bytes of the listpack of a stream's open node; 0 if it has none."""
    node = view.open_node(record.number) if record.open_version else None
    return 0 if node is None else open_bytes(node)


def open_ref(view: View, record: StreamRecord) -> NodeRef | None:
    """The open node of a stream."""
    if not record.open_version:
        return None
    node = view.open_node(record.number)
    if node is None:
        return None
    live, dead = open_counts(node)
    if node.runs:
        lp = open_listpack(view, record, node)
    else:
        assert node.lp is not None
        lp = node.lp
    last = StreamID(*codec().last_id(lp, *record.open_master))
    return NodeRef(record.open_master, None, live, dead, last)


def sealed_ref(master: StreamID, locator: Locator) -> NodeRef:
    """A sealed node."""
    live = locator.live
    return NodeRef(master, locator, live, locator.entries - live, locator.last)


def refs(
    view: View, record: StreamRecord, start: StreamID = ZERO_ID, end: StreamID = MAX_ID
) -> Iterator[NodeRef]:
    """Nodes that may hold IDs of the closed interval, ascending."""
    floor = view.index.node_floor(record.number, start)
    low = floor[0] if floor is not None else start
    for master, locator in view.index.nodes(record.number, low, end):
        if locator.last >= start:
            yield sealed_ref(master, locator)
    if record.open_version and record.open_master <= end:
        last = open_ref(view, record)
        if last is not None:
            yield last


def refs_reverse(
    view: View, record: StreamRecord, start: StreamID = ZERO_ID, end: StreamID = MAX_ID
) -> Iterator[NodeRef]:
    """Nodes that may hold IDs of the closed interval, descending."""
    if record.open_version and record.open_master <= end:
        last = open_ref(view, record)
        if last is not None:
            yield last
    floor = view.index.node_floor(record.number, start)
    low = floor[0] if floor is not None else start
    for master, locator in view.index.nodes(record.number, low, end, reverse=True):
        if locator.last >= start:
            yield sealed_ref(master, locator)


def ref_of(view: View, record: StreamRecord, id: StreamID) -> NodeRef | None:
    """The node that would hold an ID."""
    if record.open_version and record.open_master <= id:
        return open_ref(view, record)
    floor = view.index.node_floor(record.number, id)
    return sealed_ref(*floor) if floor is not None and floor[1].last >= id else None


def around(
    view: View, record: StreamRecord, id: StreamID
) -> tuple[NodeRef | None, StreamID, StreamID]:
    """The node that would hold an ID, and the first and the last ID for which it is this node.

    After a lowered last ID a node may begin below the end of the one before it: so the interval
    ends where the next node begins.
    """
    if record.open_version and record.open_master <= id:
        return open_ref(view, record), record.open_master, MAX_ID
    high = record.open_master.previous() if record.open_version else MAX_ID
    if id < high:
        above = next(iter(view.index.nodes(record.number, id.next(), high)), None)
        high = high if above is None else above[0].previous()
    floor = view.index.node_floor(record.number, id)
    if floor is None:
        return None, ZERO_ID, high
    master, locator = floor
    if locator.last < id:
        return None, locator.last.next(), high
    return sealed_ref(master, locator), master, min(locator.last, high)


def listpack(view: View, record: StreamRecord, ref: NodeRef) -> tuple[bytes, bytes]:
    """A node's listpack and vector."""
    if ref.locator is not None:
        return sealed_listpack(view, record, ref.master, ref.locator), ref.locator.vector
    node = view.open_node(record.number)
    assert node is not None
    return open_listpack(view, record, node), b""


def sealed_listpack(view: View, record: StreamRecord, master: StreamID, locator: Locator) -> bytes:
    """The listpack of a sealed node; an error names the stream."""
    try:
        return view.segments.node(record.number, master, locator)
    except CorruptionError as exc:
        exc.stream = record.name
        raise


def open_listpack(view: View, record: StreamRecord, node: OpenNode) -> bytes:
    """The listpack of the open node; an error names the stream."""
    try:
        return view.segments.open_listpack(node)
    except CorruptionError as exc:
        exc.stream = record.name
        raise


def live_from(
    txn: TxnView, record: StreamRecord, start: StreamID
) -> Iterator[tuple[StreamID, bytes, bytes]]:
    """Master ID, listpack and vector of nodes that may hold live entries from ``start`` on.

    A group that reads a stream a little at a time finds most of it in the node of its last read;
    one that keeps up with the stream finds it in the open node, and looks at no other.
    """
    cache, master, buffer = txn.cache, record.open_master, txn.buffer
    in_open = record.open_version and (master <= start or not record.nodes)
    if not in_open:
        cached = cache.node_at(txn.index, record.number, start)
        if cached is not None:
            yield cached.master, cached.lp, cached.locator.vector
            if cached.locator.last == MAX_ID:
                return
            start = cached.locator.last.next()
    if in_open or (record.open_version and master <= start):
        node = txn.open_node(record.number)
        if node is not None:
            lp = node.lp
            if node.runs or lp is None:
                lp = txn.segments.open_listpack(node)
            yield master, lp, b""
        return
    for ref in refs(txn, record, start):
        if ref.live:
            lp, vector = listpack(txn, record, ref)
            at = ref.locator
            # One of this very commit may still be taken back.
            if at is not None and buffer.frame_at(at.position) is None:
                cache.node, cache.node_is_sure = CachedNode(record.number, ref.master, at, lp), True
            yield ref.master, lp, vector


def first_id(record: StreamRecord) -> StreamID:
    """An ID below which the stream has no entry."""
    return record.first if record.length else MAX_ID


def first_live(view: View, record: StreamRecord, after: StreamID = ZERO_ID) -> StreamID:
    """The smallest live ID of nodes from ``after`` on; 0-0 if there is none."""
    return _live(view, record, refs(view, record, after), codec().first_live_id)


def last_live(view: View, record: StreamRecord) -> StreamID:
    """The largest live ID; 0-0 if there is none."""
    return _live(view, record, refs_reverse(view, record), codec().last_live_id)


def _live(
    view: View,
    record: StreamRecord,
    refs: Iterator[NodeRef],
    find: Callable[[bytes, int, int, bytes], tuple[int, int] | None],
) -> StreamID:
    """The live ID that is found first in these nodes; 0-0 if none of them has one."""
    for ref in refs:
        if ref.live:
            lp, vector = listpack(view, record, ref)
            id = find(lp, *ref.master, vector)
            if id is not None:
                return StreamID(*id)
    return ZERO_ID


OPEN_INLINE_MAX_BYTES = 64 * 1024


def skeleton(lp: bytes) -> bytes:
    """The node without its entries: what further entries are encoded against.

    Its counters are 0: the codec takes no node that counts more than its bytes could hold.
    """
    from logstore.codec import edit

    fields = codec().head(lp).fields
    none = encode_int(0)
    elements = len(fields) + 4  # count, open_deleted, number of fields, the fields, terminator
    return finish(elements, none, none, edit.encode_master(fields))


def _large(run: NodeFrame, lp: bytes) -> OpenNode:
    """A large open node that begins with this frame, which holds the whole listpack so far."""
    live, dead = codec().counts(lp)
    return OpenNode(skeleton(lp), [run._replace(entries=live, elements=dead)])


def open_from_frame(run: NodeFrame, data: bytes | None) -> OpenNode:
    """The open node that an open frame states."""
    if data is None:
        return OpenNode(None, [run])
    if len(data) > OPEN_INLINE_MAX_BYTES:
        return _large(run, data)
    return OpenNode(data)


def open_settled(node: OpenNode, segments: Segments) -> OpenNode:
    """After a rebuild: inline if small, else with its skeleton."""
    if not node.runs:
        return node
    if sum(run.payload_bytes for run in node.runs) <= OPEN_INLINE_MAX_BYTES:
        return OpenNode(segments.open_listpack(node))
    if node.lp is None:
        first, *others = node.runs
        large = _large(first, segments.run_bytes(first)[1])
        return OpenNode(large.lp, large.runs + others, node.vector)
    return node


class Lookup:
    """Finds entries of one stream by ID, many in one go, in any order, while its nodes stay as they
    are. A node is read once for neighbouring IDs, and where they ascend its entries are decoded
    some at a time."""

    def __init__(self, view: View, record: StreamRecord) -> None:
        self._view = view
        self._record = record
        self._ref: NodeRef | None = None
        self._low, self._high = MAX_ID, ZERO_ID  # IDs that this node would hold
        self._lp = b""
        self._vector = b""
        self._many = False  # IDs are asked for
        self._decoded: dict[tuple[int, int], list[bytes]] = {}
        self._first, self._last = MAX_ID, ZERO_ID  # between these all entries are decoded
        self._ahead = 1

    def fields(self, id: StreamID) -> list[bytes] | None:
        """Field, value, field, value, ...; None if there is no such entry."""
        if self._first <= id <= self._last:
            return self._decoded.get(id)
        if not self._record.length or not self._go(id):
            return None
        assert self._ref is not None
        master = self._ref.master
        self._ahead = ahead = min(2 * self._ahead, AHEAD_MAX) if self._last < id else 1
        end = id if ahead == 1 else MAX_ID
        entries = codec().entries(self._lp, *master, self._vector, id, end, ahead, False)
        self._decoded = {(ms, seq): items for _, ms, seq, items in entries}
        self._first = id
        if len(entries) < ahead:
            self._last = id if ahead == 1 else self._high
        else:
            self._last = StreamID(*entries[-1][1:3])
        return self._decoded.get(id)

    def __contains__(self, id: StreamID) -> bool:
        if not self._record.length or not self._go(id):
            return False
        assert self._ref is not None
        return codec().find(self._lp, *self._ref.master, *id, self._vector) >= 0

    def _go(self, id: StreamID) -> bool:
        """Read the node that would hold the ID."""
        if self._low <= id <= self._high:
            return self._ref is not None
        if self._many:
            ref, self._low, self._high = around(self._view, self._record, id)
        else:  # for a single one it is not asked how far this holds
            ref, self._low, self._high = ref_of(self._view, self._record, id), id, id
            self._many = True
        self._ref = None if ref is None or not ref.live else ref
        if self._ref is not None:
            self._lp, self._vector = listpack(self._view, self._record, self._ref)
        return self._ref is not None


def is_full(locator: Locator, raw_bytes: int, max_bytes: int) -> bool:
    """Whether a sealed node has no room for an entry of so many bytes, and so does not open again;
    whatever folding its tombstones makes of the width of its two counters."""
    return locator.payload_bytes - OPEN_BODY.size + raw_bytes - _COUNTERS_MAX_BYTES >= max_bytes
