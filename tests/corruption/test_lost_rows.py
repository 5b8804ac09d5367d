"""Prevents a shorter answer where the index lost rows: LMDB's pages have no checksum, and rows of a
damaged one seem never to have been there.

The rows are deleted as damage does it, without a word to what counts them. Who comes to the end of
a walk holds it against the stream's record, and the index is built anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.dump import export
from logstore.engine.runtime.reopen import REBUILDS_MAX
from logstore.errors import CorruptionError
from logstore.features import idempotent_ids
from logstore.features.idempotent_ids import ProducerRows
from logstore.ids import StreamID
from logstore.index import keys
from logstore.index.txn import IndexTxn
from logstore.row_seal import digest
from tests.support import inside

SMALL, LARGE = 90, 2000
Store = logstore.Store[bytes]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Streams of nodes of ten entries; one is read in one batch, the other in several."""
    with logstore.open(
        tmp_path / "store", node_max_entries=10, background=False, encoding=None
    ) as made:
        for name, count in ((b"small", SMALL), (b"large", LARGE)):
            made.stream(name).add_many((f"{ms}-0", {b"n": b"%d" % ms}) for ms in range(1, count))
            made.stream(name).add({b"n": b"%d" % count}, f"{count}-0")
        yield made


def lose(store: Store, what: Callable[[IndexTxn], None]) -> int:
    """Change the index as damage would; the number of its generation."""
    generation = store._engine().index()
    with generation.env.begin(write=True) as txn:
        what(IndexTxn(generation, txn))
    store._engine().cache.clear()
    inside.forget_reads(store)
    return generation.number


def some_node(name: bytes) -> Callable[[IndexTxn], None]:
    """The third node of a stream."""

    def remove(index: IndexTxn) -> None:
        record = index.record_by_name(name)
        assert record is not None
        masters = [master for master, _ in index.nodes(record.number)]
        index.delete_node(record.number, masters[2])

    return remove


def all_nodes(name: bytes) -> Callable[[IndexTxn], None]:
    """All sealed nodes of a stream."""

    def remove(index: IndexTxn) -> None:
        record = index.record_by_name(name)
        assert record is not None
        for master in [master for master, _ in index.nodes(record.number)]:
            index.delete_node(record.number, master)

    return remove


def open_node(name: bytes) -> Callable[[IndexTxn], None]:
    """The open node of a stream."""

    def remove(index: IndexTxn) -> None:
        record = index.record_by_name(name)
        assert record is not None
        index.delete_open(record.number)

    return remove


def the_name(index: IndexTxn) -> None:
    """The row that leads from a name to its stream, not the one that confirms it."""
    index.txn.delete(keys.name_key(b"small"), db=index.generation.names)


def row_of_producer(kind: int) -> Callable[[IndexTxn], None]:
    """One row of a producer's idempotent adds to the small stream."""

    def remove(index: IndexTxn) -> None:
        record = index.record_by_name(b"small")
        assert record is not None
        first = bytes([kind]) + keys.NUMBER.pack(record.number) + digest(b"producer-1")
        with index.txn.cursor(db=index.generation.databases[ProducerRows.DATABASE]) as cursor:
            assert cursor.set_range(first)
            assert cursor.key().startswith(first)
            assert cursor.delete()

    return remove


def numbers(found: Any) -> list[int]:
    return [int(entry.fields[b"n"]) for entry in found]


