"""Tombstones of a sealed node: which of its entries were deleted since, as a vector of ordinals.

A vector is a little-endian bitmap, as short as its last bit allows. It stands in the node's row of
the index, so that the node itself stays as it was sealed.

Invariant: bits are only ever added; a node that compaction writes anew has none.
"""

from __future__ import annotations

from collections.abc import Sequence


def has(vector: bytes, ordinal: int) -> bool:
    """Whether the entry of an ordinal is deleted."""
    byte = ordinal >> 3
    return byte < len(vector) and bool(vector[byte] >> (ordinal & 7) & 1)


def ordinals_of(vector: bytes) -> Sequence[int]:
    """The ordinals of the deleted entries, ascending."""
    return [i * 8 + bit for i, byte in enumerate(vector) for bit in range(8) if byte >> bit & 1]


def count(vector: bytes) -> int:
    """How many entries are deleted."""
    return int.from_bytes(vector, "little").bit_count()


def added(vector: bytes, ordinals: Sequence[int]) -> bytes:
    """The vector with these entries deleted, too."""
    bits = int.from_bytes(vector, "little")
    for ordinal in ordinals:
        bits |= 1 << ordinal
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")
