"""Prevents a count of the peers' tree that is wrong, or that keeps all keys of a long history."""

from __future__ import annotations

import tracemalloc

import pytest

from logstore.api.describe import radix_tree
from logstore.ids import StreamID


def key(*parts: int) -> bytes:
    return bytes(parts).ljust(16, b"\0")


@pytest.mark.parametrize(
    ("keys", "nodes"),
    [
        ([], 1),
        ([key(1)], 2),
        ([key(1, 2), key(1, 3)], 6),  # one before the branch, the branch, two behind, two leaves
        ([key(1), key(2)], 5),  # the root branches
        ([key(*[0] * 15, 1), key(*[0] * 15, 2)], 4),  # nothing is left behind the branch
    ],
)
def test_nodes_of_the_tree(keys: list[bytes], nodes: int) -> None:
    """As XINFO STREAM of real servers told; the groups' machine compares at random."""
    assert radix_tree(keys) == (len(keys), nodes)


def test_keys_are_not_kept() -> None:
    tracemalloc.start()
    try:
        assert radix_tree(StreamID(number, 7).packed() for number in range(20_000))[0] == 20_000
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
