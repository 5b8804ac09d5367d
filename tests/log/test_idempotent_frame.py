"""Prevents a frame of idempotent adds from losing a name, or from being read past its end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptFrameError
from logstore.features.idempotent_ids import NOTHING, Idempotent
from logstore.format import Kind
from logstore.log import frame as frames

number = st.integers(0, 2**64 - 1)
id = st.tuples(number, number)
bodies = st.builds(
    Idempotent, number, number, number, id, id, id, st.binary(max_size=40),
    st.lists(st.tuples(id, st.binary(max_size=40)), max_size=5).map(tuple),
)  # fmt: skip


@given(body=bodies)
def test_a_body_comes_back_as_it_was(body: Idempotent) -> None:
    assert frames.decode(Kind.IDEMPOTENT, frames.encode(body)) == body


@given(body=bodies, data=st.data())
def test_bytes_that_are_cut_off_are_refused_or_end_between_items(
    body: Idempotent, data: st.DataObject
) -> None:
    payload = frames.encode(body)
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    try:
        found = frames.decode(Kind.IDEMPOTENT, cut)
    except CorruptFrameError:
        return
    assert isinstance(found, Idempotent)
    assert found[:7] == body[:7]
    assert found.items == body.items[: len(found.items)]


def test_the_bytes_are_those_of_the_format_page() -> None:
    body = Idempotent(1, 2, 3, *NOTHING, (7, 8), b"pid", (((4, 5), b"name"),))
    assert frames.encode(body) == bytes.fromhex(
        "0100000000000000 0200000000000000 0300000000000000"  # stream, added, duplicates
        "ffffffffffffffff ffffffffffffffff"  # forgotten of all: from here
        "0000000000000000 0000000000000000"  # to here, which is nothing
        "0700000000000000 0800000000000000"  # forgotten of this producer: up to here
        "0300 706964"  # the producer
        "0400000000000000 0500000000000000 0400 6e616d65"  # an entry, and the ID that gave it
    )


@pytest.mark.parametrize("size", [0, 73])
def test_a_head_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(CorruptFrameError, match="IDEMPOTENT"):
        frames.decode(Kind.IDEMPOTENT, bytes(size))
