"""LZF: what both codecs unpack is the same, and as long as it was said to be.

An input is two bytes of length, then packed bytes.
"""

from __future__ import annotations

from logstore.codec import Codec, native_or_none, pure
from logstore.errors import CorruptNodeError

CODECS: list[Codec] = [each for each in (pure, native_or_none) if each is not None]
SEEDS = [
    size.to_bytes(2, "little") + packed
    for size, packed in (
        (5281, b"\x00a" + b"\xe0\xff\x00" * 20), (4, b"\x00a\x20\x00"), (3, b"\x20\x00"),
        (5, b"\x04hello"), (0, b""), (12, b"\x02abc\xe0\x00\x02"), (264, b"\x00a\xe0\xfe\x00"),
    )
]  # fmt: skip


def one(data: bytes) -> None:
    """Both do the same with it."""
    size, packed = int.from_bytes(data[:2], "little"), data[2:]
    found: list[bytes | None] = []
    for codec in CODECS:
        try:
            found.append(codec.lzf_decompress(packed, size))
        except CorruptNodeError:
            found.append(None)
    assert found[0] == found[-1]
    assert found[0] is None or len(found[0]) == size
