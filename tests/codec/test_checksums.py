"""Prevents a row or a frame whose checksum the compiled codec reckons otherwise than the pure one,
and one that is changed from being taken for sound.
"""

from __future__ import annotations

import random

import pytest

from logstore.codec import Codec
from logstore.crc import crc32c

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


def test_what_is_too_short_is_not_sealed(codec: Codec) -> None:
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
