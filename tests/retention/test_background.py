"""Prevents retention that nobody does, or that drops what nobody was shipped yet."""

from __future__ import annotations

import random
import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.runtime import maintenance_locks
from logstore.errors import LockTimeoutError, OptionError
from logstore.log import file_names
from logstore.recovery.check import check
from tests import seeds
from tests.retention.retained import ids_of, nodes_of, opened
from tests.support.inside import FixedClock
from tests.support.processes import Forked, Program
from tests.support.waits import eventually
from tests.tools.commands import ok

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
        assert store.metrics()["retained_entries"] == 450 + 40 + 10


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


def kept(store: logstore.Store[bytes]) -> Any:
    store.retain()
    return ids_of(store, b"s")


def test_keep_until_shipped_drops_shipped_nodes_only(tmp_path: Path) -> None:
    path, uri, clock = tmp_path / "store", tmp_path / "away", FixedClock()
    with opened(path, clock) as store:
        stream, free = store.stream("s"), store.stream("free")
        for each in (stream, free):
            each.configure(max_entries=0)
        assert stream.configure(keep_until_shipped=True).keep_until_shipped
        for n in range(50):
            stream.add({"n": n})
            free.add({"n": n})
        every = ids_of(store, b"s")
        assert kept(store) == every
        assert ids_of(store, b"free") == []
        assert store.info().shipped_ms == 0
        store.ship(uri)
        shipped = store.info()
        assert (shipped.unshipped_bytes, shipped.shipped_ms) == (0, clock.ms)
        assert shipped.shipped_to == str(uri)
        for n in range(50):
            stream.add({"n": n})
        assert store.info().unshipped_bytes > 0
        left = kept(store)  # of the node that was open then, entries came behind what was shipped
        assert set(every) - set(left)
        assert left == (every + left[-50:])[-len(left) :]
        with logstore.open(uri, readonly=True) as view:
            assert ids_of(view, b"s") == every
        store.ship(uri)
        assert kept(store) == []
        stream.add({"n": 1})
        assert len(kept(store)) == 1
        stream.configure(keep_until_shipped=False)
        assert kept(store) == []
        with pytest.raises(OptionError, match="keep_until_shipped"):
            stream.configure(keep_until_shipped=1)  # type: ignore[arg-type]


def test_nodes_moved_by_compaction_count_as_shipped(tmp_path: Path) -> None:
    """The segments of compaction have higher numbers than the one that is written to."""
    path, uri, clock = tmp_path / "store", tmp_path / "away", FixedClock()
    with opened(path, clock) as store:
        stream = store.stream("s")
        ids = [stream.add({"n": n, "pad": "x" * 50}) for n in range(200)]
        stream.configure(keep_until_shipped=True, max_entries=0)
        stream.delete(*ids[::2], *ids[1:180:4])
        store.compact()
        assert kept(store) == ids_of(store, b"s") != []
        store.ship(uri)
        assert kept(store) == []


def test_a_record_that_is_damaged_counts_as_none(tmp_path: Path) -> None:
    path, uri = tmp_path / "store", tmp_path / "away"
    ok("add", path, "s", "a=1")
    ok("configure", path, "s", "--max-entries", "0", "--keep-until-shipped", "yes", "--yes")
    ok("ship", path, uri)
    assert "all of it" in ok("info", path)
    record = path / "SHIPPED"
    whole = record.read_bytes()
    for bad in (b"", bytes(len(whole)), whole[:-1], whole[:4] + b"\x00" + whole[5:]):
        record.write_bytes(bad)
        ok("retain", path)
        with logstore.open(path, readonly=True) as store:
            assert (len(store.stream("s")), store.info().shipped_ms) == (1, 0)
    record.write_bytes(whole)
    ok("retain", path)
    with logstore.open(path, readonly=True) as store:
        assert len(store.stream("s")) == 0
