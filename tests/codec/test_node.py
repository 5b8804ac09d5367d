"""Prevents operations on single nodes from doing anything but what the interface says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.codec import MAX_ID, Codec, NodeHead, edit, node, pure
from logstore.errors import CorruptNodeError, TooLargeError
from tests.codec.strategies import entries, next_id, steps

MASTER = (1526919030474, 55)
WORKED = (
    "4d0000001800" "0301" "0001" "0101" "876d65737361676508" "0001"
    "0201" "0001" "0001" "8568656c6c6f06" "0401"
    "0201" "0101" "dfc902" "7f01" "0401"
    "0001" "0101" "dfca02" "0201" "856f7468657206" "817802" "816e02" "dfff02" "0801"
    "ff"
)  # fmt: skip
ENTRIES = [
    (0, 1526919030474, 55, [b"message", b"hello"]),
    (1, 1526919030475, 0, [b"message", b"127"]),
    (2, 1526919030475, 1, [b"other", b"x", b"n", b"-1"]),
]


@pytest.fixture
def lp(codec: Codec) -> bytes:
    """The worked example: three entries, the last with fields of its own."""
    lp = codec.new_node(*MASTER, ENTRIES[0][3])
    for _, ms, seq, flat in ENTRIES[1:]:
        lp, _ = codec.append(lp, *MASTER, ms, seq, flat)
    return lp


def test_the_worked_example(codec: Codec, lp: bytes) -> None:
    assert lp.hex() == WORKED
    assert codec.head(lp) == NodeHead(3, 0, [b"message"], 23)
    assert codec.counts(lp) == (3, 0)
    assert codec.last_id(lp, *MASTER) == ENTRIES[2][1:3]
    assert codec.ids(lp, *MASTER) == [entry[:3] for entry in ENTRIES]
    assert codec.entries(lp, *MASTER) == ENTRIES


def test_added_bytes_replay_to_the_same_node(codec: Codec) -> None:
    lp = codec.new_node(1, 1, [b"f", b"0"])
    replayed = lp
    for i in range(300):
        flat = [b"f", b"%d" % i] if i % 3 else [b"g", b"%d" % i, b"h", b""]
        lp, added = codec.append(lp, 1, 1, 1, 2 + i, flat)
        assert lp.endswith(added + b"\xff")
        replayed = codec.extend(replayed, added, 1, codec.entry_element_count(added))
        assert replayed == lp


def test_an_unknown_number_of_elements_stays_unknown(codec: Codec) -> None:
    flat = [b"f", b"v"] * 9000
    lp = codec.new_node(1, 1, flat)
    for seq in range(2, 8):
        lp, _ = codec.append(lp, 1, 1, 1, seq, flat)
        codec.validate(lp, 1, 1)
    assert lp[4:6] == b"\xff\xff"
    lp = codec.mark_deleted(lp, range(6))
    assert lp[4:6] == b"\xff\xff"
    codec.validate(lp, 1, 1)
    assert codec.rewrite([(lp, 1, 1, b"")], 1, 1)[4:6] != b"\xff\xff"


@pytest.mark.parametrize(
    ("start", "end", "ordinals"),
    [
        ((0, 0), MAX_ID, [0, 1, 2]),
        ((1526919030474, 56), MAX_ID, [1, 2]),
        ((1526919030475, 0), (1526919030475, 0), [1]),
        ((0, 0), (1526919030475, 0), [0, 1]),
        ((1526919030476, 0), MAX_ID, []),
        ((0, 0), (1526919030474, 54), []),
        ((1526919030475, 1), (1526919030475, 0), []),
    ],
)
def test_ranges_are_inclusive(
    codec: Codec, lp: bytes, start: tuple[int, int], end: tuple[int, int], ordinals: list[int]
) -> None:
    expected = [ENTRIES[i] for i in ordinals]
    assert codec.entries(lp, *MASTER, b"", start, end) == expected
    assert codec.entries(lp, *MASTER, b"", start, end, reverse=True) == expected[::-1]
    for limit in range(4):
        assert codec.entries(lp, *MASTER, b"", start, end, limit) == expected[:limit]
        backwards = codec.entries(lp, *MASTER, b"", start, end, limit, True)
        assert backwards == expected[::-1][:limit]


@pytest.mark.parametrize("gone", [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]])
def test_flags_and_vector_hide_the_same_entries(codec: Codec, lp: bytes, gone: list[int]) -> None:
    vector = bytes((sum(1 << ordinal for ordinal in gone),))
    marked = codec.mark_deleted(lp, gone)
    assert codec.fold(lp, vector) == marked
    assert codec.counts(marked) == (3 - len(gone), len(gone))
    codec.validate(marked, *MASTER)
    live = [entry for entry in ENTRIES if entry[0] not in gone]
    for each, bits in ((lp, vector), (lp, vector + b"\0\0"), (marked, b""), (marked, vector)):
        assert codec.entries(each, *MASTER, bits) == live
        assert codec.ids(each, *MASTER, bits) == [entry[:3] for entry in live]
        assert codec.last_id(each, *MASTER) == ENTRIES[2][1:3]
        assert codec.first_live_id(each, *MASTER, bits) == (live[0][1:3] if live else None)
        assert codec.last_live_id(each, *MASTER, bits) == (live[-1][1:3] if live else None)
        for ordinal, ms, seq, _ in ENTRIES:
            found = codec.find(each, *MASTER, ms, seq, bits)
            assert found == (-1 if ordinal in gone else ordinal)


def test_marking_again_changes_nothing(codec: Codec, lp: bytes) -> None:
    marked = codec.mark_deleted(lp, [1])
    assert codec.mark_deleted(marked, [1]) == marked
    assert codec.mark_deleted(marked, [1, 1, 2]) == codec.mark_deleted(lp, [2, 1])
    assert codec.mark_deleted(lp, []) == codec.fold(lp, b"") == codec.fold(lp, b"\0") == lp


def test_find_is_exact(codec: Codec, lp: bytes) -> None:
    for ms, seq in ((0, 0), (1526919030474, 54), (1526919030474, 56), (1526919030475, 2), MAX_ID):
        assert codec.find(lp, *MASTER, ms, seq) == -1


def test_the_rule_of_when_a_node_is_full(codec: Codec, lp: bytes) -> None:
    size = len(lp)
    assert codec.fits(lp, 10, size + 11, 100)
    assert not codec.fits(lp, 10, size + 10, 100)
    assert codec.fits(lp, 10, 0, 4)
    assert not codec.fits(lp, 10, 0, 3)
    assert codec.fits(lp, 10, 0, 0)
    assert not codec.fits(codec.mark_deleted(lp, [0, 1]), 10, 0, 3)  # tombstones count
    assert not codec.fits(lp, (1 << 30) - size, 0, 0)
    assert not codec.fits(lp, (1 << 30) - size, 1 << 31, 0)
    assert codec.fits(lp, (1 << 30) - size - 1, 1 << 31, 0)


def test_rewrite_keeps_the_first_parts_fields(codec: Codec, lp: bytes) -> None:
    other = codec.new_node(1526919030480, 0, [b"other", b"1", b"n", b"2"])
    other, _ = codec.append(other, 1526919030480, 0, 1526919030481, 7, [b"message", b"last"])
    merged = codec.rewrite([(lp, *MASTER, b"\x02"), (other, 1526919030480, 0, b"")], *MASTER)
    codec.validate(merged, *MASTER)
    assert codec.head(merged)[:3] == (4, 0, [b"message"])
    assert [entry[1:] for entry in codec.entries(merged, *MASTER)] == [
        ENTRIES[0][1:],
        ENTRIES[2][1:],
        (1526919030480, 0, [b"other", b"1", b"n", b"2"]),
        (1526919030481, 7, [b"message", b"last"]),
    ]
    by_adding = codec.new_node(*MASTER, ENTRIES[0][3])
    for _, ms, seq, flat in codec.entries(merged, *MASTER)[1:]:
        by_adding, _ = codec.append(by_adding, *MASTER, ms, seq, flat)
    assert merged == by_adding
    alone = codec.rewrite([(codec.new_node(*MASTER, ENTRIES[0][3]), *MASTER, b"")], *MASTER)
    assert alone == codec.new_node(*MASTER, ENTRIES[0][3])


def test_rewrite_keeps_no_names_of_what_was_deleted(codec: Codec) -> None:
    flats = [[b"secret", b"1"], [b"n", b"2", b"m", b"3"], [b"n", b"4", b"m", b"5"], [b"o", b"6"]]
    lp = codec.new_node(*MASTER, flats[0])
    for seq, flat in enumerate(flats[1:], MASTER[1] + 1):
        lp, _ = codec.append(lp, *MASTER, MASTER[0], seq, flat)
    other = codec.new_node(MASTER[0], MASTER[1] + 9, [b"hidden", b"7"])
    other, _ = codec.append(
        other, MASTER[0], MASTER[1] + 9, MASTER[0], MASTER[1] + 10, [b"o", b"8"]
    )
    parts = [(lp, *MASTER, b"\x01"), (other, MASTER[0], MASTER[1] + 9, b"\x01")]
    rewritten = codec.rewrite(parts, *MASTER)
    codec.validate(rewritten, *MASTER)
    assert codec.head(rewritten)[:3] == (4, 0, [b"n", b"m"])
    assert [entry[3] for entry in codec.entries(rewritten, *MASTER)] == [*flats[1:], [b"o", b"8"]]
    assert b"secret" not in rewritten
    assert b"hidden" not in rewritten
    of_last = codec.rewrite([(lp, *MASTER, b"\x07")], *MASTER)
    assert codec.head(of_last)[:3] == (1, 0, [b"o"])


def test_rewrite_of_nothing_is_refused(codec: Codec, lp: bytes) -> None:
    with pytest.raises(ValueError, match="drop the node"):
        codec.rewrite([(lp, *MASTER, b"\x07")], *MASTER)
    with pytest.raises(ValueError, match="drop the node"):
        codec.rewrite([], *MASTER)


@pytest.mark.parametrize("flat", [[], [b"odd"], [b"a", b"b", b"c"]])
def test_an_entry_is_pairs(codec: Codec, lp: bytes, flat: list[bytes]) -> None:
    with pytest.raises(ValueError, match="pairs"):
        codec.new_node(1, 1, flat)
    with pytest.raises(ValueError, match="pairs"):
        codec.append(lp, *MASTER, *MAX_ID, flat)


def test_an_entry_over_a_gibibyte_is_refused(codec: Codec, lp: bytes) -> None:
    flat = [b"f", bytes(1 << 30)]  # never touched, so it takes no memory
    with pytest.raises(TooLargeError):
        codec.new_node(1, 1, flat)
    with pytest.raises(TooLargeError):
        codec.append(lp, *MASTER, *MAX_ID, flat)


def test_validate_wants_live_entries_in_order(codec: Codec, lp: bytes) -> None:
    again, _ = codec.append(lp, *MASTER, *ENTRIES[2][1:3], [b"message", b"same ID"])
    with pytest.raises(CorruptNodeError, match="above"):
        codec.validate(again, *MASTER)
    # a server gets there by XDEL of the last entry and XSETID below it
    codec.validate(codec.mark_deleted(again, [2]), *MASTER)


@given(drawn=st.lists(st.tuples(steps, entries), min_size=1, max_size=20))
def test_entries_round_trip_through_a_node(
    codec: Codec, drawn: list[tuple[tuple[int, int], list[bytes]]]
) -> None:
    master = id = (3, 3)
    lp = codec.new_node(*master, drawn[0][1])
    expected = [(0, *id, drawn[0][1])]
    for ordinal, (step, flat) in enumerate(drawn[1:], 1):
        id = next_id(id, step)
        lp, _ = codec.append(lp, *master, *id, flat)
        expected.append((ordinal, *id, flat))
    codec.validate(lp, *master)
    assert codec.entries(lp, *master) == expected
    assert codec.entries(lp, *master, reverse=True) == expected[::-1]
    assert codec.last_id(lp, *master) == id


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
def test_cached_outlines_equal_a_fresh_parse(native: Codec, steps: Any) -> None:
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
