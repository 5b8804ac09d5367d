"""Prevents checksums, fingerprints and compressed strings that the two codecs reckon otherwise."""

from __future__ import annotations

import random

import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logstore.codec import Codec, pure
from logstore.codec.fingerprint import fingerprint
from logstore.crc import crc32c
from logstore.errors import CorruptNodeError
from tests.peers.dump import lzf_decompress as judge

SIZES = [*range(20), 1000, 4099]


@pytest.mark.parametrize("size", SIZES)
def test_a_sealed_value_comes_back_and_a_changed_one_does_not(codec: Codec, size: int) -> None:
    chance = random.Random(size)
    key, value = chance.randbytes(17), chance.randbytes(size)
    sealed = codec.seal(key, value)
    assert sealed == value + crc32c(value, crc32c(key)).to_bytes(4, "little")
    assert codec.unseal(key, sealed) == value
    assert codec.unseal(key + b"\0", sealed) is None
    assert codec.unseal(key, sealed + b"\0") is None
    assert codec.unseal(key, sealed[:-1]) is None
    at = chance.randrange(len(sealed))
    changed = bytearray(sealed)
    changed[at] ^= 1 << chance.randrange(8)
    assert codec.unseal(key, bytes(changed)) is None


def test_unseal_refuses_less_than_a_checksum(codec: Codec) -> None:
    for size in range(4):
        assert codec.unseal(b"", bytes(size)) is None
    assert codec.unseal(b"", bytes(4)) == b""  # the checksum of nothing
    assert codec.seal(b"", b"") == bytes(4)


@pytest.mark.parametrize("size", SIZES)
def test_the_head_of_a_frame_covers_its_position(codec: Codec, size: int) -> None:
    chance = random.Random(size)
    covered, payload = chance.randbytes(40), chance.randbytes(size)
    for seed in (0, 1, 0xFFFFFFFF):
        crc, head = codec.frame_head(covered, payload, seed)
        assert crc == crc32c(payload, crc32c(covered, seed))
        assert head == crc.to_bytes(4, "little") + covered[8:]


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
def test_different_rows_have_different_fingerprints(one: list[bytes], other: list[bytes]) -> None:
    assert fingerprint(one) != fingerprint(other)


@given(rows=pairs, data=st.data())
def test_the_order_of_pairs_does_not_count(
    rows: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rows))
    assert fingerprint(flat(shuffled)) == fingerprint(flat(rows))
    assert len(fingerprint(flat(rows))) == 16


def compress(text: bytes) -> bytes:
    """LZF of some text; any place before is copied from, if it gives three bytes or more."""
    out = bytearray()
    at = 0
    while at < len(text):
        count, back = 0, 0
        for start in range(max(0, at - 8191), at):
            same = 0
            while same < 264 and at + same < len(text) and text[start + same] == text[at + same]:
                same += 1
            if same > count:
                count, back = same, at - start - 1
        if count < 3:
            out += bytes((0, text[at]))
            at += 1
            continue
        code = count - 2
        head = (code << 5,) if code < 7 else (7 << 5, code - 7)
        out += bytes((head[0] | back >> 8, *head[1:], back & 255))
        at += count
    return bytes(out)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 700))
def test_decompressing_gives_back_what_was_compressed(codec: Codec, seed: int, size: int) -> None:
    rng = random.Random(seed)
    text = bytes(rng.choices(b"ab\x00", weights=(9, 3, 1), k=size))
    packed = compress(text)
    assert judge(packed, size) == text
    assert codec.lzf_decompress(packed, size) == text
    for wrong in (size - 1, size + 1):
        with pytest.raises(CorruptNodeError):
            codec.lzf_decompress(packed, wrong)


@settings(max_examples=1500, deadline=None)
@given(packed=st.binary(max_size=40), size=st.integers(0, 600))
@example(packed=b"\x00a" + b"\xe0\xff\x00" * 20, size=5281)
@example(packed=b"\x00a\x20\x00", size=4)
@example(packed=b"\x20\x00", size=3)
def test_any_bytes_do_the_same_in_both_codecs(native: Codec, packed: bytes, size: int) -> None:
    answers: list[bytes | None] = []
    for each in (pure, native):
        try:
            answers.append(each.lzf_decompress(packed, size))
        except CorruptNodeError:
            answers.append(None)
    assert answers[0] == answers[1]
    assert answers[0] is None or len(answers[0]) == size


@pytest.mark.parametrize("size", [-1, -(1 << 40), 89, 1 << 62])
def test_a_size_that_cannot_be_takes_no_memory(codec: Codec, size: int) -> None:
    with pytest.raises(CorruptNodeError):
        codec.lzf_decompress(b"\x00", size)
