"""Prevents an add that gives a wrong ID, ignores an option, or leaves something when it refuses."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import logstore
import logstore.aio
from logstore import IDOrderError, InvalidIDError, LastIDConflictError, StreamID
from logstore.api.store import Store
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import add
from logstore.ids import MAX_ID, U64_MAX
from tests.store.conftest import OpenStore
from tests.store.whole_store import everything
from tests.support.inside import FixedClock
from tests.support.threads import run_all


def test_automatic_ids_follow_the_clock_and_never_go_back(
    store: Store[bytes], clock: FixedClock
) -> None:
    stream = store.stream("s")
    now = clock.ms
    assert stream.add({"a": 1}) == (now, 0)
    assert stream.add({"a": 1}) == (now, 1)
    clock.ms = now - 5000
    assert stream.add({"a": 1}) == (now, 2)
    clock.ms = now + 1
    assert stream.add({"a": 1}, id=b"*") == (now + 1, 0)
    assert isinstance(stream.last_id, StreamID)


def test_an_automatic_sequence_within_given_milliseconds(store: Store[bytes]) -> None:
    stream = store.stream("s")
    assert stream.add({"a": 1}, id="0-*") == (0, 1)
    assert stream.add({"a": 1}, id="5-*") == (5, 0)
    assert stream.add({"a": 1}, id=b"5-*") == (5, 1)
    with pytest.raises(IDOrderError, match="equal or smaller"):
        stream.add({"a": 1}, id="4-*")
    stream.add({"a": 1}, id=(5, U64_MAX))
    with pytest.raises(IDOrderError, match="equal or smaller"):  # it never carries
        stream.add({"a": 1}, id="5-*")


def test_an_automatic_id_carries_into_the_milliseconds(store: Store[bytes]) -> None:
    stream = store.stream("s")
    future = 1 << 60
    stream.add({"a": 1}, id=(future, U64_MAX))
    assert stream.add({"a": 1}) == (future + 1, 0)


def test_the_last_possible_id_ends_the_stream(store: Store[bytes]) -> None:
    stream = store.stream("s")
    assert stream.add({"a": 1}, id=MAX_ID) == MAX_ID
    for form in ("*", f"{U64_MAX}-*", "5", MAX_ID):
        with pytest.raises(IDOrderError, match="exhausted"):
            stream.add({"a": 1}, id=form)
    assert [entry.id for entry in stream] == [MAX_ID]
    assert [entry.id for entry in stream.range(reverse=True)] == [MAX_ID]
    assert stream.read("0") == list(stream)
    assert stream.read(MAX_ID) == []


def test_every_form_of_an_explicit_id(store: Store[bytes]) -> None:
    stream = store.stream("s")
    moment = datetime(2024, 5, 1, tzinfo=UTC)
    given = [stream.add({"a": 1}, id=id) for id in ("1", "1-1", b"2-1", (3, 0), moment)]
    assert [str(id) for id in given] == ["1-0", "1-1", "2-1", "3-0", "1714521600000-0"]


def test_a_deleted_id_is_not_given_again(store: Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add({"a": 1}, id="5-5")
    stream.delete("5-5")
    for form in ("5-5", "5-4", "4-*"):
        with pytest.raises(IDOrderError):
            stream.add({"a": 1}, id=form)
    assert stream.add({"a": 1}, id="5-*") == (5, 6)


def test_zero_is_refused_and_creates_nothing(store: Store[bytes]) -> None:
    for form in ("0-0", "0", (0, 0)):
        with pytest.raises(InvalidIDError, match="must be greater than 0-0"):
            store.stream("s").add({"a": 1}, id=form)
    with pytest.raises(InvalidIDError, match="must be greater than 0-0"):
        store.stream("s").add_many([("0-0", {"a": 1})])
    assert store.streams() == []


def test_without_create_a_missing_stream_stays_missing(store: Store[bytes]) -> None:
    assert store.stream("s").add({"a": 1}, create=False) is None
    assert len(store.stream("s").add_many([{"a": 1}], create=False)) == 0
    assert store.streams() == []
    store.create("s")
    assert store.stream("s").add({"a": 1}, id="1-0", create=False) == (1, 0)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"max_entries": 3, "approximate": False}, [8, 9, 10]),
        ({"max_entries": 3}, [6, 7, 8, 9, 10]),
        ({"max_entries": 0, "approximate": False}, []),
        ({"min_id": "9", "approximate": False}, [9, 10]),
        ({"min_id": (9, 0)}, [6, 7, 8, 9, 10]),
        ({"max_entries": 0, "approximate": True, "limit": 4}, [*range(1, 11)]),
    ],
)
def test_an_add_trims_behind_itself(
    store: Store[bytes], options: dict[str, Any], left: list[int]
) -> None:
    stream = store.stream("s")
    for ms in range(1, 10):
        stream.add({"n": ms}, id=(ms, 0))
    assert stream.add({"n": 10}, id="10-0", **options) == (10, 0)
    assert [entry.id.ms for entry in stream] == left
    assert stream.last_id == (10, 0)
    everything(store)


def test_maxlen_zero_leaves_an_empty_stream(store: Store[bytes]) -> None:
    stream = store.stream("s")
    assert stream.add({"a": 1}, id="1-1", max_entries=0, approximate=False) == (1, 1)
    assert (len(stream), "s" in store, stream.last_id, stream.first) == (0, True, (1, 1), None)


class Ticking:
    """A clock that goes one millisecond with each third look, and back once."""

    def __init__(self) -> None:
        self.looks = 0

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        self.looks += 1
        return 1_700_000_000_000 + (self.looks // 3 if self.looks % 50 else 0)


def workload(path: Path, seed: int, **limits: int) -> tuple[list[bytes], list[tuple[bytes, ...]]]:
    """The frames and the index rows after some hundred adds, deletes and trims."""
    rnd = random.Random(seed)
    with logstore.open(path, clock=Ticking(), background=False, **limits) as store:
        for _ in range(400):
            stream = store.stream(rnd.choice(["a", "b"]))
            what = rnd.random()
            if what < 0.85:
                size = rnd.choice([0, 3, 60, 60, 900, 5000])
                fields = [(rnd.choice("xy"), "v" * rnd.randrange(size + 1))] * rnd.randrange(1, 3)
                stream.add(fields, max_entries=rnd.choice([None, None, None, 40]))
            elif what < 0.95:
                found = stream.last_id if stream.name in store else None
                if found is not None:
                    stream.delete(found)
            else:
                stream.trim(max_entries=rnd.randrange(3), approximate=False)

        def rows(view: Snapshot) -> list[tuple[bytes, ...]]:
            txn = view.index.txn
            databases = (view.index.generation.main, view.index.generation.nodes)
            return [(key, bytes(value)) for each in databases for key, value in txn.cursor(db=each)
                    if key[:1] < b"\x20"]  # fmt: skip

        found_rows = snapshot.read(store._engine(), rows)
    return [segment.read_bytes()[64:] for segment in sorted(path.glob("log/*.log"))], found_rows


@pytest.mark.parametrize("limits", [{}, {"node_max_bytes": 0, "node_max_entries": 0},
                                    {"node_max_entries": 3}, {"node_max_bytes": 300}])  # fmt: skip
def test_short_and_long_way_write_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    monkeypatch.setattr("logstore.log.storefile.new_uuid", lambda: bytes(16))
    taken: list[bool] = []
    short = add._add_one

    def counted(*arguments: object) -> bool:
        taken.append(short(*arguments))  # type: ignore[arg-type]
        return taken[-1]

    monkeypatch.setattr(add, "_add_one", counted)
    one = workload(tmp_path / "short", 7, **limits)
    monkeypatch.setattr(add, "_add_one", lambda *_: False)
    other = workload(tmp_path / "long", 7, **limits)
    assert one == other
    assert taken.count(True) > 100, "the short way was hardly taken"


def commits(store: Store[Any]) -> int:
    """How many commits there were."""
    return int(store.metrics()["commits"])


def test_an_add_counts_only_if_the_last_id_is_what_the_caller_saw(store: Store[bytes]) -> None:
    stream = store["s"]
    stream.add({"n": 1}, "5-0", expected_last_id="0-0")
    stream.add({"n": 2}, "6-0", expected_last_id="5-0")
    stream.delete("6-0")  # the last ID stays
    before = commits(store)
    for expected, told in (("5-0", "were added since"), ("7-0", "is of another stream")):
        with pytest.raises(LastIDConflictError, match=told) as caught:
            stream.add({"n": 3}, expected_last_id=expected)
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.stream, error.actual) == (b"s", (6, 0))
        assert error.expected == logstore.StreamID(int(expected[0]), 0)
    assert commits(store) == before
    with pytest.raises(IDOrderError):
        stream.add({"n": 3}, "6-0", expected_last_id="6-0")
    assert stream.add({"n": 3}, expected_last_id=stream.last_id) > (6, 0)
    assert [entry.fields["n"] for entry in stream] == [b"1", b"3"]


def add_to_two(store: Store[bytes], expected: Any) -> None:
    """A transaction that adds to t, and expects a last ID of s."""
    with store.transaction() as tx:
        tx.stream("t").add({"n": 1})
        tx.stream("s").add_many(({"n": n} for n in range(1500)), expected_last_id=expected)


@pytest.mark.parametrize("expected", ["*", "$", "+", "", "1-*", -1, 1.5, [None]], ids=repr)
def test_an_invalid_id_is_refused_before_anything_changes(
    store: Store[bytes], expected: Any
) -> None:
    before = commits(store)
    for call in (store["s"].add, store.stream("t", codec="json").add):
        with pytest.raises(InvalidIDError):
            call({"n": 1}, expected_last_id=expected)
    with pytest.raises(InvalidIDError):
        store["s"].add_many([{"n": 1}], expected_last_id=expected)
    with store.transaction() as tx:
        stream = tx.stream("s")
        with pytest.raises(InvalidIDError):
            stream.add({"n": 1}, expected_last_id=expected)
        with pytest.raises(InvalidIDError):
            stream.add_many([{"n": 1}], expected_last_id=expected)
    assert (commits(store), list(store.streams())) == (before, [])


@pytest.mark.parametrize("codec", [None, "json"])
def test_a_stream_that_is_not_there_has_the_last_id_zero(store: Store[bytes], codec: Any) -> None:
    stream = store.stream("s", codec=codec) if codec else store["s"]
    for create in (True, False):
        for options in ({}, {"producer": "p"}):
            with pytest.raises(LastIDConflictError):
                stream.add({"n": 1}, create=create, expected_last_id="1-0", **options)
            with pytest.raises(LastIDConflictError):
                stream.add_many([{"n": 1}], create=create, expected_last_id="1-0", **options)
    assert stream.add({"n": 1}, create=False, expected_last_id="0") is None
    assert list(store.streams()) == []
    first = stream.add({"n": 1}, expected_last_id="0")
    store.drop("s")
    with pytest.raises(LastIDConflictError):
        stream.add({"n": 1}, expected_last_id=first)
    assert stream.add({"n": 1}, expected_last_id="0") is not None


def test_batches_follow_each_other_and_nobody_comes_between(store: Store[bytes]) -> None:
    stream = store["s"]
    given = stream.add_many([{"n": n} for n in range(12)], batch=5, expected_last_id="0")
    assert len(given) == 12
    stream.add_many(
        [(f"{2**41 + n}-0", {"n": n}) for n in range(12)], batch=5, expected_last_id=given[-1]
    )
    assert len(stream) == 24

    def rows() -> Iterator[dict[str, int]]:
        for number in range(10):
            if number == 7:
                stream.add({"other": 1})
            yield {"n": number}

    for options, kept in (({}, 5), ({"producer": "p"}, 5)):
        before, length = stream.last_id, len(stream)
        with pytest.raises(LastIDConflictError):
            stream.add_many(rows(), batch=5, expected_last_id=before, **options)
        assert len(stream) == length + kept + 1


def test_a_repeated_producer_add_is_no_conflict(store: Store[bytes]) -> None:
    stream = store["s"]
    named = [(f"id-{n}", {"n": n}) for n in range(8)]
    first = stream.add({"n": 0}, producer="p", idempotent_id="id-0", expected_last_id="0")
    assert first == stream.add({"n": 0}, producer="p", idempotent_id="id-0", expected_last_id="0")
    with pytest.raises(LastIDConflictError):
        stream.add({"n": 1}, producer="p", idempotent_id="id-1", expected_last_id="0")
    # The first batch came through, its answer did not; the whole call is made again.
    ids = list(stream.add_many(named[1:5], batch=4, producer="p", expected_last_id=first))
    again = stream.add_many(named[1:], batch=4, producer="p", expected_last_id=first)
    assert list(again)[:4] == ids
    assert [entry.fields["n"] for entry in stream] == [b"%d" % n for n in range(8)]
    with pytest.raises(LastIDConflictError):  # one of the rows is new
        stream.add_many([*named, ("id-9", {"n": 9})], producer="p", expected_last_id=first)
    assert len(stream) == 8


def test_in_a_transaction_it_is_what_the_steps_before_leave(store: Store[bytes]) -> None:
    stream = store["s"]
    with store.transaction() as tx:
        tx.stream("s").add({"n": 0}, "1-0", expected_last_id="0")
        tx.stream("s").add_many([("2-0", {"n": 1}), ("3-0", {"n": 2})], expected_last_id="1-0")
        tx.stream("s").add_many([("x", {"n": 3})], producer="p", expected_last_id="3-0")
    last = stream.last_id
    before = commits(store)
    for expected in ("3-0", "0"):
        with pytest.raises(LastIDConflictError) as caught:
            add_to_two(store, expected)
        assert (caught.value.stream, caught.value.actual) == (b"s", last)
    assert (commits(store), len(stream), "t" in store) == (before, 4, False)
    with store.transaction() as tx:
        many = tx.stream("s").add_many(({"n": n} for n in range(1500)), expected_last_id=last)
    assert len(many.result) == 1500


def test_one_of_concurrent_conditional_adds_wins(tmp_path: Path, open_store: OpenStore) -> None:
    """Each adds one to the newest number: none is lost, and none is there twice."""
    stores = [open_store(background=False) for _ in range(3)]

    def count(stream: Any) -> None:
        done = 0
        while done < 20:
            last = stream.last
            seen, number = ("0", 0) if last is None else (last.id, int(last["n"]))
            try:
                stream.add({"n": number + 1}, expected_last_id=seen)
            except LastIDConflictError:
                continue
            done += 1

    threads = [Thread(target=count, args=(each["s"],)) for each in stores]
    run_all(threads)
    assert [int(entry["n"]) for entry in stores[0]["s"]] == list(range(1, 61))


def test_the_asyncio_face_expects_the_same(tmp_path: Path) -> None:
    async def rows() -> Any:
        for number in range(7):
            yield {"n": number}

    async def main() -> None:
        async with logstore.aio.open(tmp_path / "store", sync="os", background=False) as store:
            stream = store["s"]
            first = await stream.add({"n": 1}, expected_last_id="0")
            given = await stream.add_many(rows(), batch=3, expected_last_id=first)
            with pytest.raises(LastIDConflictError):
                await stream.add({"n": 1}, expected_last_id=first)
            with pytest.raises(LastIDConflictError):
                await stream.add_many(rows(), batch=3, expected_last_id=first)
            assert (await stream.len(), await stream.last_id()) == (8, given[-1])

    asyncio.run(main())
