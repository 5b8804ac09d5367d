"""What columns of streams hold in an interval: how many entries lack each, its least and its most,
always exact.

Most of it is told by statistics, as they are: of a block of nodes if each of them is there as it
was sealed, else of each such node. Other nodes are read: those that the interval cuts or from which
entries were deleted since, those of which nothing is told, and the open one. A read node is asked
as statistics ask it; its entries are read as values only where that tells nothing.

Invariants: it is what a read of all entries at the moment of the listing would find. What is not a
value of its column is null; NaN is above all numbers. A node loses entries and gains none: so where
the live entries of all listed nodes of a block are as many as were told, each node of it is listed
and has what it had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from logstore import format as fmt
from logstore import tombstones
from logstore.codec import Section, codec
from logstore.codec.column_keys import ColumnRange, key_of, ranged_column
from logstore.codec.node_list import Item, each_item
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.segments import SegmentGone
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import DamagedStoreError
from logstore.ids import StreamID
from logstore.log.statsfile import Block, Ranges
from logstore.scan.listing import Listing
from logstore.scan.live import SegmentNodes
from logstore.scan.node_skipping import nodes_of, statistics
from logstore.scan.snapshot_file import Listed
from logstore.schema.stream_schema import Column
from logstore.tuples import NamedTuple
from logstore.where.condition_values import comparable
from logstore.where.node_conditions import place_of

READ_NODES: Final = 256  # at once


class ColumnSummary(NamedTuple):
    """How many entries have no value in a column; the least and the most of the values, None where
    there are none."""

    nulls: int
    least: Any
    most: Any


class Summary(NamedTuple):
    """The entries of some nodes, and what their columns hold; how many nodes were read for it."""

    entries: int
    columns: list[ColumnSummary]
    nodes: int
    nodes_read: int


def summary(
    engine: Engine,
    names: Sequence[bytes],
    start: StreamID,
    end: StreamID,
    columns: Sequence[Column],
    *,
    read_max: int | None = None,
) -> Summary | None:
    """What the live entries of a closed interval of some streams hold in columns whose values have
    an order (``can_summarize``), at most COLUMNS_MAX of them. None if more than ``read_max`` nodes
    had to be read. StreamNotFoundError."""
    for _ in range(snapshot.TRIES):
        try:
            return summary_of(engine, Listing(engine, names, start, end), columns, read_max)
        except SegmentGone:  # its nodes were moved since the listing
            continue
    raise DamagedStoreError("a segment that the index names is missing: run 'logstore check'")


def summary_of(
    engine: Engine, found: Listed, columns: Sequence[Column], read_max: int | None = None
) -> Summary | None:
    """The same of listed nodes, as those of a plan. SegmentGone if some were moved since."""
    return _Summing(engine, found, columns).summary(read_max)


def can_summarize(column: Column) -> bool:
    """Whether the values of a column are compared."""
    return ranged_column(column.field, column.type) is not None


class _Values:
    """What was seen of a column: texts by their keys, and values of nodes that were read."""

    def __init__(self, column: Column) -> None:
        ranged = ranged_column(column.field, column.type)
        if ranged is None:
            raise ValueError(f"values of column {column.name!r} are not compared")
        self.ranged = ranged
        self.column = column
        self.key: Any = key_of(ranged)
        self.nulls = 0
        self._least: tuple[Any, bytes] | None = None
        self._most: tuple[Any, bytes] | None = None
        self._read: list[tuple[Any, Any]] = []  # the least and the most of what was read

    def take(self, told: ColumnRange) -> None:
        """Take the range of some nodes into account."""
        self.nulls += told.nulls
        if told.least is None or told.most is None:
            return
        low, high = (self.key(told.least), told.least), (self.key(told.most), told.most)
        if self._least is None or low[0] < self._least[0]:
            self._least = low
        if self._most is None or high[0] > self._most[0]:
            self._most = high

    def take_text(self, text: bytes | None) -> None:
        """Take the value of an entry into account; None: it has none."""
        try:
            value = None if text is None else self.column.type.read(text)
        except ValueError:
            value = None
        if value is None:
            self.nulls += 1
            return
        found = sorted([*self._read, (comparable(value), value)], key=lambda each: each[0])
        self._read = [found[0], found[-1]]

    def summary(self) -> ColumnSummary:
        """What was seen."""
        values = [
            self.column.type.read(each[1]) for each in (self._least, self._most) if each is not None
        ]
        found = sorted(
            [*((comparable(each), each) for each in values), *self._read],
            key=lambda each: each[0],
        )
        if not found:
            return ColumnSummary(self.nulls, None, None)
        return ColumnSummary(self.nulls, found[0][1], found[-1][1])


class _Group(NamedTuple):
    """The listed nodes of a block: their numbers in the list. ``places``: of the columns in what is
    told; none of nodes of which nothing is told."""

    segment: int
    block: Block | None
    places: Sequence[int]
    members: list[int]


class _Summing:
    """Sums up the nodes of a list."""

    def __init__(self, engine: Engine, found: Listed, columns: Sequence[Column]) -> None:
        self._engine = engine
        self._found = found
        self._values = [_Values(each) for each in columns]
        self._finder = codec().RangeFinder([each.ranged for each in self._values])
        self._positions = found.nodes.positions()
        self._lives = found.nodes.lives()
        self._entries = 0
        self._unread: list[int] = []

    def summary(self, read_max: int | None) -> Summary | None:
        """What the nodes hold; None if more than so many must be read."""
        nodes, sections = len(self._positions), self._found.sections
        ends = [*(first for first, _ in sections[1:]), nodes]
        for (first, section), end in zip(sections, ends, strict=False):
            for group in self._groups(section, first, end):
                self._take_group(group)
        if read_max is not None and len(self._unread) > read_max:
            return None
        self._unread.sort()
        for at in range(0, len(self._unread), READ_NODES):
            self._read(self._unread[at : at + READ_NODES])
        columns = [each.summary() for each in self._values]
        return Summary(self._entries, columns, nodes, len(self._unread))

    def _groups(self, section: Section, first: int, end: int) -> list[_Group]:
        """The nodes of a stream, by the block that tells of them; those that the interval cuts, and
        that have no place in the log, are to be read."""
        found: dict[tuple[int, int], _Group] = {}
        cut = {at for at in (first, end - 1) if self._is_cut(section, at)}
        above = upto = 0
        members = self._unread
        for at in range(first, end):
            position = self._positions[at]
            if not position or at in cut:
                self._unread.append(at)
                continue
            if not above < position <= upto:
                above, upto, group = self._group(section[1], position)
                key = group.segment, upto
                members = found.setdefault(key, group).members
            members.append(at)
        return list(found.values())

    def _is_cut(self, section: Section, at: int) -> bool:
        _, _, start, end = section
        item, _ = next(each_item(self._found.nodes.picked([at])))
        return item.master < start or item.last > end

    def _group(self, stream: int, position: int) -> tuple[int, int, _Group]:
        """The stretch of the log around a position, and who tells of its nodes."""
        segment, offset = fmt.position_parts(position)
        found = statistics(self._engine, segment)
        told = None if found is None else found.streams.get(stream)
        places = [] if told is None else self._places(told.columns)
        around = None if told is None or len(places) < len(self._values) else told.block(offset)
        if around is None:
            return position - 1, fmt.position(segment + 1, 0), _Group(segment, None, (), [])
        before, block = around
        stretch = fmt.position(segment, before), fmt.position(segment, block.last)
        return *stretch, _Group(segment, block, places, [])

    def _places(self, columns: Sequence[tuple[bytes, str]]) -> list[int]:
        """Where the columns stand among those that are told of; not of those that do not."""
        found = [place_of(columns, each.column.field, each.column.type) for each in self._values]
        return [at for at in found if at is not None]

    def _take_group(self, group: _Group) -> None:
        block, lives = group.block, self._lives
        if block is None:
            self._unread += group.members
            return
        rows = sum([lives[at] for at in group.members])
        if rows == block.whole.rows and self._took(block.whole.ranges, group.places):
            self._entries += rows
            return
        nodes = nodes_of(group.segment, block)
        for at in group.members:
            node = nodes.get(self._positions[at])
            if (
                node is not None
                and node.rows == lives[at]
                and self._took(node.ranges, group.places)
            ):
                self._entries += node.rows
            else:
                self._unread.append(at)

    def _took(self, ranges: Ranges, places: Sequence[int]) -> bool:
        """Take ranges into account, if they tell of all columns."""
        found = []
        for each, at in zip(self._values, places, strict=True):
            told = ranges[at]
            if told is None or any(
                text is not None and each.key(text) is None for text in (told.least, told.most)
            ):
                return False
            found.append(told)
        for each, told in zip(self._values, found, strict=True):
            each.take(told)
        return True

    # -- nodes that are read ----------------------------------------------------------------
    def _read(self, some: Sequence[int]) -> None:
        """Read nodes, ascending."""
        items = [item for item, _ in each_item(self._found.nodes.picked(list(some)))]
        bounds = [first for first, _ in self._found.sections]
        sections: list[Section] = []
        at = -1
        for number in some:
            while at + 1 < len(bounds) and bounds[at + 1] <= number:
                at += 1
            sections.append(self._found.sections[at][1])
        found = snapshot.read(self._engine, _listpacks, self._engine, sections, items)
        if isinstance(found, SegmentGone):
            raise found
        for section, item, lp in zip(sections, items, found, strict=True):
            self._take_node(section, item, lp)

    def _take_node(self, section: Section, item: Item, lp: bytes) -> None:
        _, _, start, end = section
        if item.master >= start and item.last <= end:
            deleted = tombstones.ordinals_of(item.vector)
            rows, ranges = self._finder.of(codec().mark_deleted(lp, deleted) if deleted else lp)
            if self._took(ranges, range(len(self._values))):
                self._entries += rows
                return
        for _, _, _, flat in codec().entries(lp, *item.master, item.vector, start, end):
            self._entries += 1
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            for each in self._values:
                each.take_text(fields.get(each.column.field))


def _listpacks(
    _: Snapshot, engine: Engine, sections: Sequence[Section], items: Sequence[Item]
) -> list[bytes] | SegmentGone:
    """The listpacks of nodes; SegmentGone, given, if some were moved."""
    reader = SegmentNodes(engine.segments)
    try:
        return [
            reader.listpack(section, item) if item.position else item.lp
            for section, item in zip(sections, items, strict=True)
        ]
    except SegmentGone as gone:
        return gone
