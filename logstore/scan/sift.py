"""Reading the few entries that match among many: nodes without one are skipped where they lie.

Nodes need no summaries: an entry is compared in the bytes of its segment, and no object is made of
an entry that does not match.

Invariants: a node is skipped only if its frame is sound and no entry of it matches
(``codec.may_match``). Any other node is read, and its damage is an error, as in all reads. No
snapshot lives longer than NODES_MAX nodes take. Lost rows of the index are the same error as in
other reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from logstore.codec import codec
from logstore.codec.node_list import Item, NodeList, read_item
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams.read import Batch, Interval, Maker, RangeRead, confirm
from logstore.engine.txn.nodes import sealed_listpack
from logstore.ids import StreamID
from logstore.index.keys import Locator, StreamRecord
from logstore.scan.listing import list_piece, new_list
from logstore.scan.node_skipping import NodeSkipping
from logstore.scan.record_batches import read_size
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.where.filter_conditions import FilterTest
    from logstore.where.node_conditions import NodeTest

NODES_MIN, NODES_MAX = 16, 1000  # of a batch: the first are small, as often the first suffices


class MatchingMaker(Maker, Protocol):
    """Makes entries of those alone that match."""

    @property
    def where(self) -> list[bytes]:
        """Bytes that each node with an entry that matches has in it."""
        ...

    def node_test(self, columns: Sequence[tuple[bytes, str]]) -> NodeTest | None:
        """What asks nodes with the ranges of these columns."""
        ...

    def filter_test(self, columns: Sequence[tuple[bytes, str]]) -> FilterTest | None:
        """What asks nodes with filters of these columns."""
        ...


def read_batch(
    engine: Engine, name: bytes, asked: RangeRead, maker: MatchingMaker, nodes: int
) -> Batch:
    """As ``engine.streams.read.read_batch``, of at most ``nodes`` nodes."""
    start, end, limit, reverse, walked, _ = asked
    if start > end or limit == 0:
        return Batch([], None)
    batch_read = _MatchingBatch(engine, name, start, end, limit, maker, walked, nodes)
    batch = snapshot.read(engine, batch_read.backward if reverse else batch_read.forward)
    if batch.entries:
        engine.metrics.count("read_entries", len(batch.entries))
    return batch


class _MatchingBatch(NamedTuple):
    """One batch of a read."""

    engine: Engine
    name: bytes
    start: StreamID
    end: StreamID
    limit: int
    maker: MatchingMaker
    walked: Interval | None
    nodes: int

    def forward(self, view: Snapshot) -> Batch:
        """The first entries, in the order of IDs."""
        record = view.record(self.name)
        if record is None or not record.length:
            return Batch([], None)
        listed = new_list()
        follows, _ = list_piece(view, record, self.start, self.end, listed, self.nodes)
        entries, full = self._entries(view, record, listed, self.start, reverse=False)
        if full:
            return Batch(entries, None)
        if follows is not None:
            return Batch(entries, (max(self.start, follows), self.end))
        confirm(view, record, self.start, self.end, listed.live, self.walked)
        return Batch(entries, None)

    def backward(self, view: Snapshot) -> Batch:
        """The last entries, in the order of falling IDs."""
        record = view.record(self.name)
        if record is None or not record.length:
            return Batch([], None)
        # As between two pieces: all live entries of the nodes before are below this master ID.
        border = view.index.node_before(record.number, self.end, self.nodes - 1)
        low = self.start if border is None else max(self.start, border)
        listed = new_list()
        list_piece(view, record, low, self.end, listed, self.nodes + 1)
        entries, full = self._entries(view, record, listed, low, reverse=True)
        if full:
            return Batch(entries, None)
        if low > self.start:
            return Batch(entries, (self.start, low.previous()))
        confirm(view, record, self.start, self.end, listed.live, self.walked)
        return Batch(entries, None)

    def _entries(
        self,
        view: Snapshot,
        record: StreamRecord,
        listed: NodeList,
        low: StreamID,
        *,
        reverse: bool,
    ) -> tuple[list[Any], bool]:
        """The entries of listed nodes that match, and whether the limit is reached."""
        entries: list[Any] = []
        items = NodeSkipping(self.engine, [self.maker]).left(record, listed)
        wanted = _wanted(self.engine, record.number, items, self.maker.where)
        for item in reversed(wanted) if reverse else wanted:
            lp, master = item.lp, StreamID(*item.master)
            if item.position:
                locator = Locator(item.position, item.size_bytes, item.live, StreamID(*item.last))
                lp = sealed_listpack(view, record, master, locator)
            left = -1 if self.limit < 0 else self.limit - len(entries)
            entries += self.maker.entries(lp, *master, item.vector, low, self.end, left, reverse)
            if 0 <= self.limit <= len(entries):
                return entries, True
        return entries, False


def _wanted(engine: Engine, stream: int, items: bytes, where: list[bytes]) -> list[Item]:
    """The listed nodes that may have an entry that matches, or that are doubtful."""
    wanted: list[int] = []
    at = 0
    while (one := read_item(items, at)) is not None:
        item, after = one
        if item.position:
            begin = item.position
            data = engine.segments.around(begin, read_size(items, at))
            upto = codec().may_match(items, at, data, begin, stream, engine.seed, where, wanted)
            if upto > at:
                at = upto
                continue
        wanted.append(at)
        at = after
    found = [read_item(items, place) for place in wanted]
    return [each[0] for each in found if each is not None]
