"""Prevents deleted space that never comes back by itself, and background work that harms others."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.compaction import compactor as background
from logstore.compaction.compactor import Compactor
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.background import StoppedError, Throttle, no_pause
from logstore.recovery.check import check
from tests import seeds
from tests.compaction.dumps import dump
from tests.retention.retained import opened
from tests.support.inside import FixedClock
from tests.support.processes import Forked, Program
from tests.support.waits import eventually

SEGMENT = 1 << 16
MINUTE_MS = 60_000


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often."""
    monkeypatch.setattr(background, "LOOK_S", 0.2)
    monkeypatch.setattr(background, "TOMBSTONES_S", 0.2)
    monkeypatch.setattr(background, "SHARE", 0.5)


def churn(
    store: logstore.Store[bytes], clock: FixedClock, rounds: int, wait_for: int | None = None
) -> int:
    """Add much more than is retained; the largest size of the log on the way, in bytes.

    Now and then wait until the log is smaller than ``wait_for``.
    """
    stream, largest = store.stream("s"), 0
    for n in range(rounds):
        stream.add_many([{"n": each, "pad": os.urandom(100)} for each in range(500)], batch=50)
        clock.ms += MINUTE_MS
        if n % 3 == 2 and wait_for is not None:
            eventually(lambda: store.info().log_bytes < wait_for)
        elif n % 3 == 2:
            time.sleep(0.25)
        largest = max(largest, store.info().log_bytes)
    return largest


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("rate", [64 << 20, None])
def test_the_disk_stays_bounded_while_a_stream_churns(tmp_path: Path, rate: int | None) -> None:
    """With it the log is a few times what is retained; without it, all that was ever added."""
    clock, path = FixedClock(), tmp_path / "store"
    with opened(path, clock, background=True, compact_rate=rate) as store:
        store.stream("s").configure(max_entries=1000, create=True)
        store.stream("idle").add({"open": "node"})  # lies in the first segment
        largest = churn(store, clock, 40, None if rate is None else 20 * SEGMENT)
        written = store.metrics()["commit_bytes"]
        print(f"{written} bytes written, largest log {largest}")
        if rate is None:
            assert largest > 0.9 * written
            assert not store.metrics()["compactions"]
            return
        assert largest < 0.5 * written
        clock.ms += MINUTE_MS
        eventually(lambda: store.info().log_bytes < 12 * SEGMENT)
        assert store.info().compacted_bytes > 0.5 * written
        assert store.info().compacted_ms
        eventually(lambda: len(store.stream("s")) <= 1010)  # a node more, at most
    # Not while that one is open: under load its retention may still be dropping nodes.
    with opened(path, clock) as store:
        assert not store.recovery["rebuilt"]
        before = dump(store)
    shutil.rmtree(path / "index")
    with opened(path, clock) as store:
        assert dump(store) == before
    assert check(path).damage == []


