"""Snapshot files: the nodes that a plan listed, for readers that have no index.

A file is a head, then blocks. A block belongs to one stream and one split. It holds items: locators
of sealed nodes with their vectors, and the listpacks of nodes that no segment holds as a whole. A
split is a byte range of the file. The splits of a store at a URI carry their blocks, and the names
of the objects that these need, so nothing is written there.

Invariants: a file is written once, synced before anybody learns of it, and never changed. Nothing
of a block is used before its CRC fits, which covers the file's head and the block's offset. A block
ends with its split, with its stream, or at BLOCK_BYTES. The splits of a plan cover every entry
once. A split is small, whatever the size of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from logstore import format as fmt
from logstore.codec import Section
from logstore.codec.node_list import NodeList
from logstore.crc import crc32c
from logstore.errors import CorruptionError, SnapshotExpiredError
from logstore.fs import File, FileSystem
from logstore.ids import ZERO_ID, StreamID
from logstore.log import pinfile, versioned
from logstore.log.shipped import ShippedPart
from logstore.tuples import NamedTuple


class Split(NamedTuple):
    """What one task reads. ``entries`` and ``data_bytes`` are upper limits."""

    store: str
    home: str  # the directory with pin and snapshot file in pins/: the store, unless one was named
    uuid: bytes
    pin_id: str
    offset: int  # in the snapshot file
    size_bytes: int
    first: StreamID  # master ID of the first node
    last: StreamID  # last ID of the last node
    nodes: int
    entries: int
    data_bytes: int
    blocks: bytes = b""  # of a store at a URI: the blocks themselves
    objects: tuple[ShippedPart, ...] = ()  # of a store at a URI: the segments that the blocks name


NO_PIN = "0" * 32
HEAD_BYTES = fmt.SNAPSHOT_HEAD.size
_BLOCK = fmt.SNAPSHOT_BLOCK
WRITE_BYTES = 256 << 10


def _head(uuid: bytes, pin_id: str, made_ms: int) -> bytes:
    front = fmt.SNAPSHOT_HEAD.pack(
        fmt.SNAPSHOT_MAGIC, fmt.FORMAT_VERSION, 0, uuid, bytes.fromhex(pin_id), made_ms, 0
    )[:-4]
    return front + int(crc32c(front)).to_bytes(4, "little")


def _block_crc(head_crc: int, offset: int, head_after_crc: bytes, body: bytes) -> int:
    place = crc32c(offset.to_bytes(8, "little"), head_crc)
    return int(crc32c(body, crc32c(head_after_crc, place)))


class Writer:
    """Writes one snapshot file; ``finish`` makes it durable."""

    def __init__(self, fs: FileSystem, home: Path, uuid: bytes, pin_id: str, made_ms: int) -> None:
        self._fs = fs
        self._path = pinfile.snapshot_path(home, pin_id)
        self._file = fs.open(self._path, write=True, exclusive=True)
        head = _head(uuid, pin_id, made_ms)
        self._head_crc = int.from_bytes(head[-4:], "little")
        self._pending = bytearray(head)
        self.offset = len(head)

    def _put(self, data: bytes | bytearray, offset: int) -> None:
        self._file.pwrite(data, offset)

    def block(self, section: Section, items: int, data: bytes | bytearray) -> None:
        """Append a block of packed items."""
        name, stream, start, end = section
        body = name + data
        head = _BLOCK.pack(0, len(body), len(name), items, stream, *start, *end)[4:]
        crc = _block_crc(self._head_crc, self.offset, head, body)
        self._pending += crc.to_bytes(4, "little") + head + body
        self.offset += 4 + len(head) + len(body)
        if len(self._pending) >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._put(self._pending, self.offset - len(self._pending))
        self._pending = bytearray()

    def finish(self) -> None:
        """Data and name are durable after it."""
        self._write()
        self._file.sync()
        self._fs.sync_directory(self._path.parent)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Bytes(File):
    """The blocks of a split, read as if they were the snapshot file."""

    def __init__(self, data: bytes, offset: int) -> None:
        super().__init__(-1, Path("of this split"))
        self._data = data
        self._offset = offset

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Bytes at an offset of the whole snapshot."""
        at = offset - self._offset
        return self._data[at : at + size_bytes]


class InlineWriter(Writer):
    """Keeps a snapshot in memory, for splits that carry their blocks."""

    def __init__(self, uuid: bytes) -> None:
        head = _head(uuid, NO_PIN, 0)
        self._head_crc = int.from_bytes(head[-4:], "little")
        self._pending = bytearray(head)
        self._written = bytearray()
        self.offset = len(head)

    def _put(self, data: bytes | bytearray, offset: int) -> None:
        assert offset == len(self._written)
        self._written += data

    def finish(self) -> None:
        """All is in ``part``."""
        self._write()

    def close(self) -> None:
        """There is no file."""

    def part(self, split: Split) -> bytes:
        """The blocks of a split."""
        return bytes(self._written[split.offset : split.offset + split.size_bytes])


def read_table(fs: FileSystem, home: Path, uuid: bytes, pin: pinfile.Pin) -> bytes:
    """The table of the splits of a plan, a block of no stream; SnapshotExpiredError."""
    with opened(fs, home, uuid, pin.id) as blocks:
        table_end = pin.table_at + pin.table_bytes
        return _read_body(blocks.file, blocks.head_crc, pin.table_at, table_end)[1]


