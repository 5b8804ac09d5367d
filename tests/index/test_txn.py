"""Prevents look-ups that miss a node, cross into another stream, or invent an absent name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logstore import CorruptionError, StreamID
from logstore.fs import LOCAL
from logstore.ids import MAX_ID, ZERO_ID
from logstore.index import keys
from logstore.index.env import Generation, open_generation
from logstore.index.keys import Locator, Meta, OpenNode, SegmentRow, StreamRecord
from logstore.index.txn import IndexTxn


@pytest.fixture
def generation(tmp_path: Path) -> Iterator[Generation]:
    """A new, empty generation."""
    made = open_generation(LOCAL, tmp_path / "1", 1, build=True)
    yield made
    made.close()


@pytest.fixture
def index(generation: Generation) -> Iterator[IndexTxn]:
    """A write transaction, which is taken back in the end."""
    txn: Any = generation.env.begin(write=True)
    yield IndexTxn(generation, txn)
    txn.abort()


def locator(at: int) -> Locator:
    """A locator that can be told from others."""
    return Locator(at, 10, 5, StreamID(at, at))


small = st.builds(StreamID, st.integers(0, 6), st.sampled_from([0, 1, 2**64 - 1]))
edges = small | st.sampled_from([ZERO_ID, MAX_ID])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    there=st.sets(st.tuples(st.integers(1, 3), small), max_size=12),
    stream=st.integers(1, 3), start=edges, end=edges,
)  # fmt: skip
def test_nodes_both_ways_and_the_one_below(
    generation: Generation, there: set[tuple[int, StreamID]], stream: int, start: StreamID,
    end: StreamID,
) -> None:  # fmt: skip
    with generation.env.begin(write=True) as txn:
        index = IndexTxn(generation, txn)
        for number, (name, master) in enumerate(sorted(there)):
            index.put_node(name, master, locator(number))
        mine = sorted(master for name, master in there if name == stream)
        inside = [master for master in mine if start <= master <= end]
        assert [found[0] for found in index.nodes(stream, start, end)] == inside
        assert [found[0] for found in index.nodes(stream, start, end, reverse=True)] == inside[::-1]
        below = [master for master in mine if master <= start]
        floor = index.node_floor(stream, start)
        assert (floor[0] if floor else None) == (below[-1] if below else None)
        last = index.last_node(stream)
        assert (last[0] if last else None) == (mine[-1] if mine else None)
        assert [(name, master) for _, name, master, _ in index.all_nodes()] == sorted(there)
        for number, (name, master) in enumerate(sorted(there)):
            assert index.node(name, master) == locator(number)
            index.delete_node(name, master)
        assert index.node_floor(stream, MAX_ID) is None


def test_an_empty_index(index: IndexTxn) -> None:
    assert index.last_node(1) is None
    assert list(index.nodes(1)) == list(index.nodes(1, reverse=True)) == []
    assert list(index.records()) == []
    assert (index.open_node(1), index.record(1), index.stream_number(b"x")) == (None, None, None)
    assert index.segment_rows() == {}
    with pytest.raises(CorruptionError, match="empty"):
        index.meta()


def test_rows_come_back(index: IndexTxn) -> None:
    index.put_meta(Meta(5, 6, 7, 8, 9, 10, 11))
    assert index.meta() == Meta(5, 6, 7, 8, 9, 10, 11)
    for number in (1, 255, 256, 70_000):
        index.put_changes([StreamRecord(number, b"name %d" % number)], [])
        index.put_changes([], [(number, OpenNode(b"lp %d" % number))])
        index.put_segment(number, SegmentRow(0, number, 1, 2, 3))
    assert [record.number for record in index.records()] == [1, 255, 256, 70_000]
    assert [record.number for record in index.records(after=255)] == [256, 70_000]
    assert index.open_node(256) == OpenNode(b"lp 256")
    assert sorted(index.segment_rows()) == [1, 255, 256, 70_000]
    index.delete_record(255)
    index.delete_open(256)
    index.delete_segment(1)
    assert [record.number for record in index.records()] == [1, 256, 70_000]
    assert (index.open_node(256), index.segment(1)) == (None, None)


@pytest.mark.parametrize("name", [b"", b"a", b"n" * 400, b"n" * 401, b"x" * 65536])
def test_names_are_bound_twice(index: IndexTxn, name: bytes) -> None:
    index.confirm_absent(name)
    index.put_name(name, 7)
    index.put_changes([StreamRecord(7, name)], [])
    assert index.stream_number(name) == 7
    record = index.record_by_name(name)
    assert record is not None
    assert record.name == name
    # the first of the two records is lost: the name is not absent, the index is damaged
    index.txn.delete(keys.name_key(name), db=index.generation.names)
    assert index.record_by_name(name) is None
    with pytest.raises(CorruptionError, match="lost a name"):
        index.confirm_absent(name)
    index.delete_name(name, 7)
    index.confirm_absent(name)


def test_twins_that_share_a_key(index: IndexTxn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "twin_key", lambda name: b"t same")
    for number, name in ((1, b"one"), (2, b"two"), (3, b"three")):
        index.confirm_absent(name)
        index.put_name(name, number)
        index.put_changes([StreamRecord(number, name)], [])
    index.delete_name(b"two", 2)
    index.delete_record(2)
    index.confirm_absent(b"two")
    index.txn.delete(keys.name_key(b"three"), db=index.generation.names)
    with pytest.raises(CorruptionError):
        index.confirm_absent(b"three")


def test_a_damaged_row_is_never_used(generation: Generation) -> None:
    with generation.env.begin(write=True) as txn:
        index = IndexTxn(generation, txn)
        index.put_node(1, StreamID(1, 1), locator(1))
        key = keys.NODE_KEY.pack(1, 1, 1)
        data = bytearray(txn.get(key, db=generation.nodes))
        data[3] ^= 4
        txn.put(key, bytes(data), db=generation.nodes)
        for look in (
            lambda: index.node(1, StreamID(1, 1)),
            lambda: index.last_node(1),
            lambda: list(index.nodes(1)),
            lambda: list(index.nodes(1, reverse=True)),
            lambda: list(index.all_nodes()),
        ):
            with pytest.raises(CorruptionError):
                look()


def test_a_directory_without_data_is_never_opened(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "lock.mdb").write_bytes(b"")
    with pytest.raises(FileNotFoundError):
        open_generation(LOCAL, tmp_path / "1", 1)
    assert [path.name for path in (tmp_path / "1").iterdir()] == ["lock.mdb"]


def test_a_file_that_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "data.mdb").write_bytes(b"nonsense" * 2000)
    with pytest.raises(CorruptionError, match="cannot be opened"):
        open_generation(LOCAL, tmp_path / "1", 1)
