"""Reading the few entries that match of many: nodes that cannot have one are passed over in place.

Invariants: a node is passed over only if its frame is sound and lacks a text that an entry which
matches must have (``codec.may_match``); any other is read, and told if it is damaged, as all reads
do it. No snapshot lives longer than NODES_MAX nodes take. What is said of lost rows is the same.
"""

from __future__ import annotations

from typing import Any, Protocol

from logstore.codec import codec
from logstore.codec.interface import ID
from logstore.codec.located import Item, read_item
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.streams.read import Batch, Interval, confirm
from logstore.format import FRAME_HEAD_BYTES
from logstore.ids import StreamID
from logstore.index.keys import Locator
from logstore.scan import walk

NODES_MAX = 1000


class Sifting(Protocol):
    """What makes entries, of those alone that match."""

    @property
    def where(self) -> list[bytes]:
        """Texts that stand in each node with an entry that matches."""
        ...

    def entries(
        self,
        lp: bytes,
        master_ms: int,
        master_seq: int,
        vector: bytes,
        start: ID,
        end: ID,
        limit: int,
        /,
    ) -> list[Any]:
        """In order, those between two IDs; at most ``limit`` unless it is negative."""
        ...


def read_batch(
    engine: Engine,
    name: bytes,
    start: StreamID,
    end: StreamID,
    limit: int,
    maker: Sifting,
    walked: Interval | None,
) -> Batch:
    """As ``engine.streams.read.read_batch``, forwards, of some hundred nodes."""
    if start > end or limit == 0:
        return Batch([], None)
    batch = snapshot.read(engine, _sift, engine, name, start, end, limit, maker, walked)
    if batch.entries:
        engine.metrics.count("read_entries", len(batch.entries))
    return batch


def _sift(
    view: Snapshot,
    engine: Engine,
    name: bytes,
    start: StreamID,
    end: StreamID,
    limit: int,
    maker: Sifting,
    walked: Interval | None,
) -> Batch:
    record = view.record(name)
    if record is None or not record.length:
        return Batch([], None)
    listed = walk.new_list()
    follows, _ = walk.piece(view, record, start, end, listed, NODES_MAX)
    entries: list[Any] = []
    for item in _wanted(view, engine, record.number, listed.items(), maker.where):
        lp, master = item.lp, StreamID(*item.master)
        if item.position:
            locator = Locator(item.position, item.size_bytes, item.live, StreamID(*item.last))
            lp = engine.segments.node(record.number, master, locator, view.meta.active_segment)
        left = -1 if limit < 0 else limit - len(entries)
        entries += maker.entries(lp, *master, item.vector, start, end, left)
        if 0 <= limit <= len(entries):
            return Batch(entries, None)
    if follows is not None:
        return Batch(entries, (max(start, follows), end))
    confirm(view, record, start, end, listed.live, walked)
    return Batch(entries, None)


def _wanted(
    view: Snapshot, engine: Engine, stream: int, items: bytes, where: list[bytes]
) -> list[Item]:
    """Those of some nodes that may have an entry that matches, and those that are doubtful."""
    wanted: list[int] = []
    active, at = view.meta.active_segment, 0
    while (one := read_item(items, at)) is not None:
        item, after = one
        if item.position:
            size = FRAME_HEAD_BYTES + item.size_bytes
            data, position = engine.segments.around(item.position, size, active)
            upto = codec().may_match(items, at, data, position, stream, engine.seed, where, wanted)
            if upto > at:
                at = upto
                continue
        wanted.append(at)
        at = after
    found = [read_item(items, place) for place in wanted]
    return [each[0] for each in found if each is not None]
