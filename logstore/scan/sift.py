"""Reading the few entries that match of many: nodes that cannot have one are passed over in place.

The nodes are their own summaries: an entry is compared where it lies in the bytes of its segment,
and no object is made of what does not match.

Invariants: a node is passed over only if its frame is sound and has no entry that matches
(``codec.may_match``); any other is read, and told if it is damaged, as all reads do it. No snapshot
lives longer than NODES_MAX nodes take. What is said of lost rows is the same.
"""

from __future__ import annotations

from typing import Any, Protocol

from logstore.codec import codec
from logstore.codec.node_list import Item, NodeList, read_item
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams.read import Batch, Interval, Maker, RangeRead, confirm
from logstore.engine.txn.nodes import sealed_listpack
from logstore.ids import StreamID
from logstore.index.keys import Locator, StreamRecord
from logstore.scan import walk
from logstore.scan.located import read_size
from logstore.tuples import NamedTuple

NODES_MIN, NODES_MAX = 16, 1000  # of a batch: the first ones are small, as often one has it all


class Sifting(Maker, Protocol):
    """What makes entries, of those alone that match."""

    @property
    def where(self) -> list[bytes]:
        """Texts that stand in each node with an entry that matches."""
        ...


def read_batch(engine: Engine, name: bytes, asked: RangeRead, maker: Sifting, nodes: int) -> Batch:
    """As ``engine.streams.read.read_batch``, of so many nodes."""
    start, end, limit, reverse, walked, _ = asked
    if start > end or limit == 0:
        return Batch([], None)
    sift = _Sift(engine, name, start, end, limit, maker, walked, nodes)
    batch = snapshot.read(engine, sift.backward if reverse else sift.forward)
    if batch.entries:
        engine.metrics.count("read_entries", len(batch.entries))
    return batch


class _Sift(NamedTuple):
    """One batch of a read."""

    engine: Engine
    name: bytes
    start: StreamID
    end: StreamID
    limit: int
    maker: Sifting
    walked: Interval | None
    nodes: int

    def forward(self, view: Snapshot) -> Batch:
        """The first ones."""
        record = view.record(self.name)
        if record is None or not record.length:
            return Batch([], None)
        listed = walk.new_list()
        follows, _ = walk.piece(view, record, self.start, self.end, listed, self.nodes)
        entries, full = self._entries(view, record, listed, self.start, reverse=False)
        if full:
            return Batch(entries, None)
        if follows is not None:
            return Batch(entries, (max(self.start, follows), self.end))
        confirm(view, record, self.start, self.end, listed.live, self.walked)
        return Batch(entries, None)

    def backward(self, view: Snapshot) -> Batch:
        """The last ones, in the order of falling IDs."""
        record = view.record(self.name)
        if record is None or not record.length:
            return Batch([], None)
        # A border as between two pieces: live entries of the nodes before are below this master ID.
        border = view.index.node_before(record.number, self.end, self.nodes - 1)
        low = self.start if border is None else max(self.start, border)
        listed = walk.new_list()
        walk.piece(view, record, low, self.end, listed, self.nodes + 1)
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
        """Those that match of nodes, and whether they are as many as were asked for."""
        entries: list[Any] = []
        wanted = _wanted(self.engine, record.number, listed.items(), self.maker.where)
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
    """Those of some nodes that may have an entry that matches, and those that are doubtful."""
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
