"""The nodes of streams, found in the index and listed.

`list_piece` lists some nodes of one stream. Rows of the index are listed without making an object
for each node. Between two pieces nodes may be rewritten, merged or moved: the next piece begins at
the master ID of the first node that was not listed, and all live entries of the listed nodes are
below it. (The last ID of a node is no such border: after XSETID to a smaller ID the next node may
begin below it.)

`Listing` lists whole streams, each as it stood at one moment. It reads pieces of PIECE_NODES nodes,
a snapshot each; many small streams share a piece. Of a large stream it leaves out what was added
after the first piece. If anything was deleted meanwhile it begins again, the last time on one
snapshot. `OneSnapshotListing` lists all streams on one snapshot.

Invariants: a row whose checksum does not fit is an error. The open node is the last, and its
listpack stands in the list, unless it cannot be read and losses are allowed. Nodes that the index
has lost are an error where the whole stream is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from logstore.codec import ID, Section, codec
from logstore.codec.node_list import NodeList
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.segments import SegmentGone
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import CorruptionError, StreamNotFoundError
from logstore.format import NODE_KEY
from logstore.ids import U64_MAX, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.row_seal import LostRowsError, key_parts, unseal
from logstore.scan.record_batches import Loss

PIECE_NODES = 1024
PIECE_STREAMS = 256
WALKS_MAX = 3
Mark: TypeAlias = tuple[int, int, int, int, ID]


class _Changed(Exception):  # noqa: N818  (control flow of one walk)
    """Something was deleted since the first piece."""


class Listing:
    """The nodes of streams; StreamNotFoundError if a stream is missing. ``sections``: for each
    stream its first node in the list, and its interval. ``lossy`` is that of `list_piece`."""

    def __init__(
        self,
        engine: Engine,
        names: Sequence[bytes],
        start: StreamID,
        end: StreamID,
        *,
        lossy: bool = False,
    ) -> None:
        self.nodes = new_list()
        self.sections: list[tuple[int, Section]] = []
        self._engine = engine
        self._start = start
        self._end = end
        self._piece = partial(list_piece, lossy=lossy)
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
        """List whole streams from a place in ``names`` on, as far as they fit into one piece; the
        place of the next stream. It may be called again, and then takes back what it listed."""
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
            follows, seen = self._piece(view, record, self._start, end, found, max(room, 1))
            if follows is not None:
                found.cut(mark)
                return place
            if self._start <= record.first and record.last <= self._end:
                _confirm(view, record, seen)
            self._add(names[place], record.number, end, before)
        return min(at + PIECE_STREAMS, len(names))

    def _large(self, name: bytes) -> None:
        """List one stream, in pieces."""
        mark, before = self.nodes.mark(), len(self.nodes)
        for tries in range(1, WALKS_MAX + 1):
            self.nodes.cut(mark)
            try:
                number, end = self._walk(name, at_once=tries == WALKS_MAX)
            except _Changed:
                continue
            except LostRowsError:  # perhaps the index was built anew meanwhile
                if tries == WALKS_MAX:
                    raise
                continue
            self._add(name, number, end, before)
            return

    def _walk(self, name: bytes, *, at_once: bool) -> tuple[int, StreamID]:
        """List one stream once; its number, and the end of what was listed."""
        engine, found = self._engine, self.nodes
        first: StreamRecord | None = None
        at: StreamID | None = self._start
        end = self._end
        while at is not None:
            record, at = snapshot.read(engine, self._next, found.mark(), name, at, end, at_once)
            if first is None:
                first, end = record, min(end, record.last)
            elif removal_mark(record) != removal_mark(first):
                raise _Changed
        assert first is not None
        if self._start <= first.first and first.last <= self._end:
            snapshot.read(engine, _confirm_all, name)
        return first.number, end

    def _next(
        self, view: Snapshot, mark: Mark, name: bytes, start: StreamID, end: StreamID, at_once: bool
    ) -> tuple[StreamRecord, StreamID | None]:
        """List the next nodes with live entries, or all; where to go on, None at the end."""
        found = self.nodes
        found.cut(mark)  # a snapshot that was given up left nodes
        record = _record(view, name)
        upto = min(end, record.last)
        at, _ = self._piece(view, record, start, upto, found, PIECE_NODES)
        while at_once and at is not None:
            at, _ = self._piece(view, record, at, upto, found, PIECE_NODES)
        return record, at


class OneSnapshotListing:
    """All nodes of some streams, or of all, on one snapshot; StreamNotFoundError if one is missing.

    ``streams``: names and numbers of all streams, also of those without nodes.
    """

    def __init__(self, engine: Engine, names: Sequence[bytes] | None) -> None:
        self.nodes = new_list()
        self.sections: list[tuple[int, Section]] = []
        self.streams: list[tuple[bytes, int]] = []
        snapshot.read(engine, self._list, names, self.nodes.mark())

    def _list(self, view: Snapshot, names: Sequence[bytes] | None, mark: Mark) -> None:
        """List all streams; it may be called again, on another snapshot."""
        found = self.nodes
        found.cut(mark)
        self.sections, self.streams = [], []
        records = view.listed() if names is None else (_record(view, name) for name in names)
        for record in records:
            before, total = len(found), 0
            at: StreamID | None = ZERO_ID
            while at is not None:
                at, seen = list_piece(view, record, at, record.last, found, PIECE_NODES)
                total += seen
            _confirm(view, record, total)
            self.streams.append((record.name, record.number))
            if len(found) > before:
                section = record.name, record.number, ZERO_ID, record.last
                self.sections.append((before, section))


def _record(view: Snapshot, name: bytes) -> StreamRecord:
    record = view.record(name)
    if record is None:
        raise StreamNotFoundError("there is no such stream", stream=name)
    return record


def _confirm(view: Snapshot, record: StreamRecord, seen: int) -> None:
    """LostRowsError if the index lost nodes of a stream; ``seen``: how many were listed."""
    lost = record.open_version and view.open_node(record.number) is None
    if lost or seen != record.nodes:  # dead ones before the first entry were not looked at
        view.confirm_nodes(record)


def _confirm_all(view: Snapshot, name: bytes) -> None:
    record = view.record(name)
    if record is not None:
        view.confirm_nodes(record, given=True)


def removal_mark(record: StreamRecord) -> tuple[int, int]:
    """A stream's number, and how many entries were removed: both stay while it is only added to."""
    return record.number, (record.entries_added - record.length) & U64_MAX


