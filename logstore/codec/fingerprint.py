"""Fingerprints of entries: the idempotent ID that the peers compute for an add (IDMPAUTO).

Each pair gives XXH3_128 of the field, the length of the field as 8 bytes, and the value; pairs are
combined by their sum and by exclusive or, so that their order does not count, but a pair that
stands there twice does.

Invariants: 16 bytes, low half first, little endian whatever the machine is: a store may move. It is
no secret and no signature: who may choose the values can make two entries with one fingerprint.
"""

from __future__ import annotations

import xxhash

FINGERPRINT_BYTES = 16
_HALF = (1 << 64) - 1


def fingerprint(flat: list[bytes]) -> bytes:
    """The fingerprint of field, value, field, value, ..."""
    sum_low = sum_high = xor_low = xor_high = 0
    for place in range(0, len(flat), 2):
        field = flat[place]
        found = xxhash.xxh3_128_intdigest(
            field + len(field).to_bytes(8, "little") + flat[place + 1]
        )
        low, high = found & _HALF, found >> 64
        sum_low += low
        sum_high += high
        xor_low ^= low
        xor_high ^= high
    low = (sum_low & _HALF) ^ _rotated(xor_high)
    high = (sum_high & _HALF) ^ _rotated(xor_low)
    return (high << 64 | low).to_bytes(FINGERPRINT_BYTES, "little")


def _rotated(half: int) -> int:
    return (half << 1 | half >> 63) & _HALF
