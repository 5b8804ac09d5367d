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
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from logstore import format as fmt
from logstore.codec.node_filter import ALL_NODES
from logstore.codec.node_list import NodeList
from logstore.engine.runtime.engine import Engine
from logstore.errors import CorruptionError
from logstore.index.keys import StreamRecord
from logstore.log import file_names, statsfile
from logstore.log.statsfile import Block, NodeRanges, SegmentStatistics, StreamStatistics
from logstore.tuples import NamedTuple
from logstore.where.filter_conditions import FilterTest, all_of
from logstore.where.node_conditions import NodeTest, Ranges

KEPT_BYTES: Final = 32 << 20
NAMED_FEW: Final = 8
SEGMENTS_MAX: Final = 16  # of which a reading holds what it asks: nodes lie mostly in order
_lock = threading.RLock()  # a signal handler may read while we do


class NodeCondition(Protocol):
    """A condition that nodes can be asked."""

    def node_test(self, columns: Sequence[tuple[bytes, str]]) -> NodeTest | None:
        """What asks nodes with the ranges of these columns; None: it would always be True."""
        ...

    def filter_test(self, columns: Sequence[tuple[bytes, str]]) -> FilterTest | None:
        """What asks nodes with filters of these columns; None: any may match."""
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
        self._nodes: Mapping[int, NodeRanges] = {}
        self._named: Collection[int] | None = None  # the positions of those that filters name

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
            self._stream, self._stretch = stream, _NO_STRETCH
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
        if self._named is not None and position not in self._named:
            return False
        node = self._nodes.get(position)
        return node is None or self._asked is None or self._asked.may(node.ranges)

    def _found(self, position: int) -> _Stretch:
        """The stretch of the log around a position for which one answer holds."""
        segment, offset = fmt.position_parts(position)
        self._nodes, self._named = {}, None
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
        if may and asked.filters is not None:
            self._named = named = _named(segment, block, asked.filters)
            may = named is None or bool(named)
        if may:
            self._nodes = self._told_of(segment, block)
        above = fmt.position(segment, before)
        return _Stretch(above, fmt.position(segment, block.last), may)

    def _told_of(self, segment: int, block: Block) -> Mapping[int, NodeRanges]:
        """The ranges of a block's nodes, unless few are named: to read these takes less."""
        few = self._named is not None and len(self._named) <= NAMED_FEW
        asks = self._asked is not None and self._asked.tests
        return {} if few or not asks else nodes_of(segment, block)

    def _looked_up(self, stream: int, segment: int) -> _Asked | None:
        found = statistics(self._engine, segment)
        told = None if found is None else found.streams.get(stream)
        if told is None:
            return None
        tests = [each.node_test(told.columns) for each in self._conditions]
        wanted = [each for each in tests if each is not None]
        filters = all_of([each.filter_test(told.columns) for each in self._conditions])
        return _Asked(told, wanted, filters) if wanted or filters is not None else None


class _Stretch(NamedTuple):
    """Positions above one, up to another; ``may``: whether an entry there may match."""

    above: int
    upto: int
    may: bool


_NO_STRETCH = _Stretch(0, 0, may=True)


class _Asked(NamedTuple):
    """What is told of a stream's nodes in a segment, what must be possible there, and what asks
    filters."""

    told: StreamStatistics
    tests: list[NodeTest]
    filters: FilterTest | None

    def may(self, ranges: Ranges) -> bool:
        """Whether an entry may match where these ranges hold."""
        return all(test(ranges) for test in self.tests)


def _named(segment: int, block: Block, test: FilterTest) -> Collection[int] | None:
    """The positions of the nodes of a block that may match by its filters; None: any may."""
    if not any(block.filters):
        return None
    found = test(block.filters)
    if found == ALL_NODES:
        return None
    return {
        fmt.position(segment, offset)
        for at, offset in enumerate(block.offsets())
        if found >> at & 1
    }


def nodes_of(segment: int, block: Block) -> dict[int, NodeRanges]:
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
