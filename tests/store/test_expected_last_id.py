"""Prevents an add by who did not see the newest entry, and one that is refused by mistake."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import logstore
import logstore.aio
from logstore import IDOrderError, InvalidIDError, LastIDConflictError
from logstore.api.store import Store
from tests.store.conftest import OpenStore


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
def test_what_is_no_id_is_refused_before_anything_changes(
    store: Store[bytes], expected: Any
) -> None:
    before = commits(store)
    for add in (store["s"].add, store.stream("t", codec="json").add):
        with pytest.raises(InvalidIDError):
            add({"n": 1}, expected_last_id=expected)
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


def test_what_a_producer_repeats_is_no_conflict(store: Store[bytes]) -> None:
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


def test_of_many_who_saw_the_same_one_adds(tmp_path: Path, open_store: OpenStore) -> None:
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
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
