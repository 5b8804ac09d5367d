"""Prevents a row that is lost or doubled, and a pin or file that is left, by whoever is killed.

In a batch write the worker of the sink is killed in the midst of a task, with a part of its rows
staged, then the executor, and the third try fails by itself. In a streaming query an executor is
killed in the midst of a task, then the driver behind a commit, and the query is started again on
its checkpoint, in another driver. All are killed with -9.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from logstore.clock import SYSTEM_CLOCK
from logstore.engine.runtime import pins
from logstore.engine.shm import process_identity
from logstore.fs import LOCAL
from logstore.log import pinfile
from tests.scan.scanned_stores import make_store
from tests.spark import killed_driver
from tests.spark.conftest import SCRATCH
from tests.spark.killed_driver import PAD_BYTES, ROWS, ROWS_A_BATCH, WRITTEN

ROOT = Path(__file__).resolve().parent.parent.parent
WAIT_S = 600
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
    return numbers(path, "to")


def numbers(path: Path, name: str) -> list[int]:
    with make_store(path) as store:
        if name not in store:
            return []
        return [int(entry.fields["n"]) for entry in store[name].range()]


def staged(path: Path) -> list[str]:
    return [each.name for each in (path / "pins").iterdir() if each.suffix == pinfile.STAGED]


def staging(path: Path) -> int:
    """The process that writes a large staged file; 0 if there is none."""
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError):
                for fd in (each / "fd").iterdir():
                    name = os.readlink(fd)
                    ours = name.startswith(str(path)) and name.endswith(pinfile.STAGED)
                    if ours and Path(name).stat().st_size > PAD_BYTES:
                        return int(each.name)
    return 0


def test_a_write_whose_worker_is_killed_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    """Where no task is tried again: the job fails, and neither rows nor a file are seen of it."""
    path, aside = tmp_path / "store", tmp_path / "aside"
    aside.mkdir()
    with make_store(path) as store:
        store["from"].add({"n": "1"})

    def kill() -> int:
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            worker = staging(path)
            if worker and (aside / "try-0").exists():
                os.kill(worker, signal.SIGKILL)
                (aside / "go-0").touch()
                return worker
            time.sleep(0.02)
        return 0

    with ThreadPoolExecutor(1) as pool:  # the job in this one: Spark's session is of a thread
        killed = pool.submit(kill)
        with pytest.raises(Exception, match="crashed"):
            killed_driver.a_write(spark, path, aside)
        assert killed.result()
    with make_store(path) as store:
        assert store.streams() == [b"from"]
        until = time.monotonic() + WAIT_S / 6
        while staged(path):
            assert time.monotonic() < until
            time.sleep(0.02)


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
        # Of a write: the worker that stages rows, then the executor, while a part is staged.
        for number, of_all in enumerate((False, True)):
            wait_for((aside / f"try-{number}").exists, driver, log)
            worker = wait_for(lambda: staging(path), driver, log)
            executor = int((aside / f"try-{number}").read_text())
            assert executor not in (worker, driver.pid)
            assert numbers(path, "written") == []
            os.kill(executor if of_all else worker, signal.SIGKILL)
            (aside / f"go-{number}").touch()
        wait_for(lambda: "wrote\n" in log.read_text(), driver, log)
        assert numbers(path, "written") == list(range(WRITTEN))
        assert staged(path) == []
        # An executor, while a task of it has staged a part of its rows.
        wait_for((aside / "held").exists, driver, log)
        executor = int((aside / "held").read_text())
        before = copied(path)
        assert before == list(range(len(before)))
        (pinned,) = (each for each in pins_of(path) if each.purpose == "spark")
        assert f"counted {ROWS}\n" in log.read_text()
        assert f"planned {path}: 1 streams ('from') from " in log.read_text()
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
    while process_identity.lives(pin.pid, pin.start):
        assert time.monotonic() < until
        time.sleep(0.05)
