"""Frames and blocks that were changed on purpose, with checksums that fit.

What stands in them is then all that a reader can go by.
"""

from __future__ import annotations

from pathlib import Path

from logstore import format as fmt
from logstore.crc import crc32c
from logstore.log.log_reader import LogFrame
from logstore.log.segment_writer import crc_seed
from logstore.scan.snapshot_file import HEAD_BYTES, Split
from tests.corruption import frames


def frame(store: Path, changed: LogFrame, payload: bytes, *, kind: int | None = None) -> None:
    """Put another payload of the same length, and another kind, into a frame."""
    assert len(payload) == changed.payload_bytes
    place = fmt.position(changed.segment, changed.offset)
    covered = fmt.FRAME_HEAD_AFTER_CRC.pack(
        place,
        len(payload),
        changed.commit,
        changed.durable_upto,
        changed.ordinal,
        changed.kind if kind is None else kind,
        changed.flags,
        fmt.FRAME_MARK,
    )
    crc = crc32c(covered + payload, crc_seed(frames.uuid(store)))
    data = int(crc).to_bytes(4, "little") + covered[8:] + payload
    frames.patch(frames.file(store, changed.segment), changed.offset, data)


def block(path: Path, split: Split, at: int, data: bytes) -> None:
    """Change bytes of the first block of a split, from an offset in the block on."""
    whole = path.read_bytes()
    head_crc = int.from_bytes(whole[HEAD_BYTES - 4 : HEAD_BYTES], "little")
    begin = split.offset
    size = fmt.SNAPSHOT_BLOCK.size + int.from_bytes(whole[begin + 4 : begin + 8], "little")
    changed = bytearray(whole[begin : begin + size])
    assert at >= 8, "the length of the block stays"
    assert at + len(data) <= size
    changed[at : at + len(data)] = data
    place = crc32c(begin.to_bytes(8, "little"), head_crc)
    changed[:4] = int(crc32c(bytes(changed[4:]), place)).to_bytes(4, "little")
    frames.patch(path, begin, bytes(changed))
