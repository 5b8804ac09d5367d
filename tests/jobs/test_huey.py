"""Prevents a Huey that behaves otherwise than huey's own, or loses the task of a killed worker.

huey brings its own tests along: those of what it asks of a storage are run here, over a store.
"""

from __future__ import annotations

import importlib
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from huey.exceptions import TaskException
from huey.tests import base, test_api, test_consumer, test_priority, test_storage

import logstore
from logstore.jobs import gone
from logstore.jobs import huey as of_huey
from logstore.jobs.huey import StoreHuey
from tests.support.processes import Forked

# Left out: a test that looks into the memory of huey's storage in memory.
INSIDE = {"test_chord_bookkeeping_cleared"}


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One store for all of huey's tests, open all the while; each has queues of its own."""
    Stored.path = tmp_path_factory.mktemp("huey") / "s"
    with logstore.open(Stored.path, sync="os"):
        yield


class Stored:
    """huey's tests make their Huey here."""

    keeps_taken = True
    path: Path
    number = itertools.count()

    def get_huey(self) -> StoreHuey:
        """One whose queue nobody used."""
        name = f"huey-{next(self.number)}"
        return StoreHuey(name, utc=False, path=self.path, sync="os", keeps_taken=self.keeps_taken)


class TestTheirStorages(Stored, test_storage.StorageTests, base.BaseTestCase):
    """Queue, schedule, results, counters, priorities."""

    keeps_taken = False  # they take and never execute


def over_a_store(theirs: type[base.BaseTestCase]) -> type[base.BaseTestCase]:
    """The same tests over a store."""
    left_out = {name: None for name in INSIDE if hasattr(theirs, name)}
    return type(f"{theirs.__name__}OverAStore", (Stored, theirs), left_out)


TestTheirTasks = over_a_store(test_api.TestQueue)
TestTheirGroups = over_a_store(test_api.TestGroupPrimitive)
TestTheirChords = over_a_store(test_api.TestChordPrimitive)
TestTheirPipelines = over_a_store(test_api.TestTaskChaining)
TestTheirLocks = over_a_store(test_api.TestTaskLocking)
TestTheirRateLimits = over_a_store(test_api.TestRateLimit)
TestTheirConsumers = over_a_store(test_consumer.TestConsumerIntegration)
TestTheirPriorities = over_a_store(test_priority.TestPriority)

APP = """
import os
from huey import crontab
from logstore.jobs.huey import StoreHuey

huey = StoreHuey("beans", path=os.environ["BEANS"])

@huey.task(retries=1, retry_delay=0)
def count_beans(n):
    if n < 0:
        raise ValueError("no beans")
    return f"-- counted {n} beans --"

@huey.periodic_task(crontab(minute="*"))
def every_minute():
    return None
"""


