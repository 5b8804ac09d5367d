"""Prevents streams that are seen behind their time, dropped before it, or that lose what is theirs
with their name."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import aio
from logstore.engine.features import due_entries
from logstore.engine.streams import lifecycle
from logstore.errors import (
    GroupNotFoundError,
    OptionError,
    StreamExistsError,
    StreamNotFoundError,
    UsageError,
)
from logstore.recovery import compare
from logstore.recovery.check import check
from logstore.redis import Redis
from tests.scan.scanned_stores import make_plan, split_rows
from tests.schedules.due import opened, values
from tests.support.inside import START_MS, FixedClock, delete_index, do_due_work
from tests.support.waits import eventually


def fill(store: logstore.Store[Any], name: str, *texts: str) -> logstore.Stream[Any]:
    """A stream with these entries, one field ``n`` each."""
    stream = store.stream(name)
    for text in texts:
        stream.add({"n": text})
    return stream


# -- expiring -------------------------------------------------------------------------------------
def test_from_its_time_on_it_is_nowhere(tmp_path: Path) -> None:
    """Also while nobody has dropped it yet; and dropping it changes nothing that is seen."""
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        stream, other = fill(store, "a", "1", "2"), fill(store, "b", "3")
        group = stream.group("g", start="0")
        assert stream.expire(after=5)
        assert stream.expires_in == timedelta(seconds=5)
        assert stream.expires_at == datetime.fromtimestamp((START_MS + 5000) / 1000, UTC)
        assert stream.info().expires_at == stream.expires_at
        clock.ms += 4999
        do_due_work(store)
        assert values(stream) == ["1", "2"]
        clock.ms += 1
        for dropped in (False, True):
            if dropped:
                do_due_work(store)
                assert store.metrics()["expired_streams"] == 1
            assert values(stream) == []
            assert len(stream) == 0
            assert stream.first is None
            assert "a" not in store
            assert store.streams() == ["b"]
            assert store.info().streams == 1
            assert str(stream.last_id) == "0-0"
            assert stream.expires_in is None
            assert stream.expires_at is None
            assert not group.exists()
            assert stream.read("0") == []
            assert list(stream.scan()) == []
            with pytest.raises(StreamNotFoundError):
                stream.info()
            with pytest.raises(StreamNotFoundError):
                stream.dump()
            with pytest.raises(StreamNotFoundError):
                make_plan(store, b"a")
            with pytest.raises(GroupNotFoundError):
                group.read("c")
            for refused in (store.drop("a"), stream.persist(), stream.expire(after=1)):
                assert not refused
            assert stream.delete("1-1") == stream.trim(max_entries=0, approximate=False) == 0
        assert values(other) == ["3"]
    assert check(tmp_path / "s").index == compare.AGREES


@pytest.mark.parametrize("background", [False, True])
def test_adding_to_it_makes_a_new_stream(tmp_path: Path, background: bool) -> None:
    """With nothing of the old one: no ID, group, setting, schedule or time."""
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        stream = fill(store, "a", "1")
        stream.group("g", start="0").read("c")
        stream.configure(max_entries=7)
        stream.schedule({"n": "later"}, after=9)
        stream.add({"n": "p"}, producer="p", idempotent_id="1")
        assert stream.expire(after=5)
        clock.ms += 5000
        if background:
            do_due_work(store)
        stream.add({"n": "new"}, id="1-1")
        assert values(stream) == ["new"]
        assert stream.expires_at is None
        assert stream.groups() == []
        assert stream.settings.max_entries is None
        assert list(stream.scheduled()) == []
        stream.add({"n": "p"}, producer="p", idempotent_id="1")
        assert values(stream) == ["new", "p"]
        clock.ms += 9000
        do_due_work(store)
        assert values(stream) == ["new", "p"]
    assert check(tmp_path / "s").index == compare.AGREES
    delete_index(tmp_path / "s")
    with opened(tmp_path / "s", clock) as store:
        assert values(store.stream("a")) == ["new", "p"]


def test_scheduled_entries_go_with_an_expired_stream(tmp_path: Path) -> None:
    """An entry that is due when its stream has expired must not make a stream of that name."""
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        stream, other = fill(store, "a", "1"), store.stream("b")
        for number in range(50):
            stream.schedule({"n": str(number)}, after=3)
        other.schedule({"n": "due"}, after=3)
        stream.expire(after=4)
        clock.ms += 10_000
        shared = store._live()
        assert shared.committer.run(due_entries.add_due) == 1  # before it was dropped
        assert "a" not in store
        do_due_work(store)
        assert store.streams() == ["b"]
        assert values(other) == ["due"]
        assert store.info().scheduled == 0
        assert store._engine().wake.next_due_ms == 0


def test_conditions_and_past_times(tmp_path: Path) -> None:
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        stream = fill(store, "a", "1")
        assert not stream.persist()
        assert not stream.expire(after=5, only="already")
        assert not stream.expire(after=5, only="later")
        assert stream.expire(after=5, only="sooner")
        assert not stream.expire(after=5, only="never")
        assert not stream.expire(after=5, only="sooner")
        assert not stream.expire(after=5, only="later")
        assert stream.expire(after=6, only="later")
        assert stream.expire(after=7, only="already")
        assert stream.persist()
        assert stream.expire(after=8, only="never")
        assert stream.expires_in == timedelta(seconds=8)
        assert stream.expire(at=START_MS)
        assert "a" not in store
        assert not store.stream("none").expire(after=1)
        for wrong in ({}, {"after": 1, "at": 1}, {"after": -1}, {"at": -1}, {"at": "x"}):
            with pytest.raises(OptionError):
                stream.expire(**wrong)  # type: ignore[arg-type]
        with pytest.raises(OptionError):
            stream.expire(after=1, only="nx")  # type: ignore[arg-type]


def test_the_background_drops_it_in_time(tmp_path: Path) -> None:
    """The thread of a process that does nothing else."""
    with logstore.open(tmp_path / "s", encoding="utf-8") as store:
        streams = [fill(store, str(number), "1") for number in range(250)]
        for stream in streams:
            stream.expire(after=0.3)
        eventually(lambda: store.metrics()["expired_streams"] >= 250)
        assert store._engine().index().entries()["streams"] == 0
        assert store._engine().index().entries()["expiries"] == 0
        assert store._engine().wake.next_due_ms == 0


def test_a_waiting_reader_is_told_that_the_stream_expired(tmp_path: Path) -> None:
    """Nobody is awake but the reader itself."""
    with logstore.open(tmp_path / "s", encoding="utf-8", background=False) as store:
        stream = fill(store, "a")
        store.create("a")
        group = stream.group("g", start="$")
        stream.expire(after=0.2)
        started = time.monotonic()
        with pytest.raises(GroupNotFoundError):
            group.read("c", timeout=300)
        assert time.monotonic() - started < 60
        assert store._engine().index().entries()["streams"] == 0


def test_a_clock_that_goes_back(tmp_path: Path) -> None:
    """Before it was dropped it is back; afterwards not."""
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        stream = fill(store, "a", "1")
        stream.expire(after=5)
        clock.ms += 5000
        assert "a" not in store
        clock.ms -= 1
        assert values(stream) == ["1"]
        clock.ms += 1
        do_due_work(store)
        clock.ms -= 1
        assert "a" not in store


# -- names ----------------------------------------------------------------------------------------
def test_a_name_takes_everything_along(tmp_path: Path) -> None:
    clock = FixedClock()
    path = tmp_path / "s"
    with opened(path, clock) as store:
        stream = fill(store, "a", "1", "2")
        stream.group("g", start="0").read("c", count=1)
        stream.configure(max_entries=700)
        stream.schedule({"n": "later"}, after=9)
        stream.add({"n": "p"}, producer="p", idempotent_id="1")
        stream.expire(after=60)
        fill(store, "b", "other").group("h", start="0")
        assert not store.rename("a", "b", replace=False)
        assert store.rename("a", "b")
        assert store.rename("b", "b")
        assert store.streams() == ["b"]
    for how in ("open", "reopened", "rebuilt"):
        if how == "rebuilt":
            delete_index(path)
        with opened(path, clock) as store:
            stream = store.stream("b")
            assert values(stream) == ["1", "2", "p"]
            assert [group.name for group in stream.groups()] == ["g"]
            assert stream.group("g").pending().count == 1
            assert stream.settings.max_entries == 700
            assert stream.expires_in == timedelta(seconds=60)
            assert [entry.fields["n"] for entry in stream.scheduled()] == ["later"]
            before = stream.last_id
            assert stream.add({"n": "p"}, producer="p", idempotent_id="1") == before
            assert values(store.stream("a")) == []
            with pytest.raises(StreamNotFoundError):
                store.rename("a", "c")
    with opened(path, clock) as store:
        clock.ms += 9000
        do_due_work(store)
        assert values(store.stream("b"))[-1] == "later"
        fill(store, "a", "new")
        assert store.streams() == ["a", "b"]
    assert check(path).index == compare.AGREES


def test_a_plan_goes_by_the_name_of_its_moment(tmp_path: Path) -> None:
    """Splits that were planned before are read after; a new plan finds it under the new name."""
    with logstore.open(tmp_path / "s", background=False) as store:
        fill(store, "a", *map(str, range(300)))
        before = make_plan(store, b"a")
        store.rename("a", "b")
        fill(store, "a", "new")
        rows = split_rows(before)
        assert len(rows) == 300
        assert rows == split_rows(make_plan(store, b"b"))
        assert len(split_rows(make_plan(store, b"a"))) == 1


def test_rename_wakes_readers_of_both_names(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", encoding="utf-8", background=False) as store:
        old = fill(store, "old", "1")
        group = old.group("g", start="$")
        found: list[Any] = []

        def wait_old() -> None:
            try:
                group.read("c", timeout=300)
            except GroupNotFoundError:
                found.append("gone")

        def wait_new() -> None:
            found.append([each.fields["n"] for each in store.stream("new").read("0", timeout=300)])

        threads = [threading.Thread(target=each) for each in (wait_old, wait_new)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        started = time.monotonic()

        def step(state: Any) -> set[bytes]:
            assert lifecycle.rename(state, b"old", b"new")
            return set(state.woken)

        assert store._live().committer.run(step) == {b"old", b"new"}  # not by the next look only
        for thread in threads:
            thread.join(300)
        assert time.monotonic() - started < 60
        assert sorted(map(str, found)) == ["['1']", "gone"]


# -- copies ---------------------------------------------------------------------------------------
def test_a_copy_is_the_same_and_goes_its_own_way(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with logstore.open(path, encoding="utf-8", background=False, node_max_entries=10) as store:
        stream = fill(store, "a", *map(str, range(95)))
        ids = [entry.id for entry in stream]
        stream.delete(ids[3], ids[44], ids[94])
        group = stream.group("g", start="0")
        for each in group.read("c", count=20)[:5]:
            each.ack()
        stream.expire(after=600)
        assert store.copy("a", "b")
        assert not store.copy("a", "b")
        copy = store.stream("b")
        assert copy.dump() == stream.dump()
        assert copy.expires_at == stream.expires_at
        copy.delete(ids[0])
        copy.add({"n": "more"})
        copy.group("g").read("c")
        stream.persist()
        assert len(stream) == 92
        assert stream.group("g").pending().count == 15
        with pytest.raises(UsageError):
            store.copy("a", "a")
        with pytest.raises(StreamNotFoundError):
            store.copy("none", "b", replace=True)
        assert len(copy) == 92
        assert copy.expires_at is not None
        assert store.copy("a", "b", replace=True)
        assert copy.dump() == stream.dump()
        assert copy.expires_at is None
        expected = copy.dump()
    delete_index(path)
    with logstore.open(path, encoding="utf-8", background=False) as store:
        assert store.stream("b").dump() == store.stream("a").dump() == expected
    assert check(path).index == compare.AGREES


def test_a_transaction_sees_what_it_did(tmp_path: Path) -> None:
    """A copy, a rename and a time of streams that the same transaction made or changed."""
    clock = FixedClock()
    path = tmp_path / "s"
    with opened(path, clock) as store:
        fill(store, "x", "0").group("g", start="0")
        with store.transaction() as tx:
            tx.stream("a").add({"n": "1"}, id="1-1")
            copied = tx.copy("a", "b")
            tx.stream("a").add({"n": "2"}, id="1-2")
            renamed = tx.rename("a", "c")
            tx.stream("x").group("h").create("0")
            tx.stream("x").add({"n": "3"})
            tx.copy("x", "y")
            was_set = tx.stream("c").expire(after=10)
            tx.stream("b").expire(after=10)
            persisted = tx.stream("b").persist()
            tx.stream("a").add({"n": "4"}, id="0-1")
        assert copied.result
        assert renamed.result
        assert was_set.result
        assert persisted.result
        expected = {"a": ["4"], "b": ["1"], "c": ["1", "2"], "x": ["0", "3"], "y": ["0", "3"]}
        assert {name: values(store.stream(name)) for name in store.streams()} == expected
        assert [group.name for group in store.stream("y").groups()] == ["g", "h"]
        tx = store.transaction()
        tx.stream("a").add({"n": "5"})
        tx.rename("none", "a")
        with pytest.raises(StreamNotFoundError):
            tx.commit()
        assert values(store.stream("a")) == ["4"]
    delete_index(path)
    with opened(path, clock) as store:
        assert {name: values(store.stream(name)) for name in store.streams()} == expected
        assert store.stream("c").expires_in == timedelta(seconds=10)
        assert store.stream("b").expires_in is None
    assert check(path).index == compare.AGREES


def test_names_of_any_length(tmp_path: Path) -> None:
    """Long names have a key of another kind in the index."""
    with opened(tmp_path / "s", FixedClock()) as store:
        short, long = "a", "n" * 5000
        fill(store, short, "1")
        for old, new in ((short, long), (long, long + "x"), (long + "x", short)):
            assert store.rename(old, new)
            assert store.streams() == [new]
            assert values(store.stream(new)) == ["1"]
    assert check(tmp_path / "s").index == compare.AGREES


def test_restore_over_an_expired_stream(tmp_path: Path) -> None:
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        stream = fill(store, "a", "1")
        payload = stream.dump()
        with pytest.raises(StreamExistsError):
            store.restore("a", payload)
        stream.expire(after=1)
        clock.ms += 1000
        assert store.restore("a", payload).expires_at is None
        assert values(stream) == ["1"]
    assert check(tmp_path / "s").index == compare.AGREES


def test_the_same_for_asyncio(tmp_path: Path) -> None:
    async def work() -> None:
        async with aio.open(tmp_path / "s", encoding="utf-8") as store:
            stream = store.stream("a")
            await stream.add({"n": "1"})
            assert await store.copy("a", "b")
            assert not await store.rename("a", "b", replace=False)
            assert await store.rename("a", "c")
            stream = store.stream("c")
            assert await stream.expire(after=100)
            assert not await stream.expire(after=200, only="never")
            assert await stream.expires_at() is not None
            assert await stream.expires_in() > timedelta(seconds=90)
            assert await stream.persist()
            assert await stream.expires_in() is None
            await stream.expire(after=0)
            assert await store.streams() == ["b"]

    asyncio.run(work())


def test_the_same_for_a_client_in_the_process(tmp_path: Path) -> None:
    """redis-py, whose connections lead to the store."""
    with Redis(tmp_path / "s", decode_responses=True) as client:
        client.xadd("a", {"n": "1"})
        assert client.copy("a", "b")
        assert client.rename("a", "c")
        assert not client.renamenx("b", "c")
        assert client.expire("c", 100, nx=True)
        assert not client.expire("c", 200, nx=True)
        assert 90 < client.ttl("c") <= 100
        assert client.info("keyspace")["db0"]["expires"] == 1
        assert client.persist("c")
        assert client.pexpireat("c", 1)
        assert client.keys() == ["b"]
