"""Prevents a file with a right checksum and a content that no logstore wrote from being more than a
typed error, or a file that is not there.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from logstore import format as fmt
from logstore.crc import crc32c
from logstore.errors import CorruptFrameError, CorruptionError
from logstore.fs import LOCAL
from logstore.log import checkpoint, hint, names, pinfile, storefile, versioned
from logstore.log.chain import Link
from logstore.recovery import index_validity

UUID = bytes(16)
POSITION = 1 << 32 | 99
# A list, no map; text that is no UTF-8; a key that is a list; something behind the end; nothing.
ODD = (b"\x91\x01", b"\xa1\xff", b"\x81\x91\x01\x02", b"\x01\x02", b"\x81", b"\x80")


@pytest.mark.parametrize("body", ODD)
def test_what_is_no_content(tmp_path: Path, body: bytes) -> None:
    head = fmt.STORE_HEAD.pack(fmt.STORE_MAGIC, fmt.FORMAT_VERSION, 0, len(body), crc32c(body))
    (tmp_path / names.STORE).write_bytes(head + body)
    with pytest.raises(CorruptionError, match="STORE does not hold"):
        storefile.read(LOCAL, tmp_path)
    (tmp_path / names.BOOT).write_bytes(crc32c(body).to_bytes(4, "little") + body)
    assert index_validity.read_marker(LOCAL, tmp_path) is None
    pin = "ab" * 16
    pinfile.path(tmp_path, pin).parent.mkdir()
    head = fmt.PIN_HEAD.pack(fmt.PIN_MAGIC, fmt.FORMAT_VERSION, crc32c(body))
    pinfile.path(tmp_path, pin).write_bytes(head + body)
    assert pinfile.read(LOCAL, tmp_path, pin) is None


@pytest.mark.parametrize("body", ODD[1:5])
def test_a_chunk_that_is_none(tmp_path: Path, body: bytes) -> None:
    front = fmt.CHECKPOINT_HEAD.pack(
        fmt.CHECKPOINT_MAGIC, fmt.FORMAT_VERSION, 0, UUID, POSITION, 1, 64, 9, 1, 0
    )[:-4]
    crc = crc32c(front)
    own = crc32c(body, crc32c(bytes(4), crc))
    path = names.checkpoint(tmp_path, POSITION)
    path.parent.mkdir()
    path.write_bytes(front + crc.to_bytes(4, "little") + fmt.CHUNK_HEAD.pack(len(body), own) + body)
    with pytest.raises(CorruptFrameError, match=r"chunk 0 of .* does not hold"):
        checkpoint.read(LOCAL, tmp_path, UUID, POSITION)


def test_packed_errors_name_the_place() -> None:
    assert versioned.unpack_map(b"\x81\xa1a\x01", "BOOT", ("a",)) == {"a": 1}
    with pytest.raises(CorruptionError, match="BOOT does not hold what belongs there"):
        versioned.unpack_map(b"\x80", "BOOT", ("a",))


@pytest.mark.parametrize("magic", [fmt.HINT_MAGIC, fmt.HINT_MAGIC_PLAIN], ids=["now", "plain"])
@pytest.mark.parametrize(
    ("count", "body"), [(1, bytes(31)), (0, b"x"), (2, bytes(60)), (1, bytes(29))]
)
def test_a_hint_whose_items_are_not_its_bytes_is_none(
    tmp_path: Path, count: int, body: bytes, magic: bytes
) -> None:
    if count == 2:
        body = fmt.HINT_ITEM.pack(64, 9, 1, 0, 5, 3, 1, 0) + bytes(30)  # the first one takes more
    if magic == fmt.HINT_MAGIC:
        body = zlib.compress(body)
    _refused_hint(tmp_path, magic, count, body)


@pytest.mark.parametrize("how", ["not compressed", "cut short", "more behind it"])
def test_a_hint_that_is_not_what_its_head_says_is_none(tmp_path: Path, how: str) -> None:
    packed = zlib.compress(bytes(30))
    body = {"not compressed": bytes(30), "cut short": packed[:-5], "more behind it": packed + b"x"}
    _refused_hint(tmp_path, fmt.HINT_MAGIC, 1, body[how])


def _refused_hint(tmp_path: Path, magic: bytes, count: int, body: bytes) -> None:
    front = fmt.HINT_HEAD.pack(magic, fmt.FORMAT_VERSION, 0, 1, 0, 900, count, len(body), UUID, 0)[
        :-4
    ]
    path = names.hint(tmp_path, 1)
    path.parent.mkdir()
    path.write_bytes(front + crc32c(body, crc32c(front)).to_bytes(4, "little") + body)
    assert hint.read(LOCAL, tmp_path, UUID, Link(1, 64, 900, 900, 0)) is None
    assert hint.lost_successor(LOCAL, tmp_path, UUID, 1) == 0
