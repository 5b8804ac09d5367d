"""Node level: which nodes are rewritten, and which neighbours become one.

Rules (after what the author of streams planned): a node is rewritten when its tombstones are more
than the threshold of its entries, or when its segment is to go; if its live entries are then below
half of the node limit it is merged with the next ones, when their fields are the same and the
limits allow. Never the open node. A rewritten node keeps the first part's master ID and has no
tombstones.

Invariants: nothing is changed here; groups come in key order, so that what is written is sorted by
stream and ID.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from logstore.codec import codec
from logstore.engine.runtime.background import Pause, no_pause
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.format import segment_of
from logstore.ids import StreamID
from logstore.index.keys import Locator
from logstore.options import ENTRY_MAX_BYTES, StoreLimits
from logstore.tuples import NamedTuple

NODES_A_BATCH = 256
BYTES_A_BATCH = 4 << 20


class NodeVersion(NamedTuple):
    """Which node was read, where it lay, and what was deleted from it then."""

    stream: int
    master: StreamID
    locator: Locator


class NodeAsRead(NamedTuple):
    """A node as it was read: its version, and its bytes."""

    stream: int
    master: StreamID
    locator: Locator
    lp: bytes

    @property
    def live(self) -> int:
        """Live entries."""
        return self.locator.live


class Group:
    """Neighbours that become one node."""

    __slots__ = ("live", "lp", "parts")

    def __init__(
        self, parts: list[NodeAsRead] | None = None, live: int = 0, lp: bytes = b""
    ) -> None:
        self.parts: list[NodeAsRead] = [] if parts is None else parts
        self.live = live
        self.lp = lp

    @property
    def last(self) -> StreamID:
        """The last ID of the group."""
        return self.parts[-1].locator.last

    def versions(self) -> tuple[NodeVersion, ...]:
        """Of the parts: what is kept of a group once its bytes are written."""
        return tuple(NodeVersion(part.stream, part.master, part.locator) for part in self.parts)


class NodeChooser:
    """Says of each node whether it must be rewritten."""

    def __init__(self, victims: set[int], threshold: float) -> None:
        self._victims = victims
        self._threshold = threshold

    def must(self, locator: Locator) -> bool:
        """Whether the node's segment goes, or its tombstones are too many."""
        if segment_of(locator.position) in self._victims:
            return True
        gone = locator.entries - locator.live
        return gone > self._threshold * locator.entries


def groups(engine: Engine, chooser: NodeChooser, pause: Pause = no_pause) -> Iterator[Group]:
    """Groups of nodes to rewrite, in key order; each joined node is in ``lp``."""
    merger = _Merger(engine.limits)
    for source in _candidates(engine, chooser.must, pause):
        yield from merger.take(source)
    yield from merger.flush()


def _candidates(
    engine: Engine, must: Callable[[Locator], bool], pause: Pause
) -> Iterator[NodeAsRead | None]:
    """Nodes to rewrite; None stands for neighbours that stay, which end a group."""
    after = b""
    while True:
        rows, last = snapshot.read(engine, partial(_batch, after=after, must=must))
        pause(sum(len(row.lp) for row in rows if row is not None))
        yield from rows
        if last is None:
            return
        after = last + b"\x00"


def _batch(
    view: Snapshot, after: bytes, must: Callable[[Locator], bool]
) -> tuple[list[NodeAsRead | None], bytes | None]:
    rows: list[NodeAsRead | None] = []
    last: bytes | None = None
    size = 0
    for count, (key, stream, master, locator) in enumerate(view.index.all_nodes(after)):
        if count >= NODES_A_BATCH * 16 or len(rows) >= NODES_A_BATCH or size >= BYTES_A_BATCH:
            return rows, last
        last = key
        if must(locator):
            lp = view.segments.node(stream, master, locator)
            rows.append(NodeAsRead(stream, master, locator, lp))
            size += len(lp)
        elif not rows or rows[-1] is not None:
            rows.append(None)
    return rows, None


class _Merger:
    """Joins neighbours while the limits allow."""

    def __init__(self, limits: StoreLimits) -> None:
        self._max_bytes = limits.node_max_bytes or ENTRY_MAX_BYTES
        self._max_entries = limits.node_max_entries or 1 << 62
        self._group = Group()
        self._fields: list[bytes] = []

    def take(self, source: NodeAsRead | None) -> Iterator[Group]:
        """The next node in key order; groups that are complete now."""
        if source is None:
            yield from self.flush()
            return
        joined = self._joined(source)
        if joined is not None:
            self._group.parts.append(source)
            self._group.live += source.live
            self._group.lp = joined
            return
        yield from self.flush()
        self._group = Group([source], source.live, self._rewrite([source]))
        self._fields = codec().head(source.lp).fields

    def flush(self) -> Iterator[Group]:
        """The last group."""
        group, self._group = self._group, Group()
        if group.parts:
            yield group

    def _joined(self, source: NodeAsRead) -> bytes | None:
        """The group with one more node in it, if that may be."""
        group = self._group
        if not group.parts or group.parts[0].stream != source.stream:
            return None
        if not source.live:
            return group.lp
        if group.live and self._fields != codec().head(source.lp).fields:
            return None
        if group.live + source.live > self._max_entries:
            return None
        if 2 * min(group.live, source.live) >= self._max_entries:
            return None
        joined = self._rewrite([*group.parts, source])
        return joined if len(joined) <= self._max_bytes else None

    @staticmethod
    def _rewrite(parts: list[NodeAsRead]) -> bytes:
        living = [part for part in parts if part.live]
        if not living:
            return b""
        first = parts[0].master
        return codec().rewrite(
            [(part.lp, part.master.ms, part.master.seq, part.locator.vector) for part in living],
            *first,
        )
