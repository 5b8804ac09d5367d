"""Prevents an add in the lane that hands its entry to who waits from doing otherwise than the
pipeline does, and from losing or doubling it when it is killed over that.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.lane.lane import IndexPort
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.shm import process_identity
from logstore.engine.shm.waiters import IDLE, NOTHING, PACE, WAITING
from logstore.engine.snapshots import snapshot
from logstore.format import Kind
from logstore.log import log_reader
from tests.engine import killing
from tests.support.inside import engine_of, follow, lane_commits, let_lag
from tests.support.processes import Forked
from tests.support.waits import eventually
from tests.waiting.crowd import group_of, key_of, owners, queue, reader, stop
from tests.waiting.readers import Reading

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

Store = logstore.Store[Any]


@pytest.fixture(autouse=True)
def _lag(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    let_lag(monkeypatch, 64, lane=True)
    before = PACE.slice_s
    PACE.set(900.0)  # waiters sleep until they are woken
    yield
    PACE.set(before)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with logstore.open(tmp_path / "store", sync="os", background=False) as opened:
        warm(opened)
        yield opened


def warm(store: Store) -> None:
    """The lane has the stream, the group, and consumers, of whom each has read."""
    stream, group = store.stream("work"), group_of(store)
    for who in ("first", "second", "third"):
        stream.add({"n": -1})
        assert [each.ack() for each in group.read(who)]
    stream.add({"n": -1})
    stream.add({"n": -1})
    assert [each.ack() for each in group.read("first")]
    lane_commits(store)


def last_commit(store: Store) -> list[tuple[int, bytes]]:
    """Kinds and payloads of the frames of the last commit."""
    engine = engine_of(store)
    number, end = engine.wake.applied >> 32, engine.wake.applied & 0xFFFFFFFF
    found: dict[int, list[tuple[int, bytes]]] = {}
    for each in log_reader.scan(engine.active_file(number), engine.seed, number, 64, end):
        found.setdefault(each.commit, []).append((each.kind, bytes(each.payload)))
    return found[max(found)]


def pending(store: Store) -> list[tuple[str, int]]:
    """Who has what, and how often it was delivered, as the index tells once it has followed."""
    follow(store)
    return [(str(each.consumer), each.delivery_count) for each in group_of(store).pending_entries()]


def test_one_append_adds_and_delivers(store: Store, tmp_path: Path) -> None:
    first = Reading(store, "first", count=1)
    second = Reading(store, "second", count=1)
    lane_commits(store)
    id = store.stream("work").add({"n": 7})
    assert first.wait() == [7]
    assert lane_commits(store) == 1
    frames = last_commit(store)
    assert [kind for kind, _ in frames] == [Kind.APPEND, Kind.DELIVER]
    assert len(queue(store)) == 1
    assert store.stream("work").add({"n": 8}) > id
    assert second.wait() == [8]
    there, info = pending(store), group_of(store).info()
    assert (there, info.pending, info.lag) == ([("b'first'", 1), ("b'second'", 1)], 2, 0)
    told = snapshot.read(engine_of(store), lambda view: view.index.group(1, b"g"))
    store.stream("work").add({"n": 9})
    # The same by the pipeline: in its log, and in what comes of it.
    path = tmp_path / "other"
    with logstore.open(path, sync="os", background=False) as other:
        warm(other)
        shared = other._opened.live()
        shared.lane = engine_of(other).lane = None
        readers = [Reading(other, who, count=1) for who in ("first", "second")]
        other.stream("work").add({"n": 7})
        assert [kind for kind, _ in last_commit(other)] == [kind for kind, _ in frames]
        assert masked(last_commit(other)[1][1]) == masked(frames[1][1])
        other.stream("work").add({"n": 8})
        assert [each.wait() for each in readers] == [[7], [8]]
        assert pending(other) == there
        same = snapshot.read(engine_of(other), lambda view: view.index.group(1, b"g"))
        assert same is not None
        assert told is not None
        assert (same.entries_read, same.pending) == (told.entries_read, told.pending)


def masked(delivery: bytes) -> tuple[bytes, bytes, int]:
    """A frame's payload but for times: group and consumer, entries read and flag, and its size."""
    return delivery[:12], delivery[36:45], len(delivery)


def test_all_groups_are_served(store: Store) -> None:
    stream = store.stream("work")
    other = stream.group("other", start="$")
    got: list[Any] = []
    stream.add({"n": 1})
    for each in (*group_of(store).read("first"), *other.read("o")):
        each.ack()
    thread = threading.Thread(target=lambda: got.extend(other.read("o", timeout=60)))
    first = Reading(store, "first", count=1)
    before = store.metrics()["waits"]
    thread.start()
    eventually(lambda: store.metrics()["waits"] > before)
    stream.add({"n": 2})  # by the pipeline, perhaps: the lane learns of the group
    assert first.wait() == [2]
    thread.join(60)
    assert [each["n"] for each in got] == [b"2"]
    assert pending(store) == [("b'first'", 1)]
    assert [str(each.consumer) for each in other.pending_entries()] == ["b'o'"]


