"""Scanning streams of an open store: some nodes on one snapshot, then the next snapshot.

Invariants: no snapshot lives longer than NODES_MAX nodes take to decode, none is held while the
caller has a batch; the walk goes on by ID behind the last entry it took, so that nodes that were
rewritten, merged or moved in between are neither skipped nor read twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from logstore.codec import Section
from logstore.codec.node_list import Item, read_item
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.segments import Segments
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.ids import StreamID
from logstore.index.keys import Locator, StreamRecord
from logstore.scan import walk
from logstore.scan.arrow import Gather
from logstore.scan.located import Stretch

if TYPE_CHECKING:
    import pyarrow as pa

NODES_MAX = 256


class Nodes:
    """The bytes of the nodes of an open store."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments

    def around(self, position: int, size_bytes: int) -> bytes:
        """Unchecked bytes of a segment."""
        return self._segments.around(position, size_bytes)

    def listpack(self, section: Section, item: Item) -> bytes:
        """The listpack of one node, checked."""
        locator = Locator(item.position, item.size_bytes, item.live, StreamID(*item.last))
        master = StreamID(*item.master)
        return self._segments.node(section[1], master, locator)


class Walk:
    """Where a scan stands. ``step`` may be cut short by an error and called again."""

    def __init__(self, engine: Engine, name: bytes, start: StreamID, end: StreamID) -> None:
        self._engine = engine
        self.name = name
        self.start = start
        self.end = end
        self.started = False
        self._whole = False  # the walk is one of all that the stream has
        self.done = start > end

    def step(self, view: Snapshot, gather: Gather) -> bool:
        """Add the next nodes; whether the batch is full."""
        record = view.record(self.name)
        if record is None:
            self.done = True
            return True
        if not self.started:
            self.started, self._whole = True, self.start <= record.first <= record.last <= self.end
            self.end = min(self.end, record.last)
        return self._nodes(view, record, gather)

    def _nodes(self, view: Snapshot, record: StreamRecord, gather: Gather) -> bool:
        found = walk.new_list()
        follows, _ = walk.piece(view, record, self.start, self.end, found, NODES_MAX)
        items = found.items()
        engine = self._engine
        stretch = Stretch(Nodes(engine.segments), engine.seed)
        section = self.name, record.number, self.start, self.end
        try:
            full = stretch.add(gather, section, items, 0) < len(items)
        finally:  # also where a segment is gone, or damaged: what was added is not added again
            left = read_item(items, stretch.at)
            if left is not None:
                # The nodes before this one have no live entry above its master ID.
                self.start = max(self.start, StreamID(*left[0].master))
        if full:
            return True
        if follows is not None:
            self.start = follows
            return False
        if self._whole:
            view.confirm_nodes(record, given=True)
        self.done = True
        return True


def _step(view: Snapshot, here: Walk, gather: Gather) -> bool:
    return here.step(view, gather)


def batches(
    engine: Engine, names: Iterable[bytes], start: StreamID, end: StreamID, gather: Gather
) -> Iterator[pa.RecordBatch]:
    """The live entries of a closed interval of streams, one stream behind the other, each up to
    the last entry that it had when the scan came to it.

    Each batch is read on snapshots of its own: entries that are deleted meanwhile may still come
    or not; none comes twice, and none that lives is left out.
    """
    for name in names:
        here = Walk(engine, name, start, end)
        while not here.done:
            while not snapshot.read(engine, _step, here, gather):
                pass
            if not here.done:  # small streams share a batch
                yield from gather.take()
    yield from gather.take()
