"""Prevents ranges that skip or repeat entries, read more than is asked for, or hold a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logstore import InvalidIDError, OptionError, StreamID
from logstore.api.store import Store
from logstore.api.stream import Stream
from logstore.engine.runtime.engine import Engine
from logstore.engine.streams import read
from logstore.ids import MAX_ID
from tests.support.inside import engine_of, roll


def filled(store: Store[bytes], count: int = 1000, name: str = "s") -> Stream[bytes]:
    """A stream of entries 1-1, 2-1, .."""
    stream = store.stream(name)
    stream.add_many(((ms, 1), {"n": ms}) for ms in range(1, count + 1))
    return stream


def numbers(entries: Any) -> list[int]:
    """The milliseconds of the IDs."""
    return [entry.id.ms for entry in entries]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [None, 0, 1, 5, 6, 319, 320, 321, 999, 1000, 5000])
def test_a_count_cuts_at_any_border(store: Store[bytes], count: int | None, reverse: bool) -> None:
    """Nodes hold 5 entries, a batch 64 nodes."""
    stream = filled(store)
    expected = list(range(1, 1001))[:: -1 if reverse else 1][:count]
    assert numbers(stream.range(count=count, reverse=reverse)) == expected


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.integers(-2, 103), end=st.integers(-2, 103), low=st.booleans(), high=st.booleans(),
    reverse=st.booleans(), seq=st.sampled_from([0, 1, 2]),
)  # fmt: skip
def test_ends_are_included_or_not(
    store: Store[bytes], start: int, end: int, low: bool, high: bool, reverse: bool, seq: int
) -> None:
    stream = store.stream("s")
    if not len(stream):
        filled(store, 100)
    start, end = max(0, start), max(1, end)
    expected = [
        ms
        for ms in range(1, 101)
        if ((ms, 1) > (start, seq) if low else (ms, 1) >= (start, seq))
        and ((ms, 1) < (end, seq) if high else (ms, 1) <= (end, seq))
    ]
    first, last = f"{'(' * low}{start}-{seq}", f"{'(' * high}{end}-{seq}"
    if start > end:
        with pytest.raises(OptionError, match="is above end"):
            stream.range(first, last, reverse=reverse)
        return
    given = stream.range(first, last, reverse=reverse)
    assert numbers(given) == expected[:: -1 if reverse else 1]


def test_all_forms_of_ends(store: Store[bytes]) -> None:
    stream = filled(store, 10)
    ends: list[Any] = [
        ("3", "5"),
        ((3, 0), (5, 9)),
        (StreamID(3, 1), "(5-2"),
        (b"3", b"5-1"),
    ]
    for start, end in ends:
        assert numbers(stream.range(start, end)) == [3, 4, 5]
    assert numbers(stream.range("(5-1", "5-1")) == numbers(stream.range("11", "12")) == []
    assert numbers(stream) == numbers(stream.range("-", "+")) == list(range(1, 11))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_range_reads_a_batch_at_a_time(
    store: Store[bytes], reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = filled(store)
    reads: list[int] = []
    real = read.read_batch

    def counted(engine: Engine, *args: Any, **options: Any) -> read.Batch:
        reads.append(engine.segments.body_reads)
        return real(engine, *args, **options)

    monkeypatch.setattr(read, "read_batch", counted)
    entries = stream.range(reverse=reverse)
    assert reads == []
    next(entries)
    assert len(reads) == 1
    assert engine_of(store).segments.body_reads - reads[0] <= read.NODES_MAX
    list(entries)
    assert len(reads) == 4  # 200 nodes


def test_no_snapshot_is_held_between_entries(store: Store[bytes]) -> None:
    stream = filled(store)
    env = engine_of(store).index().env
    entries = stream.range()
    for _ in range(400):
        next(entries)
        assert all(line.split()[-1] == "-" for line in env.readers().splitlines()[1:]), (
            env.readers()
        )


def change_ahead(stream: Stream[bytes]) -> None:
    stream.delete_range("500", "600")
    stream.add({"n": 1}, id="2000-0")


def trim_behind(stream: Stream[bytes]) -> None:
    stream.trim(max_entries=600, approximate=False)
    stream.delete("700-1")


def drop(stream: Stream[bytes]) -> None:
    Store(stream._opened).drop(stream.name)


def start_anew(stream: Stream[bytes]) -> None:
    store = Store(stream._opened)
    store.drop(stream.name)
    filled(store, 500)


def seal(stream: Stream[bytes]) -> None:
    roll(Store(stream._opened))


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (change_ahead, [*range(321, 500), *range(601, 1001), 2000]),
        (trim_behind, [*range(401, 700), *range(701, 1001)]),
        (drop, []),
        (start_anew, list(range(321, 501))),
        (seal, list(range(321, 1001))),
    ],
)
def test_a_range_sees_changes_from_its_next_batch_on(
    store: Store[bytes], change: Callable[[Stream[bytes]], None], left: list[int]
) -> None:
    stream = filled(store)
    entries = stream.range()
    seen = [next(entries).id.ms for _ in range(100)]
    change(stream)
    seen += numbers(entries)
    assert seen == [*range(1, 321), *left]


def test_backwards_the_same(store: Store[bytes]) -> None:
    stream = filled(store)
    entries = stream.range(reverse=True)
    seen = [next(entries).id.ms for _ in range(10)]
    stream.delete_range("500", "600")
    stream.add({"n": 1}, id="2000-0")
    stream.trim(max_entries=500, approximate=False)
    seen += numbers(entries)
    assert seen[:320] == list(range(1000, 680, -1))
    assert seen[320:] == [*range(680, 600, -1), *range(499, 400, -1)]


def test_nodes_without_live_entries_are_passed_over(store: Store[bytes]) -> None:
    stream = filled(store, 400)
    for ms in range(1, 400, 5):
        stream.delete((ms, 1), (ms + 1, 1), (ms + 2, 1), (ms + 3, 1))
    assert numbers(stream.range()) == list(range(5, 401, 5))
    assert numbers(stream.range(reverse=True)) == list(range(400, 0, -5))
    assert (numbers([stream.first, stream.last])) == [5, 400]


def test_large_entries_end_a_batch(store: Store[bytes]) -> None:
    stream = store.stream("s")
    for ms in range(1, 9):
        stream.add({"v": b"x" * 400_000}, id=(ms, 0))
    for reverse in (False, True):
        entries = stream.range(reverse=reverse)
        next(entries)
        stream.add({"n": 1})
        list(entries)
    assert numbers(stream.range())[:8] == list(range(1, 9))


def test_the_last_possible_ids(store: Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add_many([("1-0", {"a": 1}), (MAX_ID.previous(), {"a": 1}), (MAX_ID, {"a": 1})])
    assert [entry.id for entry in stream.range("2")] == [MAX_ID.previous(), MAX_ID]
    assert [entry.id for entry in stream.range(MAX_ID, "+")] == [MAX_ID]
    assert [entry.id for entry in stream.range(end=f"({MAX_ID}", reverse=True, count=1)] == [
        MAX_ID.previous()
    ]


def test_get_finds_exactly_one(store: Store[bytes]) -> None:
    stream = filled(store, 23)
    stream.delete("7-1")
    for ms in range(25):
        entry = stream.get((ms, 1))
        assert (entry is not None) == (1 <= ms <= 23 and ms != 7) == ((ms, 1) in stream)
        assert entry is None or (entry.id, entry.pairs) == ((ms, 1), [(b"n", b"%d" % ms)])
    assert stream.get("5") is None  # 5-0
    assert stream["23-1"].fields["n"] == b"23"
    with pytest.raises(KeyError, match="7-1"):
        _ = stream["7-1"]
    assert store.stream("none").get("1-1") is None
    with pytest.raises(InvalidIDError):
        stream.get("-")


@pytest.mark.parametrize("count", [-1, "5", True, 1.5])
def test_a_wrong_count_is_refused_at_once(store: Store[bytes], count: Any) -> None:
    with pytest.raises(OptionError, match="count"):
        store.stream("s").range(count=count)
