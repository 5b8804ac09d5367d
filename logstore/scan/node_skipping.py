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
from logstore.index.keys import StreamRecord
from logstore.log import file_names, statsfile
from logstore.log.statsfile import Block, NodeRanges, SegmentStatistics, StreamStatistics
from logstore.tuples import NamedTuple
from logstore.where.node_conditions import NodeTest, Ranges

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
        self._stream = 0  # that of the stretch and the nodes
        self._stretch = _NO_STRETCH
        self._asked: _Asked | None = None  # what is asked there
        # Those of the last block that may match, by position.
        self._nodes: dict[int, NodeRanges] = {}

    def left(self, record: StreamRecord, found: NodeList) -> bytes:
        """The items of a list of a stream's nodes, without those that are left out."""
        if not record.schema_at:  # nothing is told of its nodes
            return found.items()
        positions = found.positions()
        wanted = self.possible(record.number, positions)
        return found.items() if len(wanted) == len(positions) else found.picked(wanted)

    def possible(self, stream: int, positions: Sequence[int]) -> list[int]:
        """Which of a stream's nodes may match, by where they stand among ``positions``."""
        if stream != self._stream:
            self._stream, self._stretch, self._nodes = stream, _NO_STRETCH, {}
        wanted: list[int] = []
        above, upto, may = self._stretch
        for at, position in enumerate(positions):
            if position and not above < position <= upto:
                above, upto, may = self._stretch = self._found(position)
            if not position or (may and self._may(position)):
                wanted.append(at)
        self.looked_at += len(positions)
        self.skipped += len(positions) - len(wanted)
        return wanted

    def _may(self, position: int) -> bool:
        """Whether the node of a position may match, in a stretch that may."""
        node = self._nodes.get(position)
        return node is None or self._asked is None or self._asked.may(node.ranges)

    def _found(self, position: int) -> _Stretch:
        """The stretch of the log around a position for which one answer holds."""
        segment, offset = fmt.position_parts(position)
        key = self._stream, segment
        if key not in self._known:
            while len(self._known) >= SEGMENTS_MAX:
                self._known.pop(next(iter(self._known)))
            self._known[key] = self._looked_up(*key)
        asked = self._asked = self._known[key]
        end = fmt.position(segment + 1, 0)
        if asked is None:
            return _Stretch(position - 1, end, may=True)
        found = asked.told.block(offset)
        if found is None:  # behind all that is told of
            return _Stretch(position - 1, end, may=True)
        if not asked.may(asked.told.whole):
            last = fmt.position(segment, asked.told.lasts[-1])
            return _Stretch(fmt.position(segment, 0), last, may=False)
        before, block = found
        may = asked.may(block.whole.ranges)
        if may:
            self._nodes = _unpacked(segment, block)
        above = fmt.position(segment, before)
        return _Stretch(above, fmt.position(segment, block.last), may)

    def _looked_up(self, stream: int, segment: int) -> _Asked | None:
        found = statistics(self._engine, segment)
        told = None if found is None else found.streams.get(stream)
        if told is None:
            return None
        tests = [each.node_test(told.columns) for each in self._conditions]
        wanted = [each for each in tests if each is not None]
        return _Asked(told, wanted) if wanted else None


class _Stretch(NamedTuple):
    """Positions above one, up to another; ``may``: whether an entry there may match."""

    above: int
    upto: int
    may: bool


_NO_STRETCH = _Stretch(0, 0, may=True)


class _Asked(NamedTuple):
    """What is told of a stream's nodes in a segment, and what must be possible there."""

    told: StreamStatistics
    tests: list[NodeTest]

    def may(self, ranges: Ranges) -> bool:
        """Whether an entry may match where these ranges hold."""
        return all(test(ranges) for test in self.tests)


def _unpacked(segment: int, block: Block) -> dict[int, NodeRanges]:
    """The nodes of a block, by position; none of one that cannot be read."""
    try:
        return {fmt.position(segment, offset): node for offset, node in block.nodes().items()}
    except (CorruptionError, ValueError, TypeError):
        return {}


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
