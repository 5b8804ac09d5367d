"""Prevents a waiting reader that sleeps through what is due, gets it early, or waits for another.

All stores but one are opened with ``background=False``: nobody but the waiting readers is awake.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import logstore
import logstore.aio
from logstore import Entry
from logstore.api.store import Store
from logstore.engine.features import due_entries
from logstore.engine.maintenance import background_work
from logstore.engine.shm.waiters import PACE
from logstore.errors import DiskFullError
from tests.support.inside import patient_waiters
from tests.support.processes import Forked
from tests.support.waits import eventually

PATIENT_S = 900.0
LATE_MAX_MS = 60_000  # on a busy machine; who slept through it would wait for a quarter of an hour
SOON_S = 0.3


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store[Any]]:
    """An open, empty store in which nobody is awake."""
    with logstore.open(tmp_path / "store", encoding="utf-8", sync="os", background=False) as opened:
        yield opened


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    """Waiters sleep until they are woken, or until they know that something is due."""
    with patient_waiters(PATIENT_S):
        yield


def in_time(entry: Any, due_ms: int) -> None:
    """Not before its time, by its ID and by the clock, and not much later."""
    assert entry.id.ms >= due_ms
    assert due_ms <= time.time() * 1000 < due_ms + LATE_MAX_MS


def read(store: Store[Any]) -> list[Entry[Any]]:
    """A reader of one stream."""
    return store.stream("a").read("0", timeout=PATIENT_S)


def read_many(store: Store[Any]) -> list[Entry[Any]]:
    """A reader of several."""
    return store.read({"x": "0", "a": "0", "y": "0"}, timeout=PATIENT_S)["a"]


def follow(store: Store[Any]) -> list[Entry[Any]]:
    """Who follows a stream."""
    return [next(store.stream("a").follow("0", timeout=PATIENT_S))]


def read_group(store: Store[Any]) -> list[Any]:
    """A consumer of a group."""
    return store.stream("a").group("g").read("c", timeout=PATIENT_S)


READERS = [read, read_many, follow, read_group]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("first", ["scheduled", "waiting"])
def test_a_thread_that_waits(
    store: Store[Any], reader: Callable[[Store[Any]], list[Any]], first: str
) -> None:
    """It wakes by itself, whether it knew of the entry when it began or was told then."""
    stream = store.stream("a")
    stream.group("g", start="0")
    with ThreadPoolExecutor(1) as pool:
        if first == "waiting":
            found = pool.submit(reader, store)
            time.sleep(0.1)
            key = stream.schedule({"n": "1"}, after=SOON_S)
        else:
            key = stream.schedule({"n": "1"}, after=SOON_S)
            found = pool.submit(reader, store)
        assert key is not None
        [entry] = found.result()
        in_time(entry, key.due_ms)
    assert len(stream) == 1


@pytest.mark.parametrize("reader", [read, read_group])
def test_a_process_that_waits(store: Store[Any], reader: Callable[[Store[Any]], list[Any]]) -> None:
    """Told by another process, it adds the entry itself, while that one does nothing more."""
    stream = store.stream("a")
    stream.group("g", start="0")
    out, into = os.pipe()

    def work() -> None:
        os.write(into, b"!")
        [entry] = reader(store)
        in_time(entry, int(entry.fields["due"]))
        assert store.metrics()["scheduled_added"] == 1

    with Forked(work):
        os.read(out, 1)
        time.sleep(0.1)
        due_ms = time.time_ns() // 1_000_000 + 300
        stream.schedule({"due": due_ms}, at=due_ms)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_task_that_waits(tmp_path: Path, grouped: bool) -> None:
    """asyncio: the thread that watches for all tasks adds what is due."""

    async def main() -> None:
        options = {"encoding": "utf-8", "background": False}
        async with logstore.aio.open(tmp_path / "store", **options) as store:
            stream = store.stream("a")
            group = await stream.group("g", start="0")
            if grouped:
                waiting = asyncio.create_task(group.read("c", timeout=PATIENT_S))
            else:
                waiting = asyncio.create_task(stream.read("0", timeout=PATIENT_S))
            await asyncio.sleep(0.1)
            key = await stream.schedule({"n": 1}, after=SOON_S)
            assert key is not None
            [entry] = await waiting
            in_time(entry, key.due_ms)
            later = await stream.schedule({"n": 2}, after=1000)
            assert later is not None
            assert [each.key async for each in stream.scheduled()] == [later]
            assert await stream.cancel(later)
            assert (await stream.info()).scheduled == 0

    asyncio.run(main())


def test_a_reader_whose_entry_was_put_off_by_a_sooner_one(store: Store[Any]) -> None:
    """What is due first comes first, whenever it was scheduled."""
    stream = store.stream("a")
    with ThreadPoolExecutor(1) as pool:
        last = stream.schedule({"n": "2"}, after=5)  # the other is sooner, however busy
        found = pool.submit(read, store)
        time.sleep(0.05)
        key = stream.schedule({"n": "1"}, after=SOON_S)
        assert key is not None
        assert last is not None
        [entry] = found.result()
        assert entry.fields["n"] == "1"
        in_time(entry, key.due_ms)
        [entry] = stream.read(entry.id, timeout=PATIENT_S)
        assert entry.fields["n"] == "2"
        in_time(entry, last.due_ms)


def test_many_readers_and_one_entry(store: Store[Any]) -> None:
    """All wake at its time; it is added once, and all of them get it."""
    stream = store.stream("a")
    count = 8
    with ThreadPoolExecutor(count) as pool:
        found = [pool.submit(read, store) for _ in range(count)]
        time.sleep(0.1)
        key = stream.schedule({"n": "1"}, after=SOON_S)
        assert key is not None
        ids = {each.id for future in found for each in future.result()}
        assert len(ids) == len(stream) == 1
        in_time(next(iter(stream)), key.due_ms)


def test_a_reader_gets_a_due_entry_behind_a_whole_batch(store: Store[Any]) -> None:
    """A reader of another stream adds what is in front of its own entry."""
    count = 3 * due_entries.BATCH_ENTRIES
    due_ms = time.time_ns() // 1_000_000 + 300
    with store.transaction() as tx:
        for number in range(count):
            tx.stream("b").schedule({"n": number}, at=due_ms)
        tx.stream("a").schedule({"n": "1"}, at=due_ms)
    [entry] = read(store)
    in_time(entry, due_ms)
    assert len(store.stream("b")) == count


def test_a_time_out_is_kept_where_something_is_due_later(store: Store[Any]) -> None:
    """Neither early nor late, and nothing is added."""
    stream = store.stream("a")
    stream.schedule({"n": "1"}, after=3600)
    begin = time.monotonic()
    assert stream.read("0", timeout=0.2) == []
    assert 0.2 <= time.monotonic() - begin < 0.2 + LATE_MAX_MS / 1000
    assert stream.info().scheduled == 1


def test_a_due_entry_that_cannot_be_added_fails_no_reader(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk: the reader waits on, it is said once and not all the time, and tried again."""
    monkeypatch.setattr(background_work, "RETRY_S", 3.0)
    tries: list[float] = []

    def full(*_: Any) -> None:
        tries.append(time.monotonic())
        raise DiskFullError("full")

    stream = store.stream("a")
    stream.schedule({"n": "1"}, after=0)
    with monkeypatch.context() as failing:
        failing.setattr(background_work.disk_space, "check", full)
        assert stream.read("0", timeout=0.2) == []
        assert len(tries) == 1
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == ["full"]
    [entry] = read(store)
    assert entry.fields["n"] == "1"
    assert time.monotonic() - tries[0] >= 3.0


