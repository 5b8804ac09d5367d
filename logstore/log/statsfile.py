"""Statistics of a sealed segment: for the nodes of streams with a schema, the least and the most of
their columns. Who looks for entries leaves out the nodes in which none can be.

Nodes are told in blocks of BLOCK_NODES, in the order of the segment; what a block tells holds for
all of its nodes, which are unpacked only where they are looked at.

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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgpack

from logstore import format as fmt
from logstore.codec.column_keys import ColumnRange, Key, RangedColumn, key_of
from logstore.crc import crc32c
from logstore.errors import CorruptionError, FileSystemError
from logstore.fs import FileSystem
from logstore.log import file_names, versioned, whole_file
from logstore.tuples import NamedTuple

BLOCK_NODES: Final = 64
MAX_BYTES: Final = 32 << 20  # of the content: more of it is not told, nor read
_ZLIB_LEVEL: Final = 1
Ranges = Sequence["ColumnRange | None"]
T = TypeVar("T")


class NamedColumn(NamedTuple):
    """A column as statistics name it: its field, and the name of its type."""

    field: bytes
    type: str


class NodeRanges(NamedTuple):
    """A node, or a block of them: how many entries, and the range of each column; None: nothing is
    told of it."""

    rows: int
    ranges: Ranges


class Block(NamedTuple):
    """Neighbouring nodes of a stream; ``last``: where in the segment the last one begins."""

    last: int
    whole: NodeRanges
    packed: bytes

    def nodes(self) -> dict[int, NodeRanges]:
        """Its nodes, by where their frames begin in the segment. CorruptionError, ValueError,
        TypeError."""
        columns = len(self.whole.ranges)
        return {
            _checked(int, offset): NodeRanges(_checked(int, rows), _unpacked(ranges, columns))
            for offset, rows, ranges in versioned.unpack(self.packed, "a block of statistics")
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
        offset: int,
        node: NodeRanges,
    ) -> None:
        """Add a node; those of a stream come in the order of the segment, with the same columns."""
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = _StreamBuilder(columns)
        found.add(offset, node)

    def pack(self) -> bytes:
        """The content of the file, at most MAX_BYTES: of a segment with more, nothing is told."""
        body = [[stream, *each.finished()] for stream, each in self._streams.items()]
        packed: bytes = msgpack.packb(body)
        return packed if len(packed) <= MAX_BYTES else NOTHING


class _StreamBuilder:
    """The blocks of one stream."""

    def __init__(self, columns: Sequence[tuple[NamedColumn, RangedColumn]]) -> None:
        self._columns = [[each.field, each.type] for each, _ in columns]
        self._keys = [key_of(each) for _, each in columns]
        self._blocks: list[list[Any]] = []
        self._nodes: list[tuple[int, NodeRanges]] = []

    def add(self, offset: int, node: NodeRanges) -> None:
        self._nodes.append((offset, node))
        if len(self._nodes) == BLOCK_NODES:
            self._end_block()

    def finished(self) -> list[Any]:
        if self._nodes:
            self._end_block()
        return [self._columns, self._joined([block[2] for block in self._blocks]), self._blocks]

    def _joined(self, parts: Sequence[Ranges]) -> list[ColumnRange | None]:
        return [joined([part[at] for part in parts], key) for at, key in enumerate(self._keys)]

    def _end_block(self) -> None:
        nodes, self._nodes = self._nodes, []
        rows = sum(node.rows for _, node in nodes)
        ranges = self._joined([node.ranges for _, node in nodes])
        packed = msgpack.packb([[offset, node.rows, node.ranges] for offset, node in nodes])
        self._blocks.append([nodes[-1][0], rows, ranges, packed])


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
            )
            for last, rows, ranges, packed in blocks
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


def _checked(kind: type[T], value: Any) -> T:
    """A value that is of a type: to make it so could take any memory. ValueError."""
    if not isinstance(value, kind):
        raise ValueError(f"{type(value).__name__} stands where {kind.__name__} belongs")
    return value
