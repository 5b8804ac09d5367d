"""Prevents values of the index that come back otherwise, or are believed when they are damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import CorruptionError, StreamID
from logstore.ids import MAX_ID, U64_MAX, ZERO_ID
from logstore.index import keys
from logstore.index.keys import Locator, Meta, NodeFrame, OpenNode, SegmentRow, StreamRecord
from logstore.row_seal import seal, unseal

u64 = st.integers(0, U64_MAX)
u32 = st.integers(0, 2**32 - 1)
ids = st.builds(StreamID, u64, u64)
runs = st.builds(NodeFrame, u64, u32, u32, u32)


@given(
    st.builds(
        StreamRecord,
        u64,
        st.binary(max_size=80),
        u64,
        u64,
        ids,
        ids,
        ids,
        u64,
        u32,
        u64,
        u64,
        ids,
    )
)
def test_a_record_comes_back(record: StreamRecord) -> None:
    assert StreamRecord.unpack(record.number, record.pack()) == record


@given(st.builds(Locator, u64, u32, u32, ids, st.binary(max_size=20)))
def test_a_locator_comes_back(locator: Locator) -> None:
    assert Locator.unpack(locator.pack()) == locator


@given(st.builds(Meta, u64, u64, u64, u32, u32, u64, u32))
def test_the_position_of_the_index_round_trips(meta: Meta) -> None:
    assert Meta.unpack(meta.pack()) == meta


@given(st.builds(SegmentRow, st.integers(0, 255), u64, u32, u32, u64))
def test_the_row_of_a_segment_comes_back(row: SegmentRow) -> None:
    assert SegmentRow.unpack(row.pack()) == row


@given(st.binary(max_size=60), st.lists(runs, max_size=5), st.sets(st.integers(0, 300), max_size=9))
def test_an_open_node_comes_back(lp: bytes, parts: list[NodeFrame], ordinals: set[int]) -> None:
    small = OpenNode(lp)
    assert OpenNode.unpack(small.pack()) == small
    if parts:
        large = OpenNode(lp or None, parts, sum(1 << ordinal for ordinal in ordinals))
        assert OpenNode.unpack(large.pack()) == large


@given(st.integers(0, 2**70).filter(bool), st.integers(100, 200))
def test_live_entries_are_what_the_vector_leaves(bits: int, entries: int) -> None:
    vector = bits.to_bytes(9, "little")
    assert Locator(1, 1, entries, ZERO_ID, vector).live == entries - bits.bit_count()


@given(st.binary(min_size=1, max_size=40), st.binary(max_size=80), st.data())
def test_one_wrong_bit_or_another_key_is_an_error(
    key: bytes, value: bytes, data: st.DataObject
) -> None:
    sealed = seal(key, value)
    assert unseal(key, sealed) == value
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    wrong = bytearray(sealed)
    wrong[bit >> 3] ^= 1 << (bit & 7)
    with pytest.raises(CorruptionError, match="rebuilt from the log"):
        unseal(key, bytes(wrong))
    with pytest.raises(CorruptionError):
        unseal(key + b"x", sealed)
    with pytest.raises(CorruptionError):
        unseal(key, sealed[:-1])


def test_unseal_of_less_than_a_checksum_is_corruption() -> None:
    for data in (b"", b"abc"):
        with pytest.raises(CorruptionError):
            unseal(b"k", data)


@given(st.tuples(u64, ids), st.tuples(u64, ids))
def test_keys_of_nodes_sort_by_stream_and_id(
    one: tuple[int, StreamID], other: tuple[int, StreamID]
) -> None:
    packed = [keys.NODE_KEY.pack(stream, *id) for stream, id in (one, other)]
    assert (packed[0] < packed[1]) == (one < other)


def test_keys_of_names_are_short_and_differ() -> None:
    names = [b"", b"n", b"h", b"t", b"n" * 400, b"n" * 401, b"n" * 402, b"\0", b"x" * 65536]
    found = {keys.name_key(name) for name in names} | {keys.twin_key(name) for name in names}
    assert len(found) == 2 * len(names)
    assert max(map(len, found)) <= 511  # what LMDB takes
    assert keys.record_key(1) < keys.record_key(256)
    assert len({keys.META_KEY, keys.record_key(1), keys.open_key(1), keys.open_key(256)}) == 4
    assert MAX_ID > ZERO_ID
