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
    block = text.split("```text", 1)[1].split("```")[0]
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


CODES = {"u64": "Q", "u32": "I", "u16": "H", "u8": "B", "i64": "q", "ID": "QQ"}


def test_the_table_of_kinds_has_the_fields_of_the_bodies() -> None:
    """In their order, and with their sizes."""
    rows = re.findall(r"^\| \d+ \| (\w+) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    bodies = {name: getattr(fmt, f"{name}_BODY").format for name, _ in rows}
    assert len(bodies) == 25
    for name, payload in rows:
        told = "".join(CODES[each] for each in re.findall(r"\b(u64|u32|u16|u8|i64|ID)\b", payload))
        assert told.startswith(bodies[name].lstrip("<")), name


# What pages draw, and the struct that it is.
DRAWN = {
    "format.md": {
        "segment head": fmt.SEGMENT_HEAD, "frame head": fmt.FRAME_HEAD,
        "hint head": fmt.HINT_HEAD, "item head": fmt.HINT_ITEM,
        "statistics head": fmt.STATISTICS_HEAD,
        "checkpoint head": fmt.CHECKPOINT_HEAD, "chunk head": fmt.CHUNK_HEAD,
    },
    "scan.md": {
        "snapshot head": fmt.SNAPSHOT_HEAD, "block head": fmt.SNAPSHOT_BLOCK,
        "item": fmt.SNAPSHOT_ITEM,
    },
}  # fmt: skip


@pytest.mark.parametrize("page", DRAWN)
def test_drawings_have_the_sizes_and_the_beginnings_of_files(page: str) -> None:
    blocks = re.findall(
        r"^```text\n(.*?)^```", (PAGE.parent / page).read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    sizes: dict[str, int] = {}
    name = ""
    for line in "\n".join(blocks).splitlines():
        head = re.match(r"([a-z]+(?: head)?) +(?:\((\d+)\) *\||\d)", line)
        name = head[1] if head else name
        told = head[2] if head and head[2] else (re.match(r"\((\d+) bytes\)", line) or [0, 0])[1]
        if told:
            sizes[name] = int(told)
    assert sizes == {name: body.size for name, body in DRAWN[page].items()}
    magics = {value for name, value in vars(fmt).items() if "MAGIC" in name}
    told_of = set(re.findall(r"\bLGST\w{3}\\\d", "\n".join(blocks)))
    assert len(told_of) > 1
    assert {each[:-2].encode() + bytes([int(each[-1])]) for each in told_of} <= magics


def test_an_unknown_kind_is_refused_by_name_or_skipped() -> None:
    with pytest.raises(CorruptFrameError, match="GROUP"):
        frames.decode(fmt.Kind.GROUP, b"")
    with pytest.raises(CorruptFrameError, match="77"):
        frames.decode(77, b"")
    assert frames.decode(0x80 | 77, b"") is None
