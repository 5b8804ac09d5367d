"""Prevents computed idempotent IDs from being others than the documented rule gives."""

from __future__ import annotations

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from logstore.codec.fingerprint import fingerprint

MASK = 2**64 - 1
parts = st.binary(max_size=20)
pairs = st.lists(st.tuples(parts, parts), min_size=1, max_size=6)


def flat(rows: list[tuple[bytes, bytes]]) -> list[bytes]:
    return [part for pair in rows for part in pair]


def halves(data: bytes) -> tuple[int, int]:
    """Low and high 64 bits of XXH3_128, from its canonical form: high first, big endian."""
    digest = xxhash.xxh3_128(data).digest()
    return int.from_bytes(digest[8:], "big"), int.from_bytes(digest[:8], "big")


def rotl(value: int) -> int:
    return ((value << 1) & MASK) | (value >> 63)


def stored(low: int, high: int) -> bytes:
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


def test_the_hash_is_the_published_one() -> None:
    assert halves(b"") == (0x6001C324468D497F, 0x99AA06D3014798D8)


def test_one_pair_by_hand() -> None:
    low, high = halves(b"message" + b"\x07\0\0\0\0\0\0\0" + b"hello")
    by_hand = stored(low ^ rotl(high), high ^ rotl(low))
    assert fingerprint([b"message", b"hello"]) == by_hand
    assert by_hand.hex() == "87260442e004045e4f2fd94014d91110"


def test_two_pairs_by_hand() -> None:
    a, b = halves(b"a" + b"\1\0\0\0\0\0\0\0" + b"1"), halves(b"b" + b"\1\0\0\0\0\0\0\0")
    low = (a[0] + b[0]) & MASK ^ rotl(a[1] ^ b[1])
    high = (a[1] + b[1]) & MASK ^ rotl(a[0] ^ b[0])
    assert fingerprint([b"a", b"1", b"b", b""]) == stored(low, high)
    assert stored(low, high).hex() == "343ab647f053549a7920094521eb8f62"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([b"ab", b"c"], [b"a", b"bc"]),  # where the field ends counts
        ([b"a", b"1"], [b"a", b"1", b"a", b"1"]),  # how often a pair stands there counts
        ([b"a", b"1", b"b", b"2"], [b"a", b"2", b"b", b"1"]),
        ([b"a", b""], [b"", b"a"]),
    ],
)
def test_what_differs_has_another_fingerprint(one: list[bytes], other: list[bytes]) -> None:
    assert fingerprint(one) != fingerprint(other)


@given(rows=pairs, data=st.data())
def test_the_order_of_pairs_does_not_count(
    rows: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rows))
    assert fingerprint(flat(shuffled)) == fingerprint(flat(rows))
    assert len(fingerprint(flat(rows))) == 16