def test_their_example_with_their_consumer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of huey's guide: ``huey_consumer`` with two processes, results, an error."""
    (tmp_path / "beans_app.py").write_text(APP)
    monkeypatch.setenv("BEANS", str(tmp_path / "beans"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    command = [sys.executable, "-m", "huey.bin.huey_consumer", "beans_app.huey", "-w", "2"]
    consumer = subprocess.Popen([*command, "-k", "process"], cwd=tmp_path)
    app: Any = importlib.import_module("beans_app")
    try:
        given = [app.count_beans(n) for n in range(20)]
        bad = app.count_beans(-1)
        later = app.count_beans.schedule((7,), delay=0.1)
        for n, result in enumerate(given):
            assert result.get(blocking=True, timeout=30) == f"-- counted {n} beans --"
        with pytest.raises(TaskException, match="no beans"):
            bad.get(blocking=True, timeout=30)
        assert later.get(blocking=True, timeout=30) == "-- counted 7 beans --"
        consumer.send_signal(signal.SIGINT)  # ends after the running tasks
        assert consumer.wait(30) == 0
        assert app.huey.pending_count() == 0
    finally:
        consumer.kill()
        consumer.wait()
        app.huey.storage.close()
        del sys.modules["beans_app"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits, neither for tasks nor before a dead worker's are taken."""
    monkeypatch.setattr(of_huey, "WAIT_S", 0.0)
    monkeypatch.setattr(gone, "CLAIM_IDLE", timedelta(0))
    monkeypatch.setattr(gone, "LOOK_S", 0.0)


def _taker(path: Path, taken: Path) -> None:
    huey = StoreHuey(path=path)
    huey.task(name="add")(lambda n: n + 1)
    huey.dequeue()
    taken.touch()
    time.sleep(60)


def test_a_task_of_a_worker_that_was_killed_goes_to_another(tmp_path: Path, quick: None) -> None:
    """And not before; it ends once."""
    huey = StoreHuey(path=tmp_path / "s")
    add = huey.task(name="add")(lambda n: n + 1)
    result = add(1)
    holder = Forked(lambda: _taker(tmp_path / "s", tmp_path / "taken"))
    try:
        while not (tmp_path / "taken").exists():  # the test's own limit ends this
            time.sleep(0.01)
        assert huey.pending_count() == 0
        assert huey.dequeue() is None
    finally:
        holder.kill()
    huey.execute(huey.dequeue())
    assert result() == 2
    assert huey.dequeue() is None
    assert not list(huey.storage.store.stream("huey"))
    huey.storage.close()


def test_a_task_that_kills_its_workers_and_one_that_cannot_be_read_are_dead_letters(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    huey = StoreHuey(path=tmp_path / "s")
    huey.task(name="add")(lambda n: n + 1)(1)
    monkeypatch.setattr(gone, "process_ended", lambda name: True)
    for _ in range(4):
        assert huey.dequeue() is not None
        huey.storage._mine.who = None  # as another worker
    assert huey.dequeue() is None
    huey.storage.enqueue(b"no task")
    with pytest.raises(Exception, match=r"pickle|load|opcode|persistent"):
        huey.dequeue()
    monkeypatch.undo()
    dead = list(huey.storage.store.stream("huey:dead"))
    assert [each["task"][:7] == b"no task" for each in dead] == [False, True]
    huey.storage.close()


def test_an_interrupted_task_is_another_workers(tmp_path: Path) -> None:
    """huey's own storages lose a task that Ctrl-C stops."""
    huey = StoreHuey(path=tmp_path / "s")
    calls: list[int] = []

    @huey.task()
    def stopped() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return 5

    result = stopped()
    huey.execute(huey.dequeue())
    huey.execute(huey.dequeue())
    assert result() == 5
    huey.storage.close()


def test_concurrent_changes_of_the_storage_happen_once_each(tmp_path: Path) -> None:
    """Counters, locks, and results that are popped, of processes beside each other."""
    path = tmp_path / "s"

    def work() -> None:
        storage: Any = StoreHuey(path=path, sync="os").storage
        for n in range(50):
            storage.incr("count")
            if storage.put_if_empty(f"lock {n}", b"mine"):
                storage.incr("won")
            if storage.pop_data(f"one {n}") == b"x":
                storage.incr("popped")
            storage.put_data("turns", b"x")
            storage.pop_data("turns")
        storage.close()

    storage: Any = StoreHuey(path=path, sync="os").storage
    for n in range(50):
        storage.put_data(f"one {n}", b"x")
    workers = [Forked(work) for _ in range(3)]
    for worker in workers:
        worker.join()
    assert [storage.incr(name, 0) for name in ("count", "won", "popped")] == [150, 50, 50]
    storage.close()


def test_immediate_mode_is_hueys_own(tmp_path: Path) -> None:
    """Tests of programs run tasks at the call, and no store is made."""
    huey = StoreHuey(path=tmp_path / "s", immediate=True)
    assert huey.task(name="add")(lambda n: n + 1)(1)() == 2
    assert not (tmp_path / "s").exists()
