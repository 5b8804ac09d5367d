"""Prevents retention that nobody does by itself, that two do at once, or that a kill halves."""

from __future__ import annotations

import random
import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest

import logstore
from logstore.engine.runtime import maintenance_locks
from logstore.errors import LockTimeoutError
from logstore.log import file_names
from logstore.recovery.check import check
from tests import seeds
from tests.retention.retained import ids_of, nodes_of, opened
from tests.support.inside import FixedClock
from tests.support.processes import Forked, Program
from tests.support.waits import eventually

KILLS = 6
WRITE = """
import sys, logstore
with logstore.open(sys.argv[1], sync="os", node_max_entries=10, segment_bytes=1 << 16) as store:
    stream = store.stream("s")
    print("open", flush=True)
    n = len(stream) and int(next(iter(stream.range(count=1, reverse=True))).fields[b"n"]) + 1
    while True:
        stream.add_many([{"n": n + each} for each in range(50)], batch=7)
        n += 50
"""


def test_retention_happens_by_itself_and_follows_the_clock(tmp_path: Path) -> None:
    clock = FixedClock()
    with opened(tmp_path / "store", clock, background=True) as store:
        stream = store.stream("s")
        stream.add_many({"n": n} for n in range(500))
        stream.configure(max_entries=45)
        eventually(lambda: len(stream) == 50)
        stream.configure(max_entries=None, max_bytes=1)
        eventually(lambda: len(nodes_of(store, b"s")) == 1)
        assert len(stream) == 10
        stream.configure(max_bytes=None, max_age=timedelta(hours=1))
        clock.ms += 3_600_000
        stream.add({"n": "new"})
        eventually(lambda: not stream.range(count=1) or len(stream) == 11)
        assert len(stream) == 11, "not older than an hour, but just that"
        clock.ms += 1
        stream.add({"n": "newer"})
        eventually(lambda: len(stream) == 2)
        eventually(
            lambda: store.metrics()["retained_entries"] == 450 + 40 + 10
        )  # behind the commit


def test_without_background_nothing_goes(tmp_path: Path) -> None:
    with opened(tmp_path / "store", FixedClock()) as store:
        store.stream("s").add_many({"n": n} for n in range(500))
        store.stream("s").configure(max_entries=10)
        time.sleep(1.5)
        assert len(store.stream("s")) == 500


def test_several_processes_drop_each_node_once(tmp_path: Path) -> None:
    """Each entry goes once, whoever does it; what is added meanwhile stays in order."""
    path = tmp_path / "store"

    def work() -> None:
        with logstore.open(path, sync="os") as store:
            stream = store.stream("s")
            for n in range(40):
                stream.add_many([{"n": n}] * 100)
                time.sleep(0.02)
            end = time.monotonic() + 120
            while len(stream) >= 210 and time.monotonic() < end:
                time.sleep(0.05)

    with opened(path, FixedClock()) as store:
        store.stream("s").configure(max_entries=200, create=True)
    children = [Forked(work) for _ in range(4)]
    for child in children:
        child.join()
    with opened(path, FixedClock()) as store:
        assert 200 <= len(store.stream("s")) < 210
        info = store.stream("s").info()
        assert info.entries_added == 4 * 40 * 100
        assert len(ids_of(store, b"s")) == info.length
    assert check(path).damage == []


def test_kills_of_retention_leave_whole_nodes(tmp_path: Path) -> None:
    """A writer with retention in its background is killed; what is left is an unbroken end."""
    path, seed = tmp_path / "store", seeds.seed()
    print(f"LOGSTORE_SEED={seed}")
    chance = random.Random(seed)
    with opened(path, FixedClock()) as store:
        store.stream("s").configure(max_entries=100, create=True)
    dropped = False
    for turn in range(KILLS):
        child = Program(WRITE, path)
        assert child.answer() == "open"
        time.sleep(0.15 + chance.random() * 0.4)
        child.kill()
        if turn % 2:
            shutil.rmtree(path / "index")
        with opened(path, FixedClock()) as store:
            stream = store.stream("s")
            numbers = [int(entry.fields[b"n"]) for entry in stream]
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
            assert stream.info().entries_added == numbers[-1] + 1
            assert len(stream) == len(numbers) >= 100
            assert all(len(node.ids) == 10 for node in nodes_of(store, b"s")[:-1])
            dropped = dropped or numbers[0] > 0
    assert dropped, "no kill came after retention had begun"
    assert check(path).damage == []


def test_a_process_that_finds_another_at_retention_leaves_it(tmp_path: Path) -> None:
    from logstore.engine.features.retention import Retention

    with opened(tmp_path / "store", FixedClock()) as store:
        store.stream("s").add_many({"n": n} for n in range(500))
        store.stream("s").configure(max_entries=10)
        shared = store._live()
        retention = Retention(shared.engine, shared.committer)
        with maintenance_locks.alone(shared.engine, 0, file_names.INDEX):
            retention.tick()
            assert len(store.stream("s")) == 500
        retention.tick()
        assert len(store.stream("s")) == 500, "it looks again after a second, not at once"
        retention._next_s = 0.0
        retention.tick()
        assert len(store.stream("s")) == 10


def test_a_forked_child_does_not_keep_the_care_lock(tmp_path: Path) -> None:
    """A child made in the middle of a compaction would keep it from all until its end."""
    with opened(tmp_path / "store", FixedClock()) as store:
        engine = store._live().engine
        with maintenance_locks.alone(engine):
            child = Forked(lambda: time.sleep(600))
            with pytest.raises(LockTimeoutError), maintenance_locks.alone(engine, 0):
                pass
        try:
            with maintenance_locks.alone(engine, 0):
                pass
        finally:
            child.kill()
        with maintenance_locks.alone(engine):
            Forked(lambda: None).join()  # nor does its end give the lock up
            with pytest.raises(LockTimeoutError), maintenance_locks.alone(engine, 0):
                pass