@pytest.mark.usefixtures("eager")
def test_space_of_deleted_entries_comes_back(tmp_path: Path) -> None:
    """Tombstones inside nodes: no node goes, and no segment gets empty by itself."""
    clock, path = FixedClock(), tmp_path / "store"
    with opened(path, clock, background=True) as store:
        stream = store.stream("s")
        ids = list(stream.add_many({"n": n, "pad": os.urandom(100)} for n in range(6000)))
        full = store.info().log_bytes
        stream.delete(*(each for n, each in enumerate(ids) if n % 10 > 2))
        clock.ms += 2 * MINUTE_MS
        eventually(lambda: store.info().log_bytes < full // 2)
        assert [entry.id for entry in stream] == [each for n, each in enumerate(ids) if n % 10 <= 2]


def half_dead(store: logstore.Store[bytes], clock: FixedClock) -> None:
    """Segments in which living nodes lie between dead ones."""
    for _ in range(30):
        for name in ("long", "short"):
            rows = [{"n": n, "pad": os.urandom(100)} for n in range(100)]
            store.stream(name).add_many(rows * (1 if name == "long" else 2), batch=100)
    store.stream("short").configure(max_entries=100)
    store.retain()
    clock.ms += 2 * MINUTE_MS


def test_compaction_moves_live_nodes_and_leaves_young_segments(tmp_path: Path) -> None:
    clock, path = FixedClock(), tmp_path / "store"
    with opened(path, clock) as store:
        half_dead(store, clock)
        before = dump(store).entries
        shared = store._live()
        clock.ms -= 2 * MINUTE_MS
        Compactor(shared.engine, shared.committer).tick(no_pause)
        assert not store.metrics()["compactions"], "all of it is too young"
        clock.ms += 2 * MINUTE_MS
        size = store.info().log_bytes
        Compactor(shared.engine, shared.committer).tick(no_pause)
        assert store.metrics()["compactions"] == 1
        assert store.metrics()["compaction_bytes"]
        assert store.info().log_bytes < 0.7 * size
        assert dump(store).entries == before
        Compactor(shared.engine, shared.committer).tick(no_pause)
        assert store.metrics()["compactions"] == 1, "nothing is left to do"
    shutil.rmtree(path / "index")
    with opened(path, clock) as store:
        assert dump(store).entries == before
    assert check(path).damage == []


def test_compaction_in_the_background_waits_for_nobody(tmp_path: Path) -> None:
    clock = FixedClock()
    with opened(tmp_path / "store", clock) as store:
        half_dead(store, clock)
        shared = store._live()
        with maintenance_locks.alone(shared.engine):
            Compactor(shared.engine, shared.committer).tick(no_pause)
        assert not store.metrics()["compactions"]


def test_segments_that_a_scan_names_are_left_alone_for_a_while(tmp_path: Path) -> None:
    """Else each look would take two checkpoints for nothing."""
    from logstore.engine.runtime import pins

    clock = FixedClock()
    with opened(tmp_path / "store", clock) as store:
        half_dead(store, clock)
        shared = store._live()
        pin = pins.create(shared.engine.fs, store.path, clock.ms, 10**9)
        compactor = Compactor(shared.engine, shared.committer)
        for _ in range(3):
            compactor._next_s = 0.0
            compactor.tick(no_pause)
        assert store.metrics()["compactions"] == 1
        pins.release(shared.engine.fs, store.path, pin.id)
        compactor._next_s, compactor._left = 0.0, {}
        size = store.info().log_bytes
        compactor.tick(no_pause)
        assert store.info().log_bytes < size


def test_a_compaction_stopped_between_any_two_steps_loses_nothing(tmp_path: Path) -> None:
    clock, path = FixedClock(), tmp_path / "store"
    with opened(path, clock) as store:
        half_dead(store, clock)
        before = dump(store).entries
        shared = store._live()
        stops, done = 0, False
        while not done:
            steps = iter(range(3 * stops))

            def pause(_size: int, steps: Any = steps) -> None:
                if next(steps, None) is None:
                    raise StoppedError

            try:
                Compactor(shared.engine, shared.committer).tick(pause)
                done = True
            except StoppedError:
                stops += 1
            assert dump(store).entries == before
        print(f"stopped {stops} times")
        assert stops > 3
        store.compact()
        assert dump(store).entries == before
        named = {int(file.stem) for file in (path / "log").glob("*.log")}
        assert len(named) == store.info().segments, "a stopped one left a file"
    assert check(path).damage == []


def taken(store: logstore.Store[bytes]) -> bool:
    """Whether somebody holds the maintenance lock."""
    try:
        with maintenance_locks.alone(store._live().engine, 0):
            return False
    except logstore.LockTimeoutError:
        return True


def test_closing_does_not_wait_for_the_end_of_it(tmp_path: Path) -> None:
    """At a byte a second it would take for ever."""
    clock = FixedClock()
    with opened(tmp_path / "store", clock) as store:
        half_dead(store, clock)
        before = dump(store).entries
    with opened(tmp_path / "store", clock, background=True, compact_rate=1) as store:
        eventually(lambda: taken(store))
        store.stream("long").add({"n": "more"})  # and holds nothing meanwhile
        started = time.monotonic()
    print(f"closed in {time.monotonic() - started:.3f} s")
    with opened(tmp_path / "store", clock) as store:
        store.stream("long").delete(store.stream("long").last_id)
        assert dump(store).entries == before


def test_an_index_that_is_mostly_free_pages_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "INDEX_MIN_BYTES", 1 << 18)
    clock, path, other = FixedClock(), tmp_path / "store", tmp_path / "killed"
    with opened(path, clock, node_max_entries=1, sync="everysec") as store:
        stream = store.stream("s")
        stream.add_many(({"n": n} for n in range(8_000)), batch=5000)
        stream.group("g", start="0").read("a", count=5)
        shared = store._live()
        child = Forked(lambda: reopened(path, clock))
        full = store.info()
        Compactor(shared.engine, shared.committer).tick(no_pause)
        assert store.info().index_generation == full.index_generation, "it is full of nodes"
        stream.trim(max_entries=50, approximate=False)
        Compactor(shared.engine, shared.committer).tick(no_pause)
        assert store.info().index_generation == full.index_generation + 1
        assert store.info().index_bytes < full.index_bytes // 4
        stream.add({"n": "behind it"})
        shutil.copytree(path, other, ignore=shutil.ignore_patterns("lock.mdb"))
        child.join()
        assert len(stream) == 52, "a process that had the old one open writes to the new one"
        before = dump(store)
        assert store.stream("s").group("g").pending().count == 5
    with logstore.open(path, background=False, clock=clock) as store:
        assert not store.recovery["rebuilt"]
        assert dump(store) == before
    with logstore.open(other, background=False, clock=clock) as store:
        assert len(store.stream("s")) in {51, 52}
    assert check(path).damage == []


