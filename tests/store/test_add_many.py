"""Prevents bulk adds that hold all rows, run callers' code under a lock, or add half a batch."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from logstore import IDOrderError, IDRuns, InvalidEntryError, InvalidIDError, StreamID
from logstore.api.store import Store, open_store
from logstore.ids import U64_MAX
from tests.store.whole_store import everything, stream_nodes
from tests.support.inside import FixedClock, engine_of
from tests.support.processes import run_program


def test_rows_with_and_without_ids(store: Store[bytes], clock: FixedClock) -> None:
    stream = store.stream("s")
    rows: list[Any] = [
        ("1-1", {"a": 1}),
        (StreamID(1, 2), [("a", 1), ("a", 2)]),
        ((5, 0), {"b": 1}),
    ]
    assert list(stream.add_many(rows)) == [(1, 1), (1, 2), (5, 0)]
    given = stream.add_many(({"n": n} for n in range(7)), batch=3)
    assert list(given) == [(clock.ms, seq) for seq in range(7)]
    assert len(stream) == 10


def test_every_form_of_an_id_in_one_call(store: Store[bytes]) -> None:
    stream = store.stream("s")
    forms: list[Any] = [
        "1-1", b"1-2", StreamID(1, 3), (1, 4), "1-*", "2", "2-*", b"3-*", "3-*", (4_000, 0),
        datetime.fromtimestamp(5, UTC), "5000-*",
    ]  # fmt: skip
    wanted = [
        (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 0), (2, 1), (3, 0), (3, 1), (4_000, 0),
        (5_000, 0), (5_000, 1),
    ]  # fmt: skip
    given = stream.add_many(((id, {"a": 1}) for id in forms), batch=5)
    assert list(given) == wanted == [entry.id for entry in stream]
    with store.transaction() as tx:
        told = tx.stream("s").add_many([("5000-*", {"a": 1}), ((5001, 0), [("a", 2)])])
    assert list(told.result) == [(5_000, 2), (5_001, 0)]
    everything(store)


def test_a_sequence_left_open_follows_the_last_id(store: Store[bytes]) -> None:
    stream = store.stream("s")
    assert list(stream.add_many([("0-*", {"a": 1})])) == [(0, 1)]
    stream.add({"a": 1}, id="7-9")
    with pytest.raises(IDOrderError, match=r"row 1: 6-0 after 7-10"):
        stream.add_many([("7-*", {"a": 1}), ("6-*", {"a": 1})])
    stream.add({"a": 1}, id=(7, U64_MAX))
    with pytest.raises(IDOrderError, match=r"\(7-18446744073709551615\)"):
        stream.add_many([("7-*", {"a": 1})])
    with pytest.raises(InvalidIDError, match="greater than 0-0"):
        store.stream("new").add_many([("0-0", {"a": 1})])
    assert list(stream.add_many([("8-*", {"a": 1})])) == [(8, 0)]


def test_given_ids_into_a_large_open_node(tmp_path: Path) -> None:
    """An open node above 64 KiB takes rows one by one, and what it has no room for all at once."""
    with open_store(tmp_path / "s", node_max_bytes=200_000, node_max_entries=0) as store:
        rows: list[Any] = [((n, 0), {"value": "x" * 5_000}) for n in range(1, 101)]
        rows[60] = ("60-*", rows[60][1])
        given = store.stream("s").add_many(rows, batch=30)
        assert list(given) == [entry.id for entry in store.stream("s")]
        assert (given[59], given[60], given[61]) == ((60, 0), (60, 1), (62, 0))
        for id, fields in rows:
            store.stream("other").add(fields, id=id)
        assert stream_nodes(store, b"s") == stream_nodes(store, b"other")
        everything(store)


def test_a_row_of_two_pairs_is_not_taken_for_an_id(store: Store[bytes]) -> None:
    stream = store.stream("s")
    rows: list[Any] = [(("a", "1"), ("b", "2")), (["a", "1"], ["b", "2"])]
    stream.add_many(rows)
    assert [entry.pairs for entry in stream] == [[(b"a", b"1"), (b"b", b"2")]] * 2


@pytest.mark.parametrize("with_id_first", [True, False])
@pytest.mark.parametrize("batch", [1, 10])
def test_a_mixture_is_refused(store: Store[bytes], with_id_first: bool, batch: int) -> None:
    rows: list[Any] = [("1-1", {"a": 1}), {"a": 1}]
    if not with_id_first:
        rows.reverse()
    with pytest.raises((InvalidEntryError, TypeError)):
        store.stream("s").add_many(rows, batch=batch)
    assert len(store.stream("s")) == (1 if batch == 1 else 0)


def test_one_commit_a_batch(store: Store[bytes]) -> None:
    before = store.metrics()["commits"]
    store.stream("s").add_many(({"n": n} for n in range(25)), batch=10)
    assert store.metrics()["commits"] - before == 3


def test_the_nodes_are_those_of_single_adds(store: Store[bytes]) -> None:
    rows = [((n, 0), {"name": "x" * (n % 7), "n": n}) for n in range(1, 60)]
    store.stream("one").add_many(rows[:3])
    store.stream("one").add_many(rows[3:], batch=17)
    for id, fields in rows:
        store.stream("other").add(fields, id=id)
    assert stream_nodes(store, b"one") == stream_nodes(store, b"other")
    everything(store)


def test_a_generator_may_use_the_store(store: Store[bytes]) -> None:
    def rows() -> Iterator[dict[str, int]]:
        for n in range(6):
            store.stream("log").add({"n": n})
            assert not engine_of(store).lock.held
            with store.transaction() as tx:
                tx.stream("log").add({"tx": n})
            yield {"n": len(store.stream("log"))}

    assert len(store.stream("s").add_many(rows(), batch=2)) == 6
    assert [entry.fields["n"] for entry in store.stream("s")] == [
        b"2",
        b"4",
        b"6",
        b"8",
        b"10",
        b"12",
    ]
    assert len(store.stream("log")) == 12


def test_another_thread_commits_while_a_generator_waits(store: Store[bytes]) -> None:
    inside, done = threading.Event(), threading.Event()

    def rows() -> Iterator[dict[str, int]]:
        yield {"n": 1}
        inside.set()
        assert done.wait(10)
        yield {"n": 2}

    adder = threading.Thread(target=lambda: store.stream("s").add_many(rows(), batch=5))
    adder.start()
    assert inside.wait(10)
    store.stream("other").add({"a": 1})
    assert len(store.stream("s")) == 0
    done.set()
    adder.join(10)
    assert len(store.stream("s")) == 2


def test_a_generator_that_raises_keeps_the_batches_before(store: Store[bytes]) -> None:
    def rows() -> Iterator[dict[str, int]]:
        for n in range(5):
            yield {"n": n}
        raise RuntimeError("the caller's own")

    with pytest.raises(RuntimeError, match="the caller's own"):
        store.stream("s").add_many(rows(), batch=2)
    assert [entry.fields["n"] for entry in store.stream("s")] == [b"0", b"1", b"2", b"3"]
    store.stream("s").add({"n": "after"})


def test_a_refused_row_refuses_its_batch(store: Store[bytes]) -> None:
    rows = [((n, 0), {"n": n}) for n in (1, 2, 3, 4, 4, 5)]
    with pytest.raises(IDOrderError, match=r"row 2: 4-0 after 4-0|row 0: 4-0"):
        store.stream("s").add_many(rows, batch=2)
    assert [entry.id.ms for entry in store.stream("s")] == [1, 2, 3, 4]
    with pytest.raises(IDOrderError, match="row 1"):
        store.stream("s").add_many([((8, 0), {"n": 1}), ((7, 0), {"n": 1})])
    assert store.stream("s").last_id == (4, 0)


def test_memory_holds_one_batch(store: Store[bytes]) -> None:
    def rows() -> Iterator[dict[str, str]]:
        for n in range(40_000):
            yield {"value": f"{n:0100d}"}

    stream = store.stream("s")
    stream.add_many(rows(), batch=500, max_entries=1000)
    tracemalloc.start()
    given = stream.add_many(rows(), batch=500, max_entries=1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(given) == 40_000
    assert peak < 1_500_000, f"{peak} bytes; all rows are 4,000,000"


MANY = """
import sys
import logstore

