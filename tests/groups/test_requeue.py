"""Prevents a dead letter that is lost, doubled, or changed on its way back."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import logstore
import logstore.aio
from logstore.errors import EntryNotFoundError, OptionError, StreamNotFoundError
from tests.engine.procs import Forked
from tests.groups.shop import shop
from tests.support.inside import delete_index


def die(store: Any, count: int, stream: str = "jobs") -> list[str]:
    """So many entries of a stream become dead letters; their IDs there."""
    jobs = store.stream(stream)
    jobs.add_many({"n": str(n), "origin_error": "the user's own"} for n in range(count))
    group = jobs.group("workers", start="0")
    group.configure(max_deliveries=1, dead_letter="dead")
    for delivery in group.read("anna", count=count):
        delivery.nack(error="no")
    return [str(entry.id) for entry in store.stream("dead")]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """A store of text."""
    with logstore.open(tmp_path / "store", encoding="utf-8") as opened:
        yield opened


def test_they_come_back_as_they_were(store: Any) -> None:
    dead = die(store, 5)
    new = store.requeue("dead", dead[3], dead[1], dead[3])
    assert [store.stream("jobs").get(id).pairs for id in new] == [
        [("n", str(n)), ("origin_error", "the user's own")] for n in (3, 1)
    ]
    assert [str(entry.id) for entry in store.stream("dead")] == [dead[0], dead[2], dead[4]]
    # Each is delivered again, and dies again if it fails again.
    (first, second) = store.stream("jobs").group("workers").read("bob")
    assert [first.id, second.id] == new
    first.nack(error="again")
    assert store.stream("dead").last["origin_id"] == str(first.id)


def test_all_of_them_in_several_commits_to_several_streams(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.api.dead_letters.REQUEUED_MAX", 3)
    die(store, 4, "a")
    die(store, 4, "b")
    assert len(store.requeue("dead")) == 8
    assert len(store.stream("dead")) == 0
    assert [len(store.stream(name)) for name in ("a", "b")] == [8, 8]
    assert store.requeue("dead") == []


def test_to_a_stream_of_ones_own(store: Any) -> None:
    dead = die(store, 2)
    store.requeue("dead", dead[1], to="")  # a name as any other
    assert len(store.stream("")) == 1
    store.requeue("dead", dead[0], to="looked at")
    (entry,) = store.stream("looked at")
    assert entry["n"] == "0"
    other = store.stream("dead").add({"a": "1"})  # no dead letter at all
    store.requeue("dead", other, to="looked at")
    assert store.stream("looked at").last.pairs == [("a", "1")]


def test_what_cannot_be_changes_nothing(store: Any) -> None:
    dead = die(store, 2)
    stranger = store.stream("dead").add({"a": "1"})
    before = store.stream("dead").info(), store.stream("jobs").info()
    for ids, error in (
        ((dead[0], "1-1"), EntryNotFoundError),
        ((dead[0], stranger), OptionError),
        ((), OptionError),
        ((dead[0], "x"), logstore.InvalidIDError),
    ):
        with pytest.raises(error):
            store.requeue("dead", *ids)
        assert (store.stream("dead").info(), store.stream("jobs").info()) == before
    with pytest.raises(OptionError, match=r"no dead letter: .*stream 'dead'"):
        store.requeue("dead", stranger)
    with pytest.raises(StreamNotFoundError):
        store.requeue("absent")
    with pytest.raises(StreamNotFoundError):
        store.requeue("absent", "1-1")


def test_of_two_who_ask_one_gets_it(store: Any) -> None:
    dead = die(store, 20)
    outcomes: list[str] = []

    def ask() -> None:
        for id in dead:
            try:
                store.requeue("dead", id)
                outcomes.append("moved")
            except EntryNotFoundError:
                outcomes.append("gone")

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outcomes.count("moved"), outcomes.count("gone")) == (20, 40)
    assert len(store.stream("jobs")) == 40


def test_it_survives_a_kill_and_the_loss_of_the_index(tmp_path: Path) -> None:
    path = tmp_path / "store"

    def work() -> None:
        store = logstore.open(path, encoding="utf-8", background=False)
        store.requeue("dead", *die(store, 10)[:4])

    with Forked(work):
        pass  # it ends without closing
    delete_index(path)
    with logstore.open(path, encoding="utf-8") as store:
        assert [len(store.stream(name)) for name in ("jobs", "dead")] == [14, 6]


def test_the_asyncio_face(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", encoding="utf-8") as plain:
        dead = die(plain, 3)

    async def work() -> int:
        async with logstore.aio.open(tmp_path / "store", encoding="utf-8") as store:
            assert len(await store.requeue("dead", dead[0])) == 1
            assert len(await store.requeue("dead")) == 2
            return await store.stream("jobs").len()

    assert asyncio.run(work()) == 6


def test_a_dead_letter_stream_that_was_renamed_to_its_origin(tmp_path: Path) -> None:
    """What goes back to the stream where it is stands behind itself, once."""
    with shop(tmp_path, 1) as (store, group, _):
        group.configure(max_deliveries=1, dead_letter="dead")
        (delivery,) = group.read("a")
        name = group.stream.name
        delivery.nack(error="no")
        store.drop(name)
        store.rename("dead", name)
        (old,) = store.stream(name)
        (new,) = store.requeue(name, old.id)
        assert [entry.id for entry in store.stream(name)] == [new]