@pytest.mark.parametrize(
    "lost", [some_node(b"small"), all_nodes(b"small"), open_node(b"small"), the_name]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_walk_that_meets_too_little_builds_the_index_anew(
    store: Store, lost: Callable[[IndexTxn], None], reverse: bool
) -> None:
    before = lose(store, lost)
    wanted = list(range(1, SMALL + 1))
    found = numbers(store.stream(b"small").range(reverse=reverse))
    assert found == (wanted[::-1] if reverse else wanted)
    assert store._engine().index().number == before + 1
    assert numbers(store.stream(b"small")) == wanted  # and once is enough
    assert store._engine().index().number == before + 1


@pytest.mark.parametrize("reverse", [False, True])
def test_a_long_walk_says_that_it_was_incomplete(store: Store, reverse: bool) -> None:
    """A part of it was given away; the next one is whole."""
    lose(store, some_node(b"large"))
    with pytest.raises(CorruptionError, match=r"198 of 199 nodes.*read it again"):
        list(store.stream(b"large").range(reverse=reverse))
    assert len(numbers(store.stream(b"large").range(reverse=reverse))) == LARGE


def test_an_entry_that_must_be_somewhere(store: Store) -> None:
    """Its node, or the open one, or the stream's name."""
    for lost, ms in (
        (all_nodes(b"small"), 5), (open_node(b"small"), SMALL), (the_name, 7),
    ):  # fmt: skip
        before = lose(store, lost)
        entry = store.stream(b"small").get(f"{ms}-0")
        assert entry is not None
        assert numbers([entry]) == [ms]
        assert store._engine().index().number == before + 1
    assert store._engine().rebuilds_of_lost == 3


def test_an_index_is_not_built_anew_for_ever(store: Store) -> None:
    """What a rebuild does not bring back is not the index's."""
    for _ in range(REBUILDS_MAX):
        lose(store, some_node(b"small"))
        assert len(list(store.stream(b"small"))) == SMALL
    lose(store, some_node(b"small"))
    for _ in range(2):
        with pytest.raises(CorruptionError, match="80 of 90 entries"):
            list(store.stream(b"small"))


def test_scans_and_plans_tell_it_too(store: Store) -> None:
    pa = pytest.importorskip("pyarrow")
    lose(store, some_node(b"large"))
    with pytest.raises(CorruptionError, match="198 of 199 nodes"):
        store.stream(b"large").scan().read_all()
    table: pa.Table = store.stream(b"large").scan().read_all()
    assert table.num_rows == LARGE
    lose(store, some_node(b"small"))
    from logstore.scan import split_plan

    assert split_plan.make(store._engine(), [b"small", b"large"]).entries == SMALL + LARGE


def test_a_missing_entry_is_not_searched_in_the_log(store: Store) -> None:
    """Deleted entries, gaps, ends, streams that never were."""
    stream = store.stream(b"small")
    before = store._engine().index().number
    stream.delete("1-0", "2-0", *[f"{ms}-0" for ms in range(21, 31)], f"{SMALL}-0")
    for id in ("1-0", "2-0", "3-1", "25-0", f"{SMALL}-0", "0-1", f"{SMALL + 9}-0"):
        assert stream.get(id) is None
    assert list(stream.range("21-0", "30-0")) == []
    assert len(list(stream)) == SMALL - 13
    assert list(store.stream(b"none")) == []
    assert store.stream(b"none").get(StreamID(1, 1)) is None
    stream.trim(max_entries=5, approximate=False)
    assert len(list(stream)) == 5
    stream.trim(max_entries=0, approximate=False)
    assert list(stream) == []
    assert store._engine().index().number == before


def test_writing_without_the_open_node_is_refused(store: Store) -> None:
    """Another one made in its place would be of the wrong stream's end. A compiled lane has the
    open node in memory, and needs no row of it; a sync of its own goes through the pipeline."""
    lose(store, open_node(b"small"))
    with pytest.raises(CorruptionError, match="lost the open node"):
        store.stream(b"small").add({b"n": b"1"}, sync="os")
    assert len(list(store.stream(b"small"))) == SMALL
    assert store.stream(b"small").add({b"n": b"1"}) is not None


ONCE = [(b"producer-%d" % who, [b"id-%d" % n for n in range(3)]) for who in range(3)]


def add_once(store: Store) -> None:
    for producer, ids in ONCE:
        for id in ids:
            store.stream(b"small").add({b"n": b"0"}, producer=producer, idempotent_id=id)


def once(store: Store) -> list[tuple[bytes, list[bytes]]]:
    """The names of producers and of their IDs, as an export gives them to others."""
    known = export.read(store._engine(), b"small").info.idempotence
    assert known is not None
    return sorted((producer, sorted(id for id, _ in ids)) for producer, ids in known.producers)


@pytest.mark.parametrize("row", ["_PRODUCER_ROW", "_ID_ROW"])
def test_a_producer_without_its_row_is_not_one_without_a_name(store: Store, row: str) -> None:
    """Its name stands in that row alone: it was read as an empty one, which was never written."""
    add_once(store)
    before = lose(store, row_of_producer(getattr(idempotent_ids, row)))
    assert once(store) == ONCE
    assert store._engine().index().number == before + 1


def test_forgetting_ids_of_a_producer_without_its_row_is_refused(store: Store) -> None:
    """A row made anew would have no name, and a count below nothing. The log is as it was."""
    add_once(store)
    lose(store, row_of_producer(idempotent_ids._PRODUCER_ROW))

    def forget(index: IndexTxn) -> None:
        record = index.record_by_name(b"small")
        assert record is not None
        ProducerRows(index).forget(record.number, StreamID(0, 0), record.last)

    with pytest.raises(CorruptionError, match="lost a producer"):
        lose(store, forget)
    assert once(store) == ONCE
