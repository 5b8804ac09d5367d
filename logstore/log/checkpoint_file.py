"""Checkpoint files: a head, then chunks of msgpack; writer and reader of the bytes.

Invariants: a checkpoint of a position is renamed into place only after the log is synced to it
(the taker's duty), and is valid only if the log holds the commit that ends there, with that number
and CRC (the reader's duty: ``fits_log``). A damaged chunk makes the whole file invalid: the one
before it is used. Knows no index.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgpack

from logstore import format as fmt
from logstore.crc import crc32c
from logstore.errors import CorruptFrameError, CorruptionError, FileSystemError
from logstore.fs import FileSystem
from logstore.log import chain, file_names, log_reader, versioned
from logstore.log.segment_writer import crc_seed
from logstore.tuples import NamedTuple

CHECKPOINT_MAX_BYTES = 16 << 30
KEPT = 2


class CheckpointHead(NamedTuple):
    """Which commit a checkpoint follows."""

    position: int
    commit: int
    last_frame_offset: int
    last_crc: int


def write(
    fs: FileSystem, store: Path, uuid: bytes, head: CheckpointHead, chunks: Iterable[Any]
) -> int:
    """Write a checkpoint; its bytes. The log must be synced up to its position before."""
    bodies = [msgpack.packb(chunk, use_bin_type=True) for chunk in chunks]
    front = fmt.CHECKPOINT_HEAD.pack(
        fmt.CHECKPOINT_MAGIC,
        fmt.FORMAT_VERSION,
        0,
        uuid,
        head.position,
        head.commit,
        head.last_frame_offset,
        head.last_crc,
        len(bodies),
        0,
    )[:-4]
    crc = crc32c(front)
    parts = [front, crc.to_bytes(4, "little")]
    for number, body in enumerate(bodies):
        parts.append(fmt.CHUNK_HEAD.pack(len(body), _chunk_crc(crc, number, body)))
        parts.append(body)
    data = b"".join(parts)
    fs.make_directory(store / file_names.CHECKPOINTS)
    fs.write_atomic(file_names.checkpoint(store, head.position), data)
    return len(data)


def _chunk_crc(head_crc: int, number: int, body: bytes) -> int:
    return int(crc32c(body, crc32c(number.to_bytes(4, "little"), head_crc)))


def read(
    fs: FileSystem, store: Path, uuid: bytes, position: int
) -> tuple[CheckpointHead, list[Any]]:
    """Head and chunks; CorruptFrameError if anything in it is not what was written."""
    path = file_names.checkpoint(store, position)
    data = fs.read(path, CHECKPOINT_MAX_BYTES)
    if len(data) < fmt.CHECKPOINT_HEAD.size:
        raise CorruptFrameError(f"{path} is cut off")
    fields = fmt.CHECKPOINT_HEAD.unpack_from(data)
    crc = crc32c(data[: fmt.CHECKPOINT_HEAD.size - 4])
    if fields[0] != fmt.CHECKPOINT_MAGIC or fields[-1] != crc:
        raise CorruptFrameError(f"the head of {path} is damaged")
    versioned.check_version(fields[1], path)
    if fields[3] != uuid or fields[4] != position:
        raise CorruptFrameError(f"{path} belongs to another store or place")
    head = CheckpointHead(*fields[4:8])
    chunks: list[Any] = []
    at = fmt.CHECKPOINT_HEAD.size
    for number in range(fields[8]):
        if at + fmt.CHUNK_HEAD.size > len(data):
            raise CorruptFrameError(f"{path} is cut off")
        size, chunk_crc = fmt.CHUNK_HEAD.unpack_from(data, at)
        at += fmt.CHUNK_HEAD.size
        body = data[at : at + size]
        if len(body) < size or _chunk_crc(crc, number, body) != chunk_crc:
            raise CorruptFrameError(f"chunk {number} of {path} is damaged")
        try:
            chunks.append(versioned.unpack(body, f"chunk {number} of {path}"))
        except CorruptionError as exc:
            raise CorruptFrameError(str(exc)) from exc
        at += size
    return head, chunks


def fits_log(fs: FileSystem, store: Path, uuid: bytes, head: CheckpointHead) -> bool:
    """Whether the log holds the commit that ends at the checkpoint's position, or did so until its
    segment was dropped: then the checkpoint is at that segment's end, as the next one's header
    says, since a segment is dropped only when the kept checkpoints are past all of it.
    """
    number, end = fmt.position_parts(head.position)
    try:
        file = fs.open(file_names.segment(store, number))
    except FileNotFoundError:
        links = chain.main_links(fs, store, uuid, number + 1)
        ends = [(link.previous_end, link.previous_commit) for link in links]
        return (head.position, head.commit) in ends
    try:
        frame = log_reader.read_frame(file, crc_seed(uuid), number, head.last_frame_offset, end)
    except (CorruptFrameError, FileSystemError):
        return False
    finally:
        file.close()
    return frame.crc == head.last_crc and frame.commit == head.commit and frame.last
