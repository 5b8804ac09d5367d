"""Prevents entries that no split covers, or two do, and splits of very different size."""

from __future__ import annotations

import itertools
import pickle
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.api.store import Store
from logstore.codec import codec
from logstore.errors import OptionError, StreamNotFoundError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.log import pinfile
from logstore.scan import listing, split_plan
from tests.scan.scanned_stores import batch_rows, make_plan, make_store, rows_of, split_rows

NUMBERS = itertools.count()
STREAMS = st.lists(
    st.tuples(st.binary(max_size=40), st.integers(1, 4), st.booleans()), min_size=0, max_size=60
)


@settings(max_examples=60)
@given(STREAMS, st.integers(1, 12), st.data())
def test_splits_cover_every_live_entry_once(
    store: Store[bytes],
    entries: list[tuple[bytes, int, bool]],
    parts: int,
    data: st.DataObject,
) -> None:
    stream = store.stream(f"covered-{next(NUMBERS)}")
    store.create(stream.name)
    ids = [StreamID(10 * n + 1, n % 3) for n in range(len(entries))]
    if entries:
        stream.add_many(
            (
                (id, [(b"f%d" % field, value) for field in range(width)])
                for id, (value, width, _) in zip(ids, entries, strict=True)
            ),
            batch=7,
        )
        gone = [id for id, (_, _, deleted) in zip(ids, entries, strict=True) if deleted]
        if gone:
            stream.delete(*gone)
    edges = st.sampled_from([ZERO_ID, MAX_ID, *ids]) if ids else st.just(ZERO_ID)
    start, end = sorted((data.draw(edges), data.draw(edges)))
    made = make_plan(store, stream.name, start=start, end=end, min_partitions=parts)
    assert split_rows(made) == rows_of(stream, start, end)
    nodes = sum(split.nodes for split in made.splits)
    assert len(made.splits) == min(parts, nodes)
    assert made.data_bytes == sum(split.data_bytes for split in made.splits)
    for before, after in itertools.pairwise(made.splits):
        assert before.last < after.first
    assert bool(made.pin_id) == bool(made.splits)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=300), st.integers(1, 40))
def test_runs_are_of_about_equal_sums(sizes: list[int], parts: int) -> None:
    parts = min(parts, len(sizes))
    nodes = codec().NodeList()
    for size in sizes:
        nodes.add(1, size, 1, (1, 1), (1, 1), b"")
    cuts = split_plan.bounds(nodes, parts)
    runs = [sum(sizes[low:high]) for low, high in itertools.pairwise(cuts)]
    assert cuts[0] == 0
    assert cuts[-1] == len(sizes)
    assert len(runs) == parts
    assert all(low < high for low, high in itertools.pairwise(cuts))
    if max(sizes) * parts <= sum(sizes):  # else one node alone is more than a share
        assert max(runs) <= sum(sizes) / parts + max(sizes)


@pytest.mark.parametrize(
    ("data_bytes", "nodes", "asked", "cores", "count"),
    [
        (10 * split_plan.SPLIT_BYTES, 10_000, None, 2, 10),
        (10 * split_plan.SPLIT_BYTES + 1, 10_000, None, 2, 12),  # as many for each core
        (9 * split_plan.SPLIT_BYTES, 10_000, None, 8, 16),
        (100, 10_000, None, 8, 8),
        (100, 3, None, 8, 3),
        (100 * split_plan.SPLIT_BYTES, 10_000, 7, 2, 7),
        (100, 5, 1000, 2, 5),
    ],
)
def test_the_number_of_splits(
    data_bytes: int, nodes: int, asked: int | None, cores: int, count: int
) -> None:
    found = split_plan.partition_count(data_bytes, nodes, min_partitions=asked, cores=cores)
    assert found == count


