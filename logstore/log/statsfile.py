"""Statistics of a sealed segment: for the nodes of streams with a schema, the least and the most of
their columns. Who looks for entries leaves out the nodes in which none can be.

Nodes are told in blocks of BLOCK_NODES, in the order of the segment; what a block tells holds for
all of its nodes, which are unpacked only where they are looked at. A block has filters of some
columns (``filter_choice``), which tell the nodes that may have a value.

Invariants: it is derived, as hints are: lost or not whole, it is as good as none. Its segment does
not change, so what it tells of a node stays right: a node only loses entries. It never outlives its
segment. A type is named with each column: who reads the column as another one learns nothing.
Never imports the index.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import sub
from pathlib import Path
from typing import Any, Final, TypeVar

import msgpack

from logstore import format as fmt
from logstore.codec import node_filter
from logstore.codec.column_keys import ColumnRange, Key, RangedColumn, key_of
from logstore.crc import crc32c
from logstore.errors import CorruptionError, FileSystemError
from logstore.fs import FileSystem
from logstore.log import file_names, versioned, whole_file
from logstore.log.filter_choice import FilterChoice, Filters
from logstore.tuples import NamedTuple

BLOCK_NODES: Final = node_filter.NODES_MAX
MAX_BYTES: Final = 32 << 20  # of the content: more of it is not told, nor read
_ZLIB_LEVEL: Final = 1
Ranges = Sequence["ColumnRange | None"]
TakeFilters = Callable[[], Filters]
T = TypeVar("T")


class NamedColumn(NamedTuple):
    """A column as statistics name it: its field, and the name of its type."""

    field: bytes
    type: str


class NodePlace(NamedTuple):
    """Where in its segment the frame of a node begins, and how many bytes it has."""

    offset: int
    size_bytes: int


class NodeRanges(NamedTuple):
    """A node, or a block of them: how many entries, and the range of each column; None: nothing is
    told of it."""

    rows: int
    ranges: Ranges


class Block(NamedTuple):
    """Neighbouring nodes of a stream: where in the segment the last one begins, what holds for all
    of them, and what for each, packed; how far behind the one before each begins, packed, in the
    order of the segment; the filter of each column, None if there is none."""

    last: int
    whole: NodeRanges
    packed: bytes
    places: bytes
    filters: Filters

    def offsets(self) -> tuple[int, ...]:
        """Where in the segment the frames of its nodes begin, ascending."""
        return tuple(accumulate(struct.unpack(f"<{len(self.places) // 4}I", self.places)))

    def nodes(self) -> dict[int, NodeRanges]:
        """Its nodes, by where their frames begin in the segment. CorruptionError, ValueError,
        TypeError."""
        columns = len(self.whole.ranges)
        nodes = versioned.unpack(self.packed, "a block of statistics")
        return {
            offset: NodeRanges(_checked(int, rows), _unpacked(ranges, columns))
            for offset, (rows, ranges) in zip(self.offsets(), nodes, strict=True)
        }


class StreamStatistics(NamedTuple):
    """What is told of a stream's nodes in a segment: of all of them, and of each block."""

    columns: tuple[NamedColumn, ...]
    whole: Ranges
    blocks: tuple[Block, ...]
    lasts: array[int]

    def block(self, offset: int) -> tuple[int, Block] | None:
        """The block that may have the node of an offset, and the last offset of the one before."""
        at = bisect_left(self.lasts, offset)
        if at == len(self.blocks):
            return None
        return self.lasts[at - 1] if at else 0, self.blocks[at]


class SegmentStatistics(NamedTuple):
    """What is told of a segment, by the numbers of streams; ``size_bytes`` of its content."""

    streams: dict[int, StreamStatistics]
    size_bytes: int


NONE: Final = SegmentStatistics({}, 0)
NOTHING: Final = b"\x90"  # an array without a stream