def test_a_reader_with_a_limit_of_bytes_is_woken_and_not_handed_to(store: Store) -> None:
    """It counts bytes: nothing is handed to it, nor past it."""
    first = Reading(store, "first", count=1, max_bytes=1)
    second = Reading(store, "second", count=1)
    store.stream("work").add({"n": 1})
    assert first.wait() == [1]
    store.stream("work").add({"n": 2})
    assert second.wait() == [2]
    assert owners(store) == ["first", "second"]


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_nothing_is_handed_to_a_dead_or_stopped_reader(store: Store, end: str) -> None:
    gone = reader(store, "first")
    second = Reading(store, "second", count=1)
    if end == "killed":
        gone.kill()
    else:
        stop(gone.pid)
    store.stream("work").add({"n": 1})
    if end == "killed":
        assert second.wait() == [1]
        assert owners(store) == ["second"]
        return
    assert owners(store) == []  # it was called, as it goes on perhaps
    gone.kill()
    store.stream("work").add({"n": 2})
    assert second.wait() == [1]


def test_nothing_is_handed_to_a_reader_that_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at once more behind the offer."""
    real = process_identity.state_of
    leaves: list[Callable[[], object]] = []

    def state_of(pid: int, start: int) -> int:
        for leave in leaves:
            leave()
        return real(pid, start)

    monkeypatch.setattr(process_identity, "state_of", state_of)
    with logstore.open(tmp_path / "store", sync="os", background=False) as store:
        warm(store)
        gone = reader(store, "first")
        waits = engine_of(store).wake.waits
        (record,) = waits.waiters.waiting(key_of(store))
        at = waits.waiters._at(record.number) + 4 >> 2
        leaves.append(lambda: waits.waiters._words.__setitem__(at, IDLE))
        store.stream("work").add({"n": 1})
        leaves.clear()
        assert waits.mailboxes.state(record.number) == NOTHING
        assert pending(store) == []
        waits.waiters._words[at] = WAITING
        waits.waiters.wake_first(key_of(store))
        gone.join()
        assert pending(store) == [("b'first'", 1)]


def test_a_look_of_who_waits_is_not_taken_for_one_that_has_the_lock(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the mutex alone: what needs LOCK amid it, as a finaliser may, takes it."""
    engine, held = engine_of(store), []
    learn = IndexPort.learn_settings

    def slow(self: IndexPort, group: int) -> None:
        with engine._locked():
            held.append(engine.lock.held)
        with pytest.raises(logstore.ReentryError):
            store.stream("work").add({"n": 1})
        learn(self, group)

    monkeypatch.setattr(IndexPort, "learn_settings", slow)
    store.stream("work").add_many([{"n": 1}, {"n": 2}])
    group = group_of(store)
    for each in group.read("first"):
        each.ack()
    store.stream("other").add({"n": 1}, sync="os")  # by the pipeline: the lane learns all anew
    engine.cache.settings.clear()
    assert engine.lane is not None
    engine.lane.drained(b"work", key_of(store), b"first")  # of one that was seen 10 ms ago: 0
    assert held == [True]
    assert not engine.lock.held


@pytest.mark.parametrize("look", ["given", "drained"])
def test_a_look_for_which_there_is_no_memory_keeps_no_lock(store: Store, look: str) -> None:
    """It says that it does not know; the process goes on adding, in every thread."""
    engine = engine_of(store)
    id = store.stream("work").add({"n": 1})
    Forked(lambda: [store.stream("work").add({"n": each}) for each in range(2)]).join()
    asked: list[str] = []

    def system(call: str, first: int, *_: int) -> int:
        asked.append(call)
        if call == "clock":
            return time.monotonic_ns() if first else time.time_ns()
        return errno.ENOMEM if call == "realloc" else 0

    assert engine.lane is not None
    native_or_none.simulate(system)
    try:
        if look == "given":
            assert engine.lane.given(b"work", key_of(store), id) is None
        else:
            assert not engine.lane.drained(b"work", key_of(store), b"first")
    finally:
        native_or_none.simulate(None)
    assert "realloc" in asked
    ids = [store.stream("work").add({"n": 2})]
    thread = threading.Thread(target=lambda: ids.append(store.stream("work").add({"n": 3})))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert [each.id for each in store.stream("work").range(start=ids[0])] == ids


@pytest.mark.parametrize(
    ("at", "how", "more"),
    [
        ("pwrite:1", "none", 0),  # offered, and the word of a commit in progress is set
        ("pwrite:1", "half", 0),  # the entry is whole, and its delivery is not: neither counts
        ("pwrite:1", "all", 1),  # complete, not published, and not said to be given
        ("flock:2", "none", 1),  # given; who waits was not woken
    ],
)
def test_a_kill_leaves_who_waits_with_all_of_it_or_nothing(
    tmp_path: Path, killer: Path, at: str, how: str, more: int
) -> None:
    """The process that adds is killed in the midst of a hand-over to another one."""
    PACE.set(0.15)  # who was not woken looks by itself
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.stream("s").add({"n": -1})
        group = store.stream("s").group("g", start="$")
        got: list[int] = []

        def read() -> None:
            while 99 not in got:
                for each in group.read("c", timeout=60):
                    got.append(int(each["n"]))
                    each.ack()

        thread = threading.Thread(target=read)
        thread.start()
        told = killing.run_until_killed(killer, killing.ADDS_TO_WHO_WAITS, tmp_path, "os", at, how)
        store.stream("s").add({"n": 99})
        thread.join(60)
        assert not thread.is_alive()
        assert got == [*range(10 + len(told) + more), 99]
        follow(store)
        assert group.info().pending == 0
        assert [int(each["n"]) for each in store.stream("s")] == [-1, *got]