def _damaged(path: Path, why: str, offset: int) -> CorruptionError:
    return CorruptionError(
        f"the snapshot {path} is damaged ({why}): load again, a new one is made from the store",
        offset=offset,
    )


def read(fs: FileSystem, split: Split) -> Generator[tuple[Section, bytes], None, None]:
    """The checked blocks of a split: stream and interval, and a list of nodes as the codec has it
    (`logstore.codec.node_list`). SnapshotExpiredError if the file is gone."""
    if split.blocks:
        crc = int.from_bytes(_head(split.uuid, NO_PIN, 0)[-4:], "little")
        inline = Blocks(_Bytes(split.blocks, split.offset), crc)
        yield from inline.read(split.offset, split.size_bytes)
        return
    with opened(fs, Path(split.home), split.uuid, split.pin_id) as blocks:
        yield from blocks.read(split.offset, split.size_bytes)


class Blocks(NamedTuple):
    """The blocks of one snapshot with a checked head."""

    file: File
    head_crc: int

    def read(self, offset: int, size_bytes: int) -> Iterator[tuple[Section, bytes]]:
        """The blocks in a byte range, as `read` gives them."""
        end = offset + size_bytes
        while offset < end:
            section, items, offset = _read_block(self.file, self.head_crc, offset, end)
            yield section, items


@contextmanager
def opened(fs: FileSystem, home: Path, uuid: bytes, pin_id: str) -> Iterator[Blocks]:
    """A snapshot file, to read any number of ranges of it; SnapshotExpiredError if it is gone."""
    path = pinfile.snapshot_path(home, pin_id)
    try:
        file = fs.open(path)
    except FileNotFoundError:
        raise SnapshotExpiredError(
            f"the snapshot {path} was given back or ran out: load again"
        ) from None
    try:
        yield Blocks(file, _check_head(file, uuid, pin_id))
    finally:
        file.close()


def _check_head(file: File, uuid: bytes, pin_id: str) -> int:
    data = file.pread(HEAD_BYTES, 0)
    if len(data) < HEAD_BYTES:
        raise _damaged(file.path, "its head is cut off", 0)
    magic, of_format, _, found_uuid, pin, _, crc = fmt.SNAPSHOT_HEAD.unpack(data)
    if magic != fmt.SNAPSHOT_MAGIC or crc32c(data[:-4]) != crc:
        raise _damaged(file.path, "its head is not what was written", 0)
    versioned.check_version(of_format, file.path)
    if found_uuid != uuid or pin != bytes.fromhex(pin_id):
        raise _damaged(file.path, "it belongs to another store or pin", 0)
    return int(crc)


def _read_block(file: File, head_crc: int, offset: int, end: int) -> tuple[Section, bytes, int]:
    head, body, after = _read_body(file, head_crc, offset, end)
    _, _, name_bytes, _, stream, *ids = _BLOCK.unpack(head)
    section = body[:name_bytes], stream, (ids[0], ids[1]), (ids[2], ids[3])
    return section, body[name_bytes:], after


def _read_body(file: File, head_crc: int, offset: int, end: int) -> tuple[bytes, bytes, int]:
    """Head and body of a block, checked, and where the next one begins."""
    head = file.pread(_BLOCK.size, offset)
    if len(head) < _BLOCK.size or offset + _BLOCK.size > end:
        raise _damaged(file.path, "a block is cut off", offset)
    crc, size = _BLOCK.unpack(head)[:2]
    after = offset + _BLOCK.size + size
    if after > end:  # before memory is taken: the length may be anything
        raise _damaged(file.path, "a block is longer than what is there", offset)
    body = file.pread(size, offset + _BLOCK.size)
    if len(body) < size or _block_crc(head_crc, offset, head[4:], body) != crc:
        raise _damaged(file.path, "a block is not what was written", offset)
    return head, body, after


BLOCK_BYTES = 64 << 10


class Listed(Protocol):
    """Listed nodes; ``sections``: for each stream its first node in the list, and its interval."""

    nodes: NodeList
    sections: list[tuple[int, Section]]


def write_splits(
    writer: Writer,
    place: Split,
    found: Listed,
    cuts: Sequence[int],
    table: Callable[[Sequence[Split]], bytes],
) -> tuple[list[Split], int]:
    """Write the nodes between each two ``cuts`` as one split, and the ``table`` of the splits; the
    splits, and the offset of the table. The file is durable afterwards."""
    splits: list[Split] = []
    ends = sorted({*cuts, *(first for first, _ in found.sections)})
    pieces = iter(found.nodes.pieces(ends, BLOCK_BYTES))
    at = node = number = 0
    try:
        for high in cuts[1:]:
            offset, low, entries, size = writer.offset, node, 0, 0
            first = last = (0, 0)
            while node < high:
                one = next(pieces)
                while number + 1 < len(found.sections) and found.sections[number + 1][0] <= node:
                    number += 1
                writer.block(found.sections[number][1], one.nodes, found.nodes.items(at, one.end))
                if node == low:
                    first = one.first
                last, entries, size = one.last, entries + one.live, size + one.size_bytes
                at, node = one.end, node + one.nodes
            splits.append(
                place._replace(
                    offset=offset,
                    size_bytes=writer.offset - offset,
                    first=StreamID(*first),
                    last=StreamID(*last),
                    nodes=node - low,
                    entries=entries,
                    data_bytes=size,
                )
            )
        table_at = writer.offset
        writer.block((b"", 0, ZERO_ID, ZERO_ID), 0, table(splits))
        writer.finish()
    finally:
        writer.close()
    return splits, table_at
