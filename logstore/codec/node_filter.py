"""A filter of some neighbouring nodes: which of them may have a value in a column.

A text is hashed into one of some buckets; a bucket lists the nodes that have a text of it. There
are about as many buckets as there are pairs of a text and a node, so that of NODES_MAX nodes about
one is named for nothing, and a pair takes about a byte; and some more where there are few, so that
two texts hardly share one.

A filter is ``u32 buckets``, ``u32 pairs``, then bits from the lowest of each byte on: for each
bucket as many ones as it names nodes, and a zero; then for each pair the number of its node, in
NODE_BITS bits. Of no pairs it is EMPTY.

Invariants: a node that has the text is named, whatever else is. Of bytes that are no filter, all
nodes are. Compiled code makes and reads the same bytes (``_node_filter.pxi``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from logstore.crc import crc32c

NODES_MAX: Final = 64
NODE_BITS: Final = 6
BUCKETS_MIN: Final = 64
BUCKETS_SPARSE: Final = 1024
ALL_NODES: Final = (1 << NODES_MAX) - 1
_HEAD: Final = struct.Struct("<II")
EMPTY: Final = _HEAD.pack(0, 0)
_U32: Final = (1 << 32) - 1


def filter_hash(text: bytes) -> int:
    """A number of 32 bits: the checksum, mixed, as alike texts have alike ones."""
    mixed = crc32c(text)
    mixed = ((mixed ^ mixed >> 16) * 0x7FEB352D) & _U32
    mixed = ((mixed ^ mixed >> 15) * 0x846CA68B) & _U32
    return mixed ^ mixed >> 16


def made(pairs: Sequence[tuple[int, int]]) -> bytes:
    """The filter of pairs, each a hash and the number of its node, which ascend."""
    if not pairs:
        return EMPTY
    buckets = max(len(pairs), BUCKETS_MIN)
    named = _named(pairs, buckets)
    count = sum(map(len, named))
    if count * 2 < buckets:  # few texts, each in many entries
        buckets = max(count, min(buckets, BUCKETS_SPARSE))
        named = _named(pairs, buckets)
        count = sum(map(len, named))
    bits = at = 0
    for each in named:
        bits |= ((1 << len(each)) - 1) << at
        at += len(each) + 1
    for each in named:
        for node in each:
            bits |= node << at
            at += NODE_BITS
    return _HEAD.pack(buckets, count) + bits.to_bytes((at + 7) // 8, "little")


def _named(pairs: Sequence[tuple[int, int]], buckets: int) -> list[list[int]]:
    """The nodes of each bucket, each once."""
    found: list[list[int]] = [[] for _ in range(buckets)]
    for hashed, node in pairs:
        bucket = found[hashed * buckets >> 32]
        if not bucket or bucket[-1] != node:
            bucket.append(node)
    return found


def nodes_with(filter: bytes, hashed: int) -> int:
    """The nodes that may have a text of this hash, as bits of a number."""
    if len(filter) < _HEAD.size:
        return ALL_NODES
    buckets, pairs = _HEAD.unpack_from(filter)
    nodes_at = pairs + buckets
    if (nodes_at + pairs * NODE_BITS + 7) // 8 != len(filter) - _HEAD.size:
        return ALL_NODES
    bits = int.from_bytes(filter[_HEAD.size :], "little")
    signs = f"{bits:0{(len(filter) - _HEAD.size) * 8}b}"[::-1]
    named = signs[:nodes_at].split("0")
    if len(named) != buckets + 1 or named[-1]:
        return ALL_NODES
    if not buckets:
        return 0
    bucket = hashed * buckets >> 32
    first = sum(map(len, named[:bucket]))
    found = 0
    for pair in range(first, first + len(named[bucket])):
        found |= 1 << (bits >> nodes_at + pair * NODE_BITS & NODES_MAX - 1)
    return found


def spread(filter: bytes, nodes: int) -> float:
    """In which share of so many nodes a text is, of a filter that was made."""
    buckets, pairs = _HEAD.unpack_from(filter)
    bits = int.from_bytes(filter[_HEAD.size :], "little") & ((1 << pairs + buckets) - 1)
    texts = (bits & ~(bits >> 1)).bit_count()  # buckets with any: each ends a run of ones
    return pairs / (texts * nodes) if texts else 0.0