class StatisticsBuilder:
    """Gathers what is told of a segment."""

    def __init__(self) -> None:
        self._streams: dict[int, _StreamBuilder] = {}

    def add(
        self,
        stream: int,
        columns: Sequence[tuple[NamedColumn, RangedColumn]],
        node: NodePlace,
        ranges: NodeRanges,
        filters: TakeFilters = tuple,
    ) -> None:
        """Add a node; those of a stream come in the order of the segment, with the same columns.
        ``filters`` gives those of the nodes since it was called last."""
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = _StreamBuilder(columns, filters)
        found.add(node, ranges)

    def pack(self) -> bytes:
        """The content of the file, at most MAX_BYTES: of a segment with more, nothing is told."""
        for streams in self._streams.values():
            streams.finish()
        for filtered in (True, False):
            body = [[key, *each.packed(filtered)] for key, each in self._streams.items()]
            packed: bytes = msgpack.packb(body)
            if len(packed) <= MAX_BYTES:
                return packed
        return NOTHING


class _StreamBuilder:
    """The blocks of one stream."""

    def __init__(
        self, columns: Sequence[tuple[NamedColumn, RangedColumn]], filters: TakeFilters
    ) -> None:
        self._columns = [[each.field, each.type] for each, _ in columns]
        self._keys = [key_of(each) for _, each in columns]
        self._blocks: list[Block] = []
        self._nodes: list[tuple[NodePlace, NodeRanges]] = []
        self._take_filters = filters
        self._size_bytes = 0
        self._choice = FilterChoice(len(columns))

    def add(self, node: NodePlace, ranges: NodeRanges) -> None:
        self._nodes.append((node, ranges))
        if len(self._nodes) == BLOCK_NODES:
            self._end_block()

    def finish(self) -> None:
        if self._nodes:
            self._end_block()

    def packed(self, filtered: bool) -> list[Any]:
        """What the file has of the stream; ``filtered``: with filters."""
        chosen = self._choice.columns(self._keys, self._size_bytes) if filtered else []
        whole = self._joined([block.whole.ranges for block in self._blocks])
        blocks = [
            [
                block.last,
                block.whole.rows,
                block.whole.ranges,
                block.packed,
                block.places,
                [each if at in chosen else None for at, each in enumerate(block.filters)],
            ]
            for block in self._blocks
        ]
        return [self._columns, whole, blocks]

    def _joined(self, parts: Sequence[Ranges]) -> list[ColumnRange | None]:
        return [joined([part[at] for part in parts], key) for at, key in enumerate(self._keys)]

    def _end_block(self) -> None:
        nodes, self._nodes = self._nodes, []
        whole = NodeRanges(
            sum(each.rows for _, each in nodes), self._joined([each.ranges for _, each in nodes])
        )
        packed = msgpack.packb([[each.rows, each.ranges] for _, each in nodes])
        filters = self._take_filters() or [None] * len(self._keys)
        offsets = [place.offset for place, _ in nodes]
        steps = map(sub, offsets, [0, *offsets])
        places = struct.pack(f"<{len(offsets)}I", *steps)
        self._blocks.append(Block(offsets[-1], whole, packed, places, filters))
        self._size_bytes += sum(place.size_bytes for place, _ in nodes)
        self._choice.add(whole.ranges, nodes[len(nodes) // 2][1].ranges, filters, len(nodes))


def joined(ranges: Ranges, key: Any) -> ColumnRange | None:
    """What holds for all of some nodes; ``key`` gives the keys of texts."""
    nulls = 0
    least: tuple[Key, bytes] | None = None
    most: tuple[Key, bytes] | None = None
    for each in ranges:
        if each is None:
            return None
        nulls += each.nulls
        if each.least is None or each.most is None:
            continue
        low, high = (key(each.least), each.least), (key(each.most), each.most)
        least = low if least is None or low[0] < least[0] else least
        most = high if most is None or high[0] > most[0] else most
    return ColumnRange(nulls, least and least[1], most and most[1])


def write(
    fs: FileSystem, store: Path, uuid: bytes, number: int, size_bytes: int, content: bytes
) -> None:
    """Write the statistics of a segment of so many bytes, which was synced.

    Several processes may be about to: one of them does it, the others leave it to that one.
    """
    body = zlib.compress(content, _ZLIB_LEVEL)
    head = fmt.STATISTICS_HEAD.pack(
        fmt.STATISTICS_MAGIC,
        fmt.FORMAT_VERSION,
        0,
        number,
        size_bytes,
        len(content),
        len(body),
        uuid,
        0,
    )[:-4]
    crc = crc32c(body, crc32c(head)).to_bytes(4, "little")
    whole_file.write_alone(fs, file_names.statistics(store, number), head + crc + body)


def is_outdated(fs: FileSystem, store: Path, number: int) -> bool:
    """Whether the statistics of a segment are there in an older form."""
    try:
        file = fs.open(file_names.statistics(store, number))
    except (FileNotFoundError, FileSystemError):
        return False
    try:
        magic = file.pread(len(fmt.STATISTICS_MAGIC), 0)
    finally:
        file.close()
    return magic[:-1] == fmt.STATISTICS_MAGIC[:-1] and magic < fmt.STATISTICS_MAGIC


def read(fs: FileSystem, store: Path, uuid: bytes, number: int) -> SegmentStatistics | None:
    """The statistics of a segment; None if there are none that can be believed."""
    try:
        data = fs.read(file_names.statistics(store, number), MAX_BYTES)
    except (FileNotFoundError, FileSystemError):
        return None
    content = _content(data, uuid, number)
    if content is None:
        return None
    try:
        streams = dict(_streams(content))
    except (CorruptionError, ValueError, TypeError, OverflowError, struct.error):
        return None
    return SegmentStatistics(streams, len(content))


def _content(data: bytes, uuid: bytes, number: int) -> bytes | None:
    """What the file holds; None if its head, or its checksum, is not as it must be."""
    body_at = fmt.STATISTICS_HEAD.size
    if len(data) < body_at:
        return None
    fields = fmt.STATISTICS_HEAD.unpack_from(data)
    magic, of_format, _, segment, _, content_bytes, body_bytes, owner, crc = fields
    body = data[body_at:]
    if magic != fmt.STATISTICS_MAGIC or not versioned.is_readable(of_format):
        return None
    if owner != uuid or segment != number or len(body) != body_bytes:
        return None
    if content_bytes > MAX_BYTES or crc32c(body, crc32c(data[: body_at - 4])) != crc:
        return None
    inflating = zlib.decompressobj()
    try:
        content = inflating.decompress(body, content_bytes + 1)
    except zlib.error:
        return None
    whole = inflating.eof and not inflating.unused_data and len(content) == content_bytes
    return content if whole else None


def _streams(content: bytes) -> Iterator[tuple[int, StreamStatistics]]:
    for stream, columns, whole, blocks in versioned.unpack(content, "statistics"):
        named = tuple(
            NamedColumn(_checked(bytes, field), _checked(str, kind)) for field, kind in columns
        )
        made = tuple(
            Block(
                _checked(int, last),
                NodeRanges(_checked(int, rows), _unpacked(ranges, len(named))),
                _checked(bytes, packed),
                _places(places),
                _filters(filters, len(named)),
            )
            for last, rows, ranges, packed, places, filters in blocks
        )
        lasts = array("Q", [each.last for each in made])
        yield (
            _checked(int, stream),
            StreamStatistics(named, _unpacked(whole, len(named)), made, lasts),
        )


def _unpacked(ranges: Any, columns: int) -> list[ColumnRange | None]:
    """The ranges of so many columns."""
    found = [None if each is None else ColumnRange(*each) for each in ranges]
    if len(found) != columns:
        raise ValueError("there are other ranges than columns")
    for each in found:
        if each is not None:
            _checked(int, each.nulls)
            if each.least is not None or each.most is not None:
                _checked(bytes, each.least)
                _checked(bytes, each.most)
    return found


def _places(places: Any) -> bytes:
    """Where the nodes of a block begin."""
    if len(_checked(bytes, places)) % 4 or len(places) > 4 * BLOCK_NODES:
        raise ValueError("the places of nodes are cut off")
    return bytes(places)


def _filters(filters: Any, columns: int) -> list[bytes | None]:
    """The filters of so many columns."""
    found = [None if each is None else _checked(bytes, each) for each in filters]
    if len(found) != columns:
        raise ValueError("there are other filters than columns")
    return found


def _checked(kind: type[T], value: Any) -> T:
    """A value that is of a type: to make it so could take any memory. ValueError."""
    if not isinstance(value, kind):
        raise ValueError(f"{type(value).__name__} stands where {kind.__name__} belongs")
    return value
