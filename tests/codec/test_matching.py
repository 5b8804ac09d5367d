"""Prevents entries that match and are passed over, and others that come in their place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import format as fmt
from logstore.codec import Codec
from logstore.errors import CorruptNodeError
from logstore.log import frame as frames
from logstore.log.segment_writer import CommitBuffer, crc_seed
from tests.codec.strategies import entries, names, next_id, steps, texts
from tests.support.inside import add_frame

Flat = list[bytes]
SEED = crc_seed(bytes(range(16)))


def node_of(codec: Codec, drawn: list[tuple[Any, Flat]]) -> tuple[bytes, list[tuple[int, int]]]:
    """A node of these entries, and their IDs; its master ID is the first."""
    ids = [(5, 5)]
    lp = codec.new_node(5, 5, drawn[0][1])
    for step, flat in drawn[1:]:
        ids.append(next_id(ids[-1], step))
        lp, _ = codec.append(lp, 5, 5, *ids[-1], flat)
    return lp, ids


@given(
    drawn=st.lists(st.tuples(steps, entries), min_size=1, max_size=12),
    picks=st.lists(st.integers(0, 200), max_size=3),
    others=st.lists(st.tuples(names, texts), max_size=1),
    gone=st.integers(0, 2**13),
    ends=st.tuples(st.integers(0, 11), st.integers(0, 11)),
    limit=st.sampled_from([-1, -1, 0, 1, 3]),
    reverse=st.booleans(),
)
def test_matching_rows_are_those_whose_last_values_are_equal(
    codec: Codec,
    drawn: Any,
    picks: Any,
    others: Any,
    gone: int,
    ends: Any,
    limit: int,
    reverse: bool,
) -> None:
    lp, ids = node_of(codec, drawn)
    pairs = [pair for _, flat in drawn for pair in zip(flat[::2], flat[1::2], strict=True)]
    chosen = [pairs[pick % len(pairs)] for pick in picks] + others
    where = [text for pair in chosen for text in pair]
    vector = gone.to_bytes(2, "little")
    first, last = (ids[end % len(ids)] for end in ends)
    every = codec.entries(lp, 5, 5, vector, first, last, reverse=reverse)
    expected = []
    for entry in every:
        values = dict(zip(entry[3][::2], entry[3][1::2], strict=True))
        if all(values.get(name) == value for name, value in chosen):
            expected.append(entry)
    found = codec.entries(lp, 5, 5, vector, first, last, limit, reverse, where)
    assert found == (expected if limit < 0 else expected[:limit])


@pytest.mark.parametrize("reverse", [False, True])
def test_a_number_is_its_text_however_it_is_stored(codec: Codec, reverse: bool) -> None:
    """Servers take nodes from clients in which a number stands as text."""
    lp, ids = node_of(codec, [((0, 0), [b"n", b"xyz"]), ((1, 0), [b"n", b"123"])])
    text = lp.replace(b"\x83xyz\x04", b"\x83123\x04")
    assert text != lp
    found = codec.entries(text, 5, 5, reverse=reverse, where=[b"n", b"123"])
    assert [entry[1:3] for entry in found] == ids[:: -1 if reverse else 1]
    assert codec.entries(text, 5, 5, where=[b"n", b"0123"]) == []


def test_a_node_without_the_text_is_not_looked_into(codec: Codec) -> None:
    lp, _ = node_of(codec, [((0, 0), [b"n", b"xyz"])])
    broken = lp[:-3] + b"\x7f" + lp[-2:]
    assert codec.entries(broken, 5, 5, where=[b"n", b"other"]) == []
    for where in ([b"n", b"xyz"], [b"n", b"7"], []):
        with pytest.raises(Exception, match=r"node|element|entry"):
            codec.entries(broken, 5, 5, where=where)


def test_other_things_than_bytes_are_refused_by_the_compiled_one(native: Codec) -> None:
    lp, _ = node_of(native, [((0, 0), [b"n", b"xyz"])])
    wrong: Any = [b"n", "xyz"]
    with pytest.raises(TypeError):
        native.entries(lp, 5, 5, where=wrong)


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ([], [0, 1, 2, 3]), ([b"a", b"needle"], [1, 3]), ([b"a", b"7"], [3]),
        ([b"b", b"needle"], [3]), ([b"n", b"needle"], [3]),
    ],
)  # fmt: skip
def test_nodes_are_passed_over_in_place_if_they_are_sound(
    codec: Codec, where: list[bytes], wanted: list[int]
) -> None:
    """The last one is of another stream than its frame says."""
    nodes = [[b"a", b"xn"], [b"a", b"needle"], [b"a", b"bbn"], [b"a", b"other"]]
    buffer = CommitBuffer(fmt.position(1, fmt.SEGMENT_HEAD_BYTES), 1)
    listed = codec.NodeList()
    begin = fmt.position(1, fmt.SEGMENT_HEAD_BYTES)
    offsets = []
    for n, flat in enumerate(nodes):
        body = frames.Node(1 + (n == 3), 5, n, 5, n, 1, codec.new_node(5, n, flat))
        position, size = add_frame(buffer, body)
        offsets.append(listed.nbytes)
        listed.add(position, size, 1, (5, n), (5, n), b"")
    data = buffer.encode(SEED, 0)
    found: list[int] = []
    items = listed.items()
    assert codec.may_match(items, 0, data, begin, 1, SEED, where, found) == len(items)
    assert [offsets.index(each) for each in found] == wanted
    for cut in (0, 10, len(data) - 1):
        found.clear()
        upto = codec.may_match(items, 0, data[:cut], begin, 1, SEED, [b"a", b"absent"], found)
        assert (upto, found) == (0 if cut < 20 else offsets[3], [])
    assert codec.may_match(items, 0, data, begin + 1, 1, SEED, where, found) == 0


@given(
    drawn=st.lists(st.tuples(steps, entries), min_size=1, max_size=12),
    picks=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), min_size=1, max_size=2),
    broken=st.none() | st.integers(0, 500),
)
def test_a_node_is_passed_over_if_no_entry_matches_and_none_that_is_damaged(
    codec: Codec, drawn: Any, picks: Any, broken: int | None
) -> None:
    """Names and values that stand in the node, but seldom in one entry; bytes that are wrong."""
    lp, _ = node_of(codec, drawn)
    if broken is not None:
        at = broken % len(lp)
        lp = lp[:at] + bytes([lp[at] ^ 0x40]) + lp[at + 1 :]
    parts = [part for _, flat in drawn for part in flat]
    where = [parts[pick % len(parts)] for pair in picks for pick in pair]
    buffer = CommitBuffer(fmt.position(1, fmt.SEGMENT_HEAD_BYTES), 1)
    position, size = add_frame(buffer, frames.Node(1, 5, 5, 5, 5, 1, lp))
    listed = codec.NodeList()
    listed.add(position, size, 1, (5, 5), (5, 5), b"")
    found: list[int] = []
    data = buffer.encode(SEED, 0)
    codec.may_match(listed.items(), 0, data, position, 1, SEED, where, found)
    try:
        expected = bool(codec.entries(lp, 5, 5, limit=1, where=where))
    except CorruptNodeError:
        expected = True
    assert bool(found) == expected
