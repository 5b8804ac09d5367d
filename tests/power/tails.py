"""What stood behind the last whole commit when it was set aside: how many bytes of which kind.

Frames of this place that are whole are ``unfinished``, or ``void``: of whole commits behind a hole.
The rest is told block by block (512 bytes): zeros, 0xFF, old bytes of an earlier store, or torn.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from logstore.fs import LOCAL
from logstore.log import file_names, log_reader, segment, storefile
from logstore.log.segment_writer import crc_seed
from tests.power.intents import TAG

KINDS = ("torn", "zeros", "0xff", "stale", "unfinished", "void")
BLOCK_BYTES = 512


class Shifted:
    """The saved bytes where they stood in their segment."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """As a file's."""
        return self._data[offset - self._at : offset - self._at + size_bytes]


def previous_end(store: Path, number: int) -> int:
    """Where the segment before this one ends, as this one says."""
    file = LOCAL.open(file_names.segment(store, number))
    try:
        return segment.read_head(file, number, storefile.read(LOCAL, store).uuid).previous_end
    finally:
        file.close()


def kinds_of(store: Path, saved: Path, life: int) -> Counter[str]:
    """Bytes of each kind in what recovery set aside."""
    data = saved.read_bytes()
    number, at = (int(part) for part in saved.name.removesuffix(".tail").split("-"))
    seed = crc_seed(storefile.read(LOCAL, store).uuid)
    end = at + len(data)
    whole = list(log_reader.next_valid(Shifted(data, at), seed, number, at, end))
    complete = {found.commit for found in whole if found.last}
    counts: Counter[str] = Counter()
    rest = bytearray(len(data))  # of each byte whether it is told already
    for found in whole:
        counts["void" if found.commit in complete else "unfinished"] += (
            found.end_offset - found.offset
        )
        rest[found.offset - at : found.end_offset - at] = b"\1" * (found.end_offset - found.offset)
    for start in range(0, len(data), BLOCK_BYTES):
        block = data[start : start + BLOCK_BYTES]
        left = rest[start : start + BLOCK_BYTES].count(0)
        if left:
            counts[_kind(block, data[max(0, start - 8192) : start + 8192], life)] += left
    assert counts.total() == len(data)
    return counts


def _kind(block: bytes, around: bytes, life: int) -> str:
    if not any(block):
        return "zeros"
    if block == b"\xff" * len(block):
        return "0xff"
    tags = [int(found) for found in TAG.findall(around)]
    return "stale" if tags and life not in tags else "torn"
