"""Frames of a store as they lie in its files, and ways to damage them. Knows no engine."""

from __future__ import annotations

from pathlib import Path

from logstore.fs import LOCAL
from logstore.log import chain, file_names, log_reader, storefile
from logstore.log.log_reader import LogFrame
from logstore.log.segment_writer import crc_seed


def segments(store: Path) -> list[int]:
    """Numbers of all segments."""
    return file_names.segments(LOCAL, store)


def of(store: Path, number: int) -> list[LogFrame]:
    """Every frame of a segment, in order."""
    uuid = storefile.read(LOCAL, store).uuid
    mains = {link.number: link for link in chain.main_links(LOCAL, store, uuid)}
    file = LOCAL.open(file_names.segment(store, number))
    try:
        end = mains[number].end_offset if number in mains else file.size_bytes()
        return list(log_reader.scan(file, crc_seed(uuid), number, 64, end))
    finally:
        file.close()


def everything(store: Path) -> list[LogFrame]:
    """Every frame of the log."""
    return [frame for number in segments(store) for frame in of(store, number)]


def patch(path: Path, offset: int, data: bytes) -> None:
    """Put other bytes at a place of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path: Path, offset: int, bit: int = 0) -> None:
    """Flip one bit."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def spoil(store: Path, frame: LogFrame) -> None:
    """Flip a bit in the middle of a frame."""
    flip(
        file_names.segment(store, frame.segment), frame.offset + (32 + frame.payload_bytes) // 2, 3
    )


def file(store: Path, number: int) -> Path:
    """The file of a segment."""
    return file_names.segment(store, number)


def uuid(store: Path) -> bytes:
    """The store's identity."""
    return storefile.read(LOCAL, store).uuid