def test_a_reader_with_another_thread_at_it(store: Store[Any]) -> None:
    """While one thread adds, another looks again soon, and does not add the same."""
    engine = store._engine()
    assert engine.due_work is not None
    stream = store.stream("a")
    stream.schedule({"n": "1"}, after=0)
    with engine.due_work._busy, ThreadPoolExecutor(1) as pool:
        found = pool.submit(read, store)
        time.sleep(0.1)
        assert not found.done()
        engine.due_work._busy.release()
        [entry] = found.result()
        engine.due_work._busy.acquire()
    assert entry.fields["n"] == "1"


def test_a_process_in_the_background_adds(tmp_path: Path) -> None:
    """Nobody reads: the thread that each open store has does it, soon after the time."""
    with logstore.open(tmp_path / "s", encoding="utf-8") as store:
        stream = store.stream("a")
        key = stream.schedule({"n": "1"}, after=SOON_S)
        late = stream.schedule({"n": "2"}, at=time.time_ns() // 1_000_000 - 60_000)
        assert key is not None
        assert late is not None
        eventually(lambda: len(stream) >= 2)
        assert [entry.fields["n"] for entry in stream] == ["2", "1"]
        last = stream.last
        assert last is not None
        assert key.due_ms <= last.id.ms < key.due_ms + LATE_MAX_MS


def test_closing_while_something_is_due(tmp_path: Path) -> None:
    """A reader that sleeps towards it is told that the store is closed; it comes at the next open.

    What is due is not lost, whatever the background thread was about when it ended.
    """
    path = tmp_path / "s"
    for number in range(20):
        with logstore.open(path, encoding="utf-8") as store:
            store.stream("a").schedule({"n": number}, after=0.002 * (number % 3))
            time.sleep(0.001 * (number % 5))
    with logstore.open(path, encoding="utf-8", background=False) as store:
        stream = store.stream("a")
        found: list[Any] = []
        end = time.monotonic() + PATIENT_S
        while len(stream) < 20 and time.monotonic() < end:
            stream.read("$", timeout=0.05)
        found = [int(entry.fields["n"]) for entry in stream]
        assert sorted(found) == list(range(20))
        assert stream.info().scheduled == 0


def test_a_closed_store_frees_who_waits_for_what_is_due(tmp_path: Path) -> None:
    """No reader sleeps towards an entry of a store that is gone."""
    PACE.set(0.05)
    store = logstore.open(tmp_path / "s", encoding="utf-8", background=False)
    store.stream("a").schedule({"n": "1"}, after=60)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            read(store)
        except logstore.ClosedError as exc:
            raised.append(exc)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    store.close()
    thread.join(PATIENT_S)
    assert len(raised) == 1
