"""Prevents a row that is lost or doubled, and a pin that is left, by whoever is killed in a job.

An executor is killed in the midst of a task, then the driver behind a commit, both with -9; the
query is started again on its checkpoint, in another driver.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logstore.clock import SYSTEM_CLOCK
from logstore.engine.runtime import pins
from logstore.engine.shm import process
from logstore.fs import LOCAL
from tests.scan.look import make_store
from tests.spark import killed_driver
from tests.spark.conftest import SCRATCH
from tests.spark.killed_driver import ROWS, ROWS_A_BATCH

ROOT = Path(__file__).resolve().parent.parent.parent
WAIT_S = 180
LAST_WORDS = 3000


def wait_for(what: Callable[[], Any], driver: subprocess.Popen[str], log: Path) -> Any:
    """What it gives, once it is true."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        found = what()
        if found:
            return found
        assert driver.poll() is None, log.read_text()[-LAST_WORDS:]
        time.sleep(0.05)
    raise AssertionError(f"{what} in vain: {log.read_text()[-LAST_WORDS:]}")


def copied(path: Path) -> list[int]:
    with make_store(path) as store:
        if "to" not in store:
            return []
        return [int(entry.fields["n"]) for entry in store["to"].range()]


def test_each_row_once_whoever_is_killed(spark: Any, tmp_path: Path) -> None:
    path, aside, log = tmp_path / "store", tmp_path / "aside", tmp_path / "log"
    aside.mkdir()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with make_store(path) as store:
        store["from"].add_many(({"n": n} for n in range(ROWS)), batch=7)
    command = [sys.executable, "-m", "tests.spark.killed_driver", str(path), str(aside)]
    with log.open("w") as told:
        driver = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=told, text=True)
    try:
        # An executor, while a task of it has staged a part of its rows.
        wait_for((aside / "held").exists, driver, log)
        executor = int((aside / "held").read_text())
        before = copied(path)
        assert before == list(range(len(before)))
        (pinned,) = (each for each in pins_of(path) if each.purpose == "spark")
        assert f"counted {ROWS}\n" in log.read_text()
        assert executor not in (pinned.pid, driver.pid)
        os.kill(executor, signal.SIGKILL)
        (aside / "go").touch()
        wait_for(lambda: len(copied(path)) >= len(before) + 2 * ROWS_A_BATCH, driver, log)
        # The driver: the Java process, as soon as a batch is seen, which Spark may not have noted.
        os.kill(pinned.pid, signal.SIGKILL)
        driver.kill()
    finally:
        driver.kill()
        driver.wait()
    amid = copied(path)
    assert amid == list(range(len(amid)))
    assert len(before) < len(amid) < ROWS
    wait_for_end(pinned)
    assert pins_of(path) == []
    query = killed_driver.a_copy(spark, path, aside)
    try:
        assert query.awaitTermination(WAIT_S)
    finally:
        query.stop()
    assert copied(path) == list(range(ROWS))
    jvm = int(spark.sparkContext._gateway.jvm.java.lang.ProcessHandle.current().pid())
    assert {each.pid for each in pins_of(path)} <= {jvm}


def pins_of(path: Path) -> list[Any]:
    return pins.living(LOCAL, path, SYSTEM_CLOCK.now_ms())


def wait_for_end(pin: Any) -> None:
    until = time.monotonic() + WAIT_S
    while process.lives(pin.pid, pin.start):
        assert time.monotonic() < until
        time.sleep(0.05)
