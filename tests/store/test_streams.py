"""Prevents streams whose counts, edges and last ID drift from what was done to them."""

from __future__ import annotations

import tracemalloc

import pytest

import logstore
from logstore import StreamNotFoundError, UsageError
from logstore.api.info import radix_tree
from logstore.api.store import Store
from logstore.ids import ZERO_ID, StreamID
from tests.store.conftest import OpenStore
from tests.store.whole_store import everything
from tests.support.inside import delete_index


def test_a_handle_creates_nothing(store: Store[bytes]) -> None:
    stream = store.stream("s")
    assert (len(stream), stream.first, stream.last, stream.last_id) == (0, None, None, ZERO_ID)
    assert (list(stream), stream.get("1-1"), stream.read("0")) == ([], None, [])
    assert (
        stream.delete("1-1"),
        stream.delete_range("-", "+"),
        stream.trim(max_entries=0, approximate=False),
    ) == (
        0,
        0,
        0,
    )
    assert bool(stream)
    assert (store.streams(), "s" in store, store.drop("s")) == ([], False, False)
    with pytest.raises(StreamNotFoundError, match="no such key"):
        stream.info()
    with pytest.raises(StreamNotFoundError, match="no such key"):
        stream.set_id("5")


def test_create_list_and_drop(store: Store[bytes]) -> None:
    assert store.create("b")
    assert not store.create("b")
    store["a"].add({"x": 1})
    assert store.streams() == [b"a", b"b"]
    assert "a" in store
    assert b"b" in store
    assert store.drop("a")
    assert not store.drop("a")
    assert store.streams() == [b"b"]
    assert store.stream("b").info().entries_added == 0


def test_edges_follow_adds_and_deletes(store: Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add_many(((ms, 0), {"n": ms}) for ms in range(1, 13))
    stream.delete("1", "2", "12", "77", "2")
    assert stream.first is not None
    assert stream.last is not None
    assert (stream.first.id.ms, stream.last.id.ms, len(stream)) == (3, 11, 9)
    assert stream.last_id == (12, 0)
    info = stream.info()
    assert (info.length, info.entries_added, info.max_deleted_entry_id) == (9, 12, (12, 0))
    assert (info.recorded_first_entry_id, info.first_entry) == ((3, 0), stream.first)
    assert info.as_dict()["last-entry"] == {"id": "11-0", "pairs": [["n", "11"]]}
    stream.delete_range("-", "+")
    assert (stream.first, stream.last, len(stream), stream.last_id) == (None, None, 0, (12, 0))
    assert stream.info().recorded_first_entry_id == ZERO_ID
    assert stream.info().radix_tree_keys == 0


def test_a_dropped_name_starts_anew(store: Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add({"old": 1}, id="9-9")
    store.drop("s")
    assert stream.add({"new": 1}, id="1-1") == (1, 1)
    assert [entry.pairs for entry in stream] == [[(b"new", b"1")]]
    assert stream.info().entries_added == 1


def test_set_id_moves_what_comes_next(store: Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add({"n": 1}, id="5-0")
    stream.set_id("100-7", entries_added=50, max_deleted_id="60-0")
    info = stream.info()
    assert (info.last_generated_id, info.entries_added, info.max_deleted_entry_id) == (
        (100, 7), 50, (60, 0),
    )  # fmt: skip
    assert stream.add({"n": 2}, id="100-*") == (100, 8)
    for last, options, words in [
        ("4", {}, "current max_deleted"),
        ("99", {}, "top item"),
        ("101", {"entries_added": 1}, "stream length"),
        ("101", {"entries_added": -1}, "must be positive"),
        ("101", {"max_deleted_id": "102"}, "provided max_deleted"),
    ]:
        with pytest.raises(UsageError, match=words):
            stream.set_id(last, **options)  # type: ignore[arg-type]
    assert stream.last_id == (100, 8)


def test_all_of_it_survives_reopening_and_losing_the_index(
    store: Store[bytes], open_store: OpenStore
) -> None:
    stream = store.stream("s")
    stream.add_many(((ms, 0), {"n": ms}) for ms in range(1, 33))
    stream.delete_range("7", "23")
    stream.trim(max_entries=9, approximate=False)
    store.create("empty")
    store.stream("gone").add({"a": 1})
    store.drop("gone")
    store.stream("moved").add({"a": 1}, id="1-1")
    store.stream("moved").set_id("50", entries_added=9)
    before = everything(store)
    store.close()
    store = open_store()
    assert everything(store) == before
    store.close()
    delete_index(store.path)
    store = open_store()
    assert store.recovery["rebuilt"]
    assert everything(store) == before
    assert sorted(before) == [b"empty", b"moved", b"s"]


def test_deleting_by_range_is_deleting_each(store: Store[bytes]) -> None:
    rows = [((ms, 0), {"n": ms}) for ms in range(1, 60)]
    for name in ("one", "other"):
        store.stream(name).add_many(rows)
    one, other = store.stream("one"), store.stream("other")
    assert one.delete_range("(3", "41-0") == other.delete(*((ms, 0) for ms in range(4, 42))) == 38
    assert one.delete_range("2", "3") == other.delete("2", "3") == 2
    with pytest.raises(logstore.OptionError, match="smaller ID first"):
        one.delete_range("50", "4")
    found = everything(store)
    assert found[b"one"][1:] == found[b"other"][1:]
    assert one.info().max_deleted_entry_id == other.info().max_deleted_entry_id == (41, 0)
    assert one.info().radix_tree_keys == other.info().radix_tree_keys


def test_deletes_are_all_checked_before_one_is_done(store: Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add({"a": 1}, id="1-1")
    with pytest.raises(UsageError):
        stream.delete("1-1", "nonsense")
    assert len(stream) == 1


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
