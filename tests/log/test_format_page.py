"""Prevents docs/format.md from telling other bytes than the code writes and reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from logstore import format as fmt
from logstore.codec import codec
from logstore.errors import CorruptFrameError
from logstore.log import frame as frames
from logstore.log import log_reader
from logstore.log.segment_writer import CommitBuffer, crc_seed
from tests.log.heldbytes import Held
from tests.support.inside import add_frame

PAGE = Path(__file__).parents[2] / "docs" / "format.md"
UUID = bytes(range(16))
SEED = crc_seed(UUID)


def example() -> bytes:
    text = PAGE.read_text(encoding="utf-8").split("## A worked example", 1)[1]
    block = text.split("```", 2)[1]
    return bytes.fromhex(re.sub(r"\s", "", block))


def test_the_writer_gives_the_bytes_of_the_page() -> None:
    buffer = CommitBuffer(fmt.position(1, fmt.SEGMENT_HEAD_BYTES), 1)
    add_frame(buffer, frames.Create(1, b"mystream"))
    lp = codec().new_node(1526919030474, 55, [b"message", b"hello"])
    add_frame(buffer, frames.Open(1, 1526919030474, 55, 1526919030474, 55, 1, lp))
    assert buffer.encode(SEED, 0).hex() == example().hex()


def test_the_reader_understands_the_bytes_of_the_page() -> None:
    data = example()
    end = fmt.SEGMENT_HEAD_BYTES + len(data)
    source = Held(data, fmt.SEGMENT_HEAD_BYTES)
    found = list(log_reader.scan(source, SEED, 1, fmt.SEGMENT_HEAD_BYTES, end))
    assert found[0].body() == frames.Create(1, b"mystream")
    opened = found[1].body()
    assert isinstance(opened, frames.Open)
    assert opened.data is not None
    entries = codec().entries(opened.data, opened.master_ms, opened.master_seq)
    assert entries == [(0, 1526919030474, 55, [b"message", b"hello"])]
    (commit,) = log_reader.commits(iter(found), 0)
    assert commit.end == fmt.position(1, end)


@pytest.mark.parametrize("moved", [("segment", 2), ("offset", 96), ("store", 0)])
def test_a_frame_is_valid_in_its_place_only(moved: tuple[str, int]) -> None:
    data = example()
    what, value = moved
    segment = value if what == "segment" else 1
    offset = value if what == "offset" else fmt.SEGMENT_HEAD_BYTES
    seed = crc_seed(bytes(16)) if what == "store" else SEED
    source = Held(data, offset)
    with pytest.raises(CorruptFrameError):
        next(log_reader.scan(source, seed, segment, offset, offset + len(data)))


def test_every_flipped_bit_is_found() -> None:
    data = example()
    start = fmt.SEGMENT_HEAD_BYTES
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptFrameError):
            list(log_reader.scan(Held(bytes(flipped), start), SEED, 1, start, start + len(data)))


def test_the_table_of_kinds_is_complete() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for kind in fmt.Kind:
        if kind != fmt.Kind.INVALID:
            assert kind.name in text, f"{kind.name} is missing in docs/format.md"


def test_an_unknown_kind_is_refused_by_name_or_skipped() -> None:
    with pytest.raises(CorruptFrameError, match="GROUP"):
        frames.decode(fmt.Kind.GROUP, b"")
    with pytest.raises(CorruptFrameError, match="77"):
        frames.decode(77, b"")
    assert frames.decode(0x80 | 77, b"") is None
