"""Prevents rows of columns that differ from the same rows given one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.codec import Codec
from logstore.errors import EntryTypeError, InvalidEntryError

NAMES = [b"a", b"speed", b"", "é".encode()]
VALUES = st.one_of(
    st.none(), st.binary(max_size=5), st.text(max_size=5), st.integers(-(2**70), 2**70), st.floats()
)


@settings(max_examples=60)
@given(st.data())
def test_rows_of_columns_are_the_rows(codec: Codec, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 4))
    rows = data.draw(st.lists(st.tuples(*[VALUES] * width), max_size=12))
    names = NAMES[:width]
    columns = [[row[place] for row in rows] for place in range(width)]
    pairs = [[pair for pair in zip(names, row, strict=True) if pair[1] is not None] for row in rows]
    try:
        wanted = codec.rows(pairs)
    except InvalidEntryError:
        with pytest.raises(InvalidEntryError):
            codec.columns(names, columns)
        return
    found = codec.columns(names, columns)
    assert len(found) == len(rows)
    for place in range(len(rows)):
        assert found.flat(place) == wanted.flat(place)
        assert found.raw_bytes(place) == wanted.raw_bytes(place)
    ids, nodes = (1, 1), []
    for batch in (found, wanted):
        packed = codec.pack(batch, 0, len(rows), ids, None, 0, 0, 4096, 5)
        nodes.append([node.lp for node in packed.nodes])
    assert nodes[0] == nodes[1]


@pytest.mark.parametrize(
    ("names", "columns", "error"),
    [
        ([b"a"], [], ValueError),
        ([b"a", b"b"], [[1], []], ValueError),
        ([b"a"], [[1, None]], InvalidEntryError),
        ([b"a"], [[True]], EntryTypeError),
        ([b"a"], [["\ud800"]], InvalidEntryError),
    ],
)
def test_columns_that_cannot_be(codec: Codec, names: Any, columns: Any, error: type) -> None:
    with pytest.raises(error):
        codec.columns(names, columns)
    assert len(codec.columns([], [])) == 0


def test_ids_of_numbers(codec: Codec) -> None:
    top = 2**64 - 1
    given_ids = codec.given_numbers([1, top], [5, top])
    assert [given_ids[0], given_ids[1]] == [(1, 5), (top, top)]
    assert given_ids.settle(1, 4) == -1
    assert given_ids.settle(1, 5) == 0
    left_open = codec.given_numbers([7, 7, 9], None)
    assert left_open.settle(7, 2) == -1
    assert [left_open[place] for place in range(3)] == [(7, 3), (7, 4), (9, 0)]
    with pytest.raises(ValueError, match="two numbers"):
        codec.given_numbers([1], [])
    for bad in ([-1], [2**64]):
        with pytest.raises(OverflowError):
            codec.given_numbers(bad, None)
        with pytest.raises(OverflowError):
            codec.given_numbers([1], bad)