def test_to_count_takes_no_more_tasks_than_help(
    store: Store[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_plan, "COUNT_ENTRIES", 100)
    monkeypatch.setattr(split_plan, "SPLIT_BYTES", 200)
    for name, size in ((b"few", 100), (b"some", 101), (b"many", 1000)):
        store.stream(name).add_many([{"f": "v" * 9}] * size)
    for name, cores, count in ((b"few", 8, 1), (b"some", 8, 2), (b"many", 8, 8), (b"many", 32, 10)):
        made = make_plan(store, name, cores=cores, counting=True)
        assert len(made.splits) == count
        assert made.entries == sum(split.entries for split in made.splits)
        # of the same with columns it is another plan
        assert len(make_plan(store, name, cores=cores).splits) > count
    asked = make_plan(store, b"many", cores=2, counting=True, min_partitions=20)
    assert len(asked.splits) == 20


def test_several_streams_share_a_plan(store: Store[bytes]) -> None:
    wanted = []
    names = [b"many-%d" % n for n in range(30)]
    for size, name in enumerate(names):
        store.create(name)
        store[name].add_many(({"n": n} for n in range(size)), batch=1000)
        wanted += rows_of(store[name])
    for parts in (1, 4, 1000):
        made = make_plan(store, *names, min_partitions=parts)
        assert split_rows(made) == wanted
        assert made.entries == len(wanted)


def test_an_empty_range_leaves_no_pin(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store["x"].add({"a": 1}, id="5-5")
        assert make_plan(store, b"x", start=StreamID(6, 0)).splits == []
        assert list((tmp_path / "s" / "pins").iterdir()) == []


@pytest.mark.parametrize("options", [{"min_partitions": 0}, {"ttl_ms": 0}])
def test_refused_options(store: Store[bytes], options: dict[str, int]) -> None:
    store["refused"].add({"a": 1})
    with pytest.raises(OptionError):
        make_plan(store, b"refused", **options)


def test_a_missing_stream_leaves_no_pin(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store["x"].add({"a": 1})
        with pytest.raises(StreamNotFoundError) as raised:
            make_plan(store, b"x", b"y")
        assert raised.value.stream == b"y"
        assert list((tmp_path / "s" / "pins").iterdir()) == []


def test_a_plan_is_one_moment_of_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit deletes one entry near the front and its partner near the back."""
    length = 2000
    monkeypatch.setattr(listing, "PIECE_NODES", 20)
    with make_store(tmp_path / "s") as store:
        stream = store["x"]
        stream.add_many((((n, 0), {"n": n}) for n in range(1, length + 1)), batch=length)

        def write() -> None:
            for n in range(1, length // 2):
                stream.delete((n, 0), (length + 1 - n, 0))
                stream.add({"n": n})

        writer = threading.Thread(target=write)
        plans = []
        writer.start()
        while writer.is_alive():
            plans.append(make_plan(store, b"x", end=StreamID(length, 0), min_partitions=3))
        writer.join()
        counts = set()
        for made in plans:
            found = {int(id.partition("-")[0]) for id, _ in split_rows(made)}
            assert found == {length + 1 - n for n in found}
            counts.add(len(found))
        assert len(counts) > 3, "the writer did not run beside the planner"


def test_splits_stay_small(tmp_path: Path) -> None:
    """Of a stream with a name of 64 KiB and 20,000 nodes."""
    name = b"n" * 65536
    with make_store(tmp_path / "s", node_max_entries=1) as store:
        store[name].add_many(({"n": n} for n in range(20_000)), batch=5000)
        made = make_plan(store, name, min_partitions=2)
        assert sum(split.nodes for split in made.splits) == 20_000
        for split in made.splits:
            assert len(pickle.dumps(split)) < 1024
            assert pickle.loads(pickle.dumps(split)) == split
        assert len(split_rows(made)) == 20_000


def test_the_pin_names_the_segments_of_the_plan_only(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store["x"].add_many(({"n": "x" * 200} for _ in range(2000)), batch=100)
        made = make_plan(store, b"x", start=ZERO_ID, end=store["x"].first.id)
        pin = pinfile.read(store._engine().fs, tmp_path / "s", made.pin_id)
        assert pin is not None
        assert pin.segments == {1}
        assert len(list((tmp_path / "s" / "log").glob("*.log"))) > 3


def test_entries_added_after_the_plan_are_not_in_it(store: Store[bytes]) -> None:
    stream = store["later"]
    stream.add({"n": 1}, id="1-1")
    made = make_plan(store, b"later")
    stream.add({"n": 2}, id="1-2")
    assert [id for id, _ in split_rows(made)] == ["1-1"]
    assert [id for id, _ in batch_rows(stream.scan())] == ["1-1", "1-2"]
