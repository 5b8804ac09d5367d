"""Prevents a promise of durability from being forgotten, believed too early, or seen too early."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import logstore
from logstore.clock import monotonic_ms
from logstore.format import offset_of, segment_of
from tests.support.processes import Forked
from tests.support.threads import run_all
from tests.support.waits import eventually
from tests.support.watched_files import (
    FileOperation,
    OperationLog,
    WatchedFileSystem,
    in_place,
)


def test_threads_share_a_sync(tmp_path: Path) -> None:
    """Group commit: under ``always`` sixteen threads need far fewer syncs than operations."""

    class SlowDisk(OperationLog):
        def after(self, operation: FileOperation) -> None:
            if operation.kind == "sync":
                time.sleep(0.002)

    with in_place(SlowDisk()) as files, logstore.open(tmp_path / "store", sync="always") as store:
        before = len(files.of("sync"))

        def add(name: str) -> None:
            for _ in range(25):
                store.stream(name).add({"a": 1})

        threads = [threading.Thread(target=add, args=(f"s{number}",)) for number in range(16)]
        run_all(threads)
        metrics = store.metrics()
        syncs = len(files.of("sync")) - before
        assert metrics["operations"] == 16 * 25
        assert sum(len(store.stream(name)) for name in store.streams()) == 16 * 25
        assert syncs < 16 * 25 / 3, f"{syncs} syncs for 400 operations"
        assert metrics["commits"] <= syncs + 1


def test_readers_see_only_durable_entries_under_always(tmp_path: Path) -> None:
    """Under ``always`` a reader that saw an entry could act on what a power cut takes back."""
    seen: list[int] = []

    class ReadAtSync(WatchedFileSystem):
        store: logstore.Store[bytes] | None = None

        def before(self, operation: FileOperation) -> None:
            if operation.kind == "sync" and self.store is not None:
                run_all([threading.Thread(target=self.count, args=(self.store,))])

        @staticmethod
        def count(store: logstore.Store[bytes]) -> None:
            seen.append(len(list(store.stream("a").range())))

    files = ReadAtSync()
    path = tmp_path / "store"
    with in_place(files), logstore.open(path, sync="always", background=False) as store:
        files.store = store
        for number in range(5):
            store.stream("a").add({"n": number})
        files.store = None
    assert seen == [0, 1, 2, 3, 4]


def test_everysec_outlives_the_process_that_promised_it(tmp_path: Path) -> None:
    """The flusher's process is killed: the next opener syncs first, before it says durable."""
    path = tmp_path / "store"
    logstore.open(path).close()

    def die() -> None:
        store = logstore.open(path, sync="everysec")
        for number in range(10):
            store.stream("a").add({"n": number})
        os.kill(os.getpid(), signal.SIGKILL)

    child = Forked(die)
    os.waitpid(child.pid, 0)
    with in_place(OperationLog()) as files, logstore.open(path, background=False) as store:
        synced = [each.path.name for each in files.of("sync")]
        assert synced[0].endswith(".log") or "STORE" in synced[0] or "BOOT" in synced[0]
        assert any(name.endswith(".log") for name in synced)
        assert len(store.stream("a")) == 10
        words = store._live().engine.wake
        assert store.durable_upto == (
            segment_of(words.log().applied),
            offset_of(words.log().applied),
        )


def test_a_living_process_keeps_the_promise_of_a_dead_one(tmp_path: Path) -> None:
    """Every open process has a flusher that acts, no matter whose commits they are."""
    path = tmp_path / "store"
    with logstore.open(path, sync="os") as store:

        def die() -> None:
            mine = logstore.open(path, sync="everysec", background=False)
            mine.stream("a").add({"a": 1})
            os.kill(os.getpid(), signal.SIGKILL)

        child = Forked(die)
        os.waitpid(child.pid, 0)
        wake = store._live().engine.wake
        assert wake.durable_upto < wake.log().applied
        eventually(lambda: wake.durable_upto >= wake.log().applied)
        assert wake.oldest_unsynced_ms == 0


def test_the_time_of_a_commit_made_during_a_sync_runs_from_its_beginning(tmp_path: Path) -> None:
    """Not from the end of the sync: the bound of ``everysec`` would be two syncs, not one."""
    made_ms: list[int] = []

    class AddAtSync(WatchedFileSystem):
        armed = False

        def before(self, operation: FileOperation) -> None:
            of_segment = operation.kind == "sync" and operation.path.suffix == ".log"
            if of_segment and self.armed:
                self.armed = False
                made_ms.append(monotonic_ms())
                store.stream("a").add({"n": 2})
                time.sleep(0.05)  # the disk

    files = AddAtSync()
    path = tmp_path / "store"
    with in_place(files), logstore.open(path, sync="everysec", background=False) as store:
        store.stream("a").add({"n": 1})
        files.armed = True
        store.sync()
        wake = store._live().engine.wake
        assert wake.durable_upto < wake.applied
        assert 0 < wake.oldest_unsynced_ms <= made_ms[0]
        store.sync()
        assert wake.oldest_unsynced_ms == 0


def test_a_death_right_behind_the_index_is_not_taken_for_durable(tmp_path: Path) -> None:
    """The tail check finds nothing to apply then, and must sync all the same."""
    path = tmp_path / "store"
    with logstore.open(path, sync="os", background=False) as store:
        store.stream("a").add({"a": 1})
        words = store._live().engine.wake
        words.begin(words.log().commit + 1)  # as left by a writer that died before publishing
        files = store._live().engine.fs = OperationLog()
        assert words.durable_upto < words.log().applied
        applied = words.log().applied
        store.stream("a").add({"a": 2})
        assert words.durable_upto >= applied
        assert files.of("sync")