def reopened(path: Path, clock: FixedClock) -> None:
    with logstore.open(path, background=False, clock=clock) as store:
        assert len(store.stream("s")) >= 50
        eventually(lambda: store.stream("s").info().entries_added >= 8_001)
        store.stream("s").add({"n": "from another"})


def test_compact_does_not_wait_for_a_throttled_background(tmp_path: Path) -> None:
    clock = FixedClock()
    with opened(tmp_path / "store", clock) as store:
        half_dead(store, clock)
    with opened(tmp_path / "store", clock, background=True, compact_rate=1) as store:
        eventually(lambda: taken(store))
        assert store.compact().segments_dropped
        assert store.checkpoint()
        store.backup(tmp_path / "copy")


def test_compaction_in_the_background_keeps_to_its_rate(tmp_path: Path) -> None:
    done = []
    throttle = Throttle(1_000_000, threading.Event(), lambda: done.append(1))
    started = time.monotonic()
    for _ in range(30):
        throttle.spend(10_000)
    assert time.monotonic() - started >= 0.28
    assert done, "what else is due has its turn"
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        Throttle(1.0, stop, lambda: None).spend(0)


@pytest.mark.parametrize("rate", [-1, float("inf"), float("nan"), True, "fast"])
def test_a_rate_that_is_none_is_refused(tmp_path: Path, rate: Any) -> None:
    with pytest.raises(logstore.OptionError, match="compact_rate"):
        logstore.open(tmp_path / "store", compact_rate=rate)
    assert not (tmp_path / "store").exists()


CHURN = """
import os, sys, time, logstore
from logstore.compaction import compactor as background
from logstore.engine.features import retention
background.LOOK_S, background.SHARE, background.MIN_AGE_MS = 0.1, 0.9, 0
retention.Retention.LOOK_S = 0.1
path = sys.argv[1]
with logstore.open(path, sync="os", segment_bytes=1 << 16, node_max_entries=10) as store:
    keep, stream = store.stream("keep"), store.stream("s")
    print("open", flush=True)
    n = store.stream("keep").info().entries_added if "keep" in store else 0
    while True:
        stream.add_many([{"pad": os.urandom(100)} for _ in range(200)], batch=50)
        keep.add({"n": n})
        n += 1
        time.sleep(0.01)
"""


def test_a_kill_during_compaction_loses_nothing(tmp_path: Path) -> None:
    path, seed = tmp_path / "store", seeds.seed()
    print(f"LOGSTORE_SEED={seed}")
    chance = random.Random(seed)
    clock = FixedClock()
    with opened(path, clock) as store:
        store.stream("s").configure(max_entries=500, create=True)
    for turn in range(4):
        child = Program(CHURN, path)
        try:
            assert child.answer() == "open"
            there = set((path / "log").glob("*.log"))
            if turn != 3:  # once it is killed wherever it is, else behind the end of a round
                # Any of them: the oldest may be a compacted one in which all lives.
                eventually(lambda: there - set((path / "log").glob("*.log")))  # noqa: B023
            time.sleep(chance.random() * 0.5)
        finally:
            child.kill()
        if turn % 2:
            shutil.rmtree(path / "index")
        with opened(path, clock) as store:
            numbers = [int(entry.fields[b"n"]) for entry in store.stream("keep")]
            assert numbers == list(range(len(numbers)))
            assert len(store.stream("s")) == sum(1 for _ in store.stream("s")) >= 500
    assert check(path).damage == []
