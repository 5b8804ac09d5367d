"""Nodes: every operation that reads one gives the same in both codecs, or is refused by both.

An input is one byte that says how (0: as it is, else with a header that fits), then a listpack.
"""

from __future__ import annotations

from logstore.codec import Codec, listpack, native_or_none, pure
from tests.codec.framed import FLAT, MASTER, _check, _framed

CODECS: list[Codec] = [each for each in (pure, native_or_none) if each is not None]


def _sound() -> list[bytes]:
    lp = pure.new_node(*MASTER, [b"a", b"x" * 70, b"7", b"-5"])
    lp, _ = pure.append(lp, *MASTER, 5, 6, [b"a", b"12345678901", b"7", b"y" * 200])
    lp, _ = pure.append(lp, *MASTER, 9, 0, [b"other", b"1"])
    lp, _ = pure.append(lp, *MASTER, 300, 2**40, [b"a", b"%d" % -(2**31), b"7", b"70000"])
    huge = listpack.finish(5, *map(listpack.encode_int, (1, 0, 2**40)), listpack.encode(b"f"),
                           listpack.encode_int(0))  # fmt: skip
    return [pure.new_node(*MASTER, FLAT), lp, pure.mark_deleted(lp, [0, 2]), huge]


SEEDS = [
    *(b"\x00" + lp for lp in _sound()), *(b"\x01" + lp[:-1] for lp in _sound()),
    b"", b"\x01" + b"\x00" * 6,
]  # fmt: skip


def one(data: bytes) -> None:
    """Both do the same with it."""
    lp = data[1:]
    _check(_framed(lp) if data[:1] > b"\x00" else lp, CODECS)
