"""Frames that no writer of ours would write, behind those of a closed store; the checksums fit."""

from __future__ import annotations

from pathlib import Path

from logstore import format as fmt
from logstore.fs import LOCAL
from logstore.log import file_names, frame, storefile
from logstore.log.segment_writer import CommitBuffer, crc_seed
from tests.corruption import frames
from tests.support.inside import add_frame


def append(
    path: Path, *bodies: frame.Body, skipped: int = 0, durable_upto: int = 0, cut: int = 0
) -> int:
    """Write a commit behind the last one, ``skipped`` numbers on, without its last bytes; where it
    begins."""
    last = frames.everything(path)[-1]
    buffer = CommitBuffer(fmt.position(last.segment, last.end_offset), last.commit + 1 + skipped)
    for body in bodies:
        add_frame(buffer, body)
    data = buffer.encode(crc_seed(storefile.read(LOCAL, path).uuid), durable_upto)
    frames.patch(file_names.segment(path, last.segment), last.end_offset, data[: len(data) - cut])
    return last.end_offset
