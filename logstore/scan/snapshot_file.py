"""Snapshot files: what a plan found in the index, for readers that have no index.

Of a store at a URI nobody but the tasks may need to know: there a split has its blocks with it, and
the objects that they name.

A head, then blocks. A block belongs to one stream and one split; it holds items: locators of sealed
nodes with their vectors, and the listpacks of nodes that are in no segment as a whole.

Invariants: a file is written once, synced before anybody is told of it, and never changed; nothing
of a block is used before its CRC fits, bound to the file and the place in it. A split is plain
numbers and text, whatever the size of the stream: what it covers stands in a byte range of the
snapshot file. The splits of a plan cover every entry once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from logstore import format as fmt
from logstore.codec import Section
from logstore.crc import crc32c
from logstore.errors import CorruptionError, SnapshotExpiredError
from logstore.fs import File, FileSystem
from logstore.ids import StreamID
from logstore.log import pinfile, versioned
from logstore.log.shipped import ShippedPart
from logstore.tuples import NamedTuple


class Split(NamedTuple):
    """What one task reads. ``entries`` and ``data_bytes`` are what is to be expected, at most."""

    store: str
    home: str  # the directory whose pins/ has the pin and the snapshot file; mostly the store
    uuid: bytes
    pin_id: str
    offset: int  # in the snapshot file
    size_bytes: int
    first: StreamID  # master ID of the first node
    last: StreamID  # last ID of the last node
    nodes: int
    entries: int
    data_bytes: int
    blocks: bytes = b""  # of a store at a URI: that part of the snapshot, which is in no file
    objects: tuple[ShippedPart, ...] = ()  # and the segments there that it names


NO_PIN = "0" * 32
HEAD_BYTES = fmt.SNAPSHOT_HEAD.size
_BLOCK = fmt.SNAPSHOT_BLOCK
WRITE_BYTES = 256 << 10
BODY_MAX_BYTES = (1 << 32) - 1


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
    """A part of a snapshot that is in no file."""

    def __init__(self, data: bytes, offset: int) -> None:
        super().__init__(-1, Path("of this split"))
        self._data = data
        self._offset = offset

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """As of the whole snapshot."""
        at = offset - self._offset
        return self._data[at : at + size_bytes]


class InlineWriter(Writer):
    """Keeps a snapshot in memory, for splits that have their part of it with them."""

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
    """The list of the splits of a plan, which is a block of no stream; SnapshotExpiredError."""
    with opened(fs, home, uuid, pin.id) as blocks:
        table_end = pin.table_at + pin.table_bytes
        return _read_body(blocks.file, blocks.head_crc, pin.table_at, table_end)[1]


def _damaged(path: Path, why: str, offset: int) -> CorruptionError:
    return CorruptionError(
        f"the snapshot {path} is damaged ({why}): load again, a new one is made from the store",
        offset=offset,
    )


def read(fs: FileSystem, split: Split) -> Generator[tuple[Section, bytes], None, None]:
    """The blocks of a split, checked: what they are of, and a list of nodes as the codec has
    it (`logstore.codec.node_list`). SnapshotExpiredError if the file is gone."""
    if split.blocks:
        crc = int.from_bytes(_head(split.uuid, NO_PIN, 0)[-4:], "little")
        inline = Blocks(_Bytes(split.blocks, split.offset), crc)
        yield from inline.read(split.offset, split.size_bytes)
        return
    with opened(fs, Path(split.home), split.uuid, split.pin_id) as blocks:
        yield from blocks.read(split.offset, split.size_bytes)


class Blocks(NamedTuple):
    """The blocks of one snapshot, whose head was checked."""

    file: File
    head_crc: int

    def read(self, offset: int, size_bytes: int) -> Iterator[tuple[Section, bytes]]:
        """Those in a byte range, checked, as `read` gives them."""
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
    if after > end:  # checked before memory is taken: the length may be anything
        raise _damaged(file.path, "a block is longer than what is there", offset)
    body = file.pread(size, offset + _BLOCK.size)
    if len(body) < size or _block_crc(head_crc, offset, head[4:], body) != crc:
        raise _damaged(file.path, "a block is not what was written", offset)
    return head, body, after
