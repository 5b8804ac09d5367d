"""Segments: the header, creation, and where the chain of main segments stands.

Invariants: a segment appears under its name whole, with a synced header; its number is never used
again; a main segment's header names the position and the commit at which the one before ends, so
that bytes behind that position are void. Never imports the index.
"""

from __future__ import annotations

import struct
from pathlib import Path

from logstore import format as fmt
from logstore.crc import crc32c
from logstore.errors import CorruptFrameError
from logstore.fs import File, FileSystem
from logstore.log import file_names, log_reader, versioned
from logstore.tuples import NamedTuple


class SegmentHead(NamedTuple):
    """What a segment's first 64 bytes say."""

    role: int
    number: int
    uuid: bytes
    previous_end: int
    previous_commit: int
    created_ms: int


def pack_head(head: SegmentHead) -> bytes:
    """The 64 bytes."""
    data = fmt.SEGMENT_HEAD.pack(
        fmt.SEGMENT_MAGIC,
        fmt.FORMAT_VERSION,
        head.role,
        0,
        head.number,
        head.uuid,
        head.previous_end,
        head.previous_commit,
        head.created_ms,
        0,
        0,
    )
    return data[:-4] + struct.pack("<I", crc32c(data[:-4]))


def read_head(file: File, number: int, uuid: bytes) -> SegmentHead:
    """The header, checked: CRC, version, number and store."""
    data = log_reader.read(file, fmt.SEGMENT_HEAD_BYTES, number, 0)
    if len(data) < fmt.SEGMENT_HEAD_BYTES or data[:8] != fmt.SEGMENT_MAGIC:
        raise CorruptFrameError(f"{file.path} has no segment header", segment=number, offset=0)
    fields = fmt.SEGMENT_HEAD.unpack(data)
    if crc32c(data[:-4]) != fields[-1]:
        raise CorruptFrameError(f"the header of {file.path} is damaged", segment=number, offset=0)
    versioned.check_version(fields[1], file.path)
    head = SegmentHead(fields[2], fields[4], fields[5], fields[6], fields[7], fields[8])
    if head.number != number or head.uuid != uuid:
        raise CorruptFrameError(
            f"{file.path} belongs to another store or place", segment=number, offset=0
        )
    return head


def create(fs: FileSystem, store: Path, head: SegmentHead) -> File:
    """A new segment, durable under its name; returned open for writing.

    Crash order: bytes, sync, rename, directory sync. Before the rename there is a ``.tmp`` file
    that nobody reads; after it the header is whole.
    """
    path = file_names.segment(store, head.number)
    temporary = path.with_name(path.name + file_names.TEMPORARY)
    file = fs.open_new(temporary)
    try:
        file.pwrite(pack_head(head), 0)
        file.sync()
        fs.rename(temporary, path)
        fs.sync_directory(path.parent)
    except BaseException:
        file.close()
        fs.remove(temporary)  # after a failed sync the next try must not build on the same file
        raise
    file.path = path
    return file