PEAK = "VmHWM:"

def peak_mib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(PEAK))

def rows(first, count):
    for n in range(first, first + count):
        id = (1_700_000_000_000 + 37 * n, n % 3)
        yield {"n": "1"} if sys.argv[2] == "without" else (id, {"n": "1"})

with logstore.open(sys.argv[1], sync="os") as store:
    stream = store.stream("s")
    stream.add_many(rows(0, 20_000), max_entries=1000)
    before = peak_mib()
    given = stream.add_many(rows(20_000, 600_000), max_entries=1000)
    print(len(given), peak_mib() - before)
"""


@pytest.mark.parametrize("ids", ["with", "without"])
def test_memory_does_not_hold_the_ids(tmp_path: Path, ids: str) -> None:
    """Prevents 108 bytes for each ID that was given: they are told again, four bytes each."""
    done = run_program(MANY, tmp_path / "s", ids)
    count, grown_mib = done.stdout.split()
    assert int(count) == 600_000
    assert float(grown_mib) < 16, f"{grown_mib} MiB more after 600,000 rows"


def test_automatic_ids_carry_within_a_batch(store: Store[bytes]) -> None:
    stream = store.stream("s")
    future = 1 << 60
    stream.add({"a": 1}, id=(future, U64_MAX - 1))
    given = stream.add_many([{"n": n} for n in range(3)])
    assert list(given) == [(future, U64_MAX), (future + 1, 0), (future + 1, 1)]
    assert [entry.id for entry in stream.range(f"({future}-{U64_MAX - 1}")] == list(given)


def test_automatic_ids_past_the_end_refuse_the_batch(store: Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add({"a": 1}, id=(U64_MAX, U64_MAX - 2))
    with pytest.raises(IDOrderError, match="exhausted"):
        stream.add_many([{"n": n} for n in range(3)])
    assert len(stream) == 1
    assert list(stream.add_many([{"n": n} for n in range(2)])) == [
        (U64_MAX, U64_MAX - 1), (U64_MAX, U64_MAX),
    ]  # fmt: skip


def test_each_batch_is_trimmed_in_its_own_commit(store: Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add_many(({"n": n} for n in range(100)), batch=30, max_entries=7, approximate=False)
    assert [entry.fields["n"] for entry in stream] == [b"%d" % n for n in range(93, 100)]
    everything(store)


def test_nothing_to_add(store: Store[bytes]) -> None:
    given = store.stream("s").add_many([])
    assert (len(given), given.first, given.last, list(given)) == (0, None, None, [])
    assert store.streams() == []


def test_runs_of_ids_are_a_sequence() -> None:
    runs = IDRuns()
    runs.add(StreamID(5, U64_MAX - 1), 3)
    runs.add(StreamID(9, 0))
    runs.add(StreamID(9, 1), 2)
    expected = [(5, U64_MAX - 1), (5, U64_MAX), (6, 0), (9, 0), (9, 1), (9, 2)]
    assert list(runs) == expected
    assert [runs[place] for place in range(-6, 6)] == expected * 2
    assert (runs.first, runs.last, len(runs)) == (expected[0], expected[-1], 6)
    assert list(runs[1:3]) == expected[1:3]
    assert (9, 1) in runs
    with pytest.raises(IndexError):
        _ = runs[6]


def test_full_nodes_are_read_in_the_commit_that_wrote_them(store: Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add({"n": -1}, id="1-0")
    with store.transaction() as tx:
        tx.stream("s").add_many([((2, n), {"n": n}) for n in range(1000)])
        tx.stream("s").delete((2, 250), (2, 555))
        tx.stream("s").trim(max_entries=850, approximate=False)
    kept = [n for n in range(1000) if n not in (250, 555)][-850:]
    assert [int(entry[b"n"]) for entry in stream] == kept
    assert len(stream_nodes(store, b"s")) > 5
    everything(store)
