"""Which listed nodes are read for a condition: those in which, by the statistics of their segment,
an entry may match.

Statistics that were read are kept with the engine, up to KEPT_BYTES, and with a reading those of
SEGMENTS_MAX segments, so that a long one takes no more memory. A file that was made anew
since has another identity, and is read again.

Invariants: a node is left out only if its statistics prove that no entry of it matches. Without
statistics, and of the open node, nothing is proved. Nodes that are damaged may be left out: what
lies in them cannot match either.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, Protocol

from logstore import format as fmt
from logstore.codec.node_list import NodeList
from logstore.engine.runtime.engine import Engine
from logstore.errors import CorruptionError
from logstore.log import file_names, statsfile
from logstore.log.statsfile import Block, NodeRanges, SegmentStatistics, StreamStatistics
from logstore.tuples import NamedTuple
from logstore.where.node_conditions import NodeTest

KEPT_BYTES: Final = 32 << 20
SEGMENTS_MAX: Final = 16  # of which a reading holds what it asks: nodes lie mostly in order
_lock = threading.RLock()  # a signal handler may read while we do


class NodeCondition(Protocol):
    """A condition that nodes can be asked."""

    def node_test(self, columns: Sequence[tuple[bytes, str]]) -> NodeTest | None:
        """What asks nodes with the ranges of these columns; None: it would always be True."""
        ...


class NodeSkipping:
    """Leaves nodes out; ``looked_at``: how many were asked, ``skipped``: how many were left out."""

    def __init__(self, engine: Engine, conditions: Sequence[NodeCondition]) -> None:
        self.looked_at = self.skipped = 0
        self._engine = engine
        self._conditions = conditions
        self._known: dict[tuple[int, int], _Asked | None] = {}  # by stream and segment
        self._at = (0, 0)  # those of what follows
        self._asked: _Asked | None = None
        self._block: Block | None = None
        self._nodes: dict[int, NodeRanges] | None = None  # of the block, if one of them may match

    def left(self, stream: int, found: NodeList) -> bytes:
        """The items of a list of a stream's nodes, without those that are left out."""
        positions = found.positions()
        wanted = [at for at, each in enumerate(positions) if not each or self._may(stream, each)]
        self.looked_at += len(positions)
        self.skipped += len(positions) - len(wanted)
        return found.items() if len(wanted) == len(positions) else found.picked(wanted)

    def _may(self, stream: int, position: int) -> bool:
        """Whether the node of a position may have an entry that matches."""
        segment, offset = fmt.position_parts(position)
        if self._at != (stream, segment):
            self._begin(stream, segment)
        if self._asked is None:
            return True
        block = self._asked.told.block(offset)
        if block is None:
            return True
        if block is not self._block:
            self._block = block
            self._nodes = self._unpacked(block)
        if self._nodes is None:
            return False
        node = self._nodes.get(offset)
        return node is None or self._asked.may(node)

    def _begin(self, stream: int, segment: int) -> None:
        self._at, self._block, self._nodes = (stream, segment), None, None
        if self._at not in self._known:
            while len(self._known) >= SEGMENTS_MAX:
                self._known.pop(next(iter(self._known)))
            self._known[self._at] = self._looked_up(stream, segment)
        self._asked = self._known[self._at]

    def _looked_up(self, stream: int, segment: int) -> _Asked | None:
        found = statistics(self._engine, segment)
        told = None if found is None else found.streams.get(stream)
        if told is None:
            return None
        tests = [each.node_test(told.columns) for each in self._conditions]
        wanted = [each for each in tests if each is not None]
        return _Asked(told, wanted) if wanted else None

    def _unpacked(self, block: Block) -> dict[int, NodeRanges] | None:
        """The nodes of a block; None if no entry of them can match."""
        if self._asked is None or not self._asked.may(block.whole):
            return None
        try:
            return block.nodes()
        except (CorruptionError, ValueError, TypeError):
            return {}


class _Asked(NamedTuple):
    """What is told of a stream's nodes in a segment, and what must be possible there."""

    told: StreamStatistics
    tests: list[NodeTest]

    def may(self, node: NodeRanges) -> bool:
        """Whether an entry of a node, or of a block, may match."""
        return all(test(node.ranges) for test in self.tests)


def statistics(engine: Engine, segment: int) -> SegmentStatistics | None:
    """The statistics of a segment, kept or read; None if there are none."""
    try:
        stat = engine.fs.stat(file_names.statistics(engine.path, segment))
    except FileNotFoundError:
        return None
    # A file system gives the number of a file that was removed to the next one.
    identity: Any = stat[:4]
    with _lock:
        kept = engine.statistics
        found = kept.pop(segment, None)
        if found is not None and found[0] == identity:
            kept[segment] = found  # the last one that was used
            told: SegmentStatistics = found[1]
            return told
    told = statsfile.read(engine.fs, engine.path, engine.uuid, segment) or statsfile.NONE
    with _lock:
        kept[segment] = identity, told
        total = sum(each.size_bytes for _, each in kept.values())
        while total > KEPT_BYTES and len(kept) > 1:
            _, gone = kept.pop(next(iter(kept)))
            total -= gone.size_bytes
    return told