def new_list() -> NodeList:
    """An empty list of the codec in use."""
    made: NodeList = codec().NodeList()
    return made


def list_piece(
    view: Snapshot,
    record: StreamRecord,
    start: StreamID,
    end: StreamID,
    found: NodeList,
    nodes_max: int,
    *,
    lossy: bool = False,
) -> tuple[StreamID | None, int]:
    """List the next nodes with live entries of a closed interval, at most ``nodes_max``.

    An open node that cannot be read is an error. With ``lossy`` it is listed without a listpack:
    then the reader of the list finds a damaged node.

    Returns:
        Where the next piece begins, or None at the end; how many sealed nodes were examined.
    """
    number, before, seen = record.number, len(found), 0
    high = NODE_KEY.pack(number, *end)
    floor = view.index.node_floor(number, start) if record.nodes else None
    low = start if floor is None else floor[0]
    # One more than is listed: all live entries of the listed nodes are below where it begins.
    count = min(nodes_max, record.nodes) + 1
    while record.nodes:
        rows = view.index.node_rows(number, low, count)
        at = found.add_rows(rows, 0, number, start, end, before + nodes_max - len(found))
        seen += at
        if at < len(rows):
            key, data = rows[at]
            if key > high:
                break
            _, ms, seq = key_parts(NODE_KEY, key)
            if len(found) - before < nodes_max:
                raise _damaged(key, data)
            return StreamID(ms, seq), seen
        if len(rows) < count or rows[-1][0] == high:
            break
        low = StreamID(*NODE_KEY.unpack(rows[-1][0])[1:]).next()
    if record.open_version and record.open_master <= end:
        _add_open(view, record, start, found, lossy=lossy)
    return None, seen


def _add_open(
    view: Snapshot, record: StreamRecord, start: StreamID, found: NodeList, *, lossy: bool
) -> None:
    """List the open node, if it has live entries. If its frames are damaged, the index still knows
    how many entries it has."""
    node = view.open_node(record.number)
    try:
        ref = nodes.open_ref(view, record)
        if ref is None or not ref.live or ref.last < start:
            return
        lp, vector = nodes.listpack(view, record, ref)
        found.add(0, len(lp), ref.live, ref.master, ref.last, vector, lp)
    except (CorruptionError, SegmentGone) as error:
        if node is None or (isinstance(error, SegmentGone) and not lossy):
            raise
        live = node.totals()[0] - node.vector.bit_count()
        if isinstance(error, SegmentGone) or lossy:
            found.add(0, 0, live, record.open_master, record.last, b"", b"")
            return
        loss = Loss(record.name, record.open_master, record.last, 1, live, 0, error)
        raise loss.as_error() from None


def _damaged(key: bytes, data: bytes) -> CorruptionError:
    """The error for a row that the list refused."""
    unseal(key, data)
    return CorruptionError(f"the index is damaged at key {key.hex()}: it names no node")
