"""Prevents deletes in the pure codec from reading a node once an entry, or from a stale look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.codec import Codec, edit, node, pure
from logstore.errors import CorruptNodeError

COUNT = 200  # so that both counters change their width


def filled(count: int = COUNT) -> bytes:
    """A node of so many entries, every third with fields of its own."""
    rows = [{"f": n, "g": "v"} if n % 3 else {f"other {n}": n} for n in range(count)]
    packed = pure.pack(pure.rows(rows), 0, count, (1_000, 0), None, 0, 0, 1 << 20, 0)
    return packed.nodes[0].lp


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ordinals of entries that are read, from now on."""
    found: list[int] = []
    plain: Callable[..., Any] = node.read_entry

    def read_entry(*arguments: Any) -> Any:
        found.append(arguments[3])
        return plain(*arguments)

    monkeypatch.setattr(node, "read_entry", read_entry)
    monkeypatch.setattr(node, "outlines", node._Outlines())
    return found


@pytest.mark.parametrize("batch", [1, 7])
def test_deleting_all_entries_reads_each_once(reads: list[int], batch: int) -> None:
    lp = filled()
    del reads[:]
    for first in range(0, COUNT, batch):
        ordinals = [
            pure.find(lp, 1_000, 0, 1_000, seq) for seq in range(first, min(first + batch, COUNT))
        ]
        lp = pure.mark_deleted(lp, ordinals)
        pure.first_live_id(lp, 1_000, 0)
    assert reads == list(range(COUNT))
    assert pure.counts(lp) == (0, COUNT)


def test_no_more_is_read_than_was_asked_for(reads: list[int]) -> None:
    lp = filled()
    del reads[:]
    assert pure.find(lp, 1_000, 0, 1_000, 3) == 3
    assert reads == [0, 1, 2, 3]
    broken = lp[:-2] + b"\x07\xff"  # the last element's back length
    assert pure.find(broken, 1_000, 0, 1_000, 3) == 3
    for _ in range(2):
        with pytest.raises(CorruptNodeError):
            pure.find(broken, 1_000, 0, 1_000, COUNT - 1)


@given(steps=st.lists(st.tuples(st.lists(st.integers(0, 30), max_size=4), st.booleans()),
                      max_size=12))  # fmt: skip
def test_what_is_kept_is_what_a_new_look_gives(native: Codec, steps: Any) -> None:
    lp = filled(31)
    for ordinals, forget in steps:
        wanted = native.mark_deleted(lp, ordinals)
        assert pure.mark_deleted(lp, ordinals) == wanted
        lp = wanted
        if forget:
            node.outlines._kept.clear()
        for master in ((1_000, 0), (7, 2**64 - 9)):
            assert pure.first_live_id(lp, *master) == native.first_live_id(lp, *master)
            for seq in (0, 13, 22, 30):
                vector = b"\x01\x20"
                assert pure.find(lp, *master, 1_000, seq, vector) == native.find(
                    lp, *master, 1_000, seq, vector
                )


def test_few_nodes_are_kept() -> None:
    node.outlines._kept.clear()
    nodes = [pure.new_node(1, n, [b"a", b"b"]) for n in range(node.OUTLINES)]
    nodes += [pure.new_node(1, 0, [b"a", b"%d" % n]) for n in range(3 * node.OUTLINES)]
    nodes.append(pure.new_node(1, 0, [b"a", b"x" * node.OUTLINED_MAX_BYTES]))
    for each in nodes:
        assert edit.fold(each, b"\x01") != each
    assert len(node.outlines._kept) == node.OUTLINES
    assert max(map(len, node.outlines._kept)) <= node.OUTLINED_MAX_BYTES
