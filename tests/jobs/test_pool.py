"""Prevents jobs that are lost or done twice by killed workers, and pools that do not end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.jobs import Jobs, app
from tests.jobs.app import deadly, endless, once

APP = "tests.jobs.app:jobs"


def pool(store: Path, *options: str) -> subprocess.Popen[str]:
    """``logstore work``, as it runs in a terminal's place."""
    command = [sys.executable, "-m", "logstore.tools.cli", "work", APP, "--json", *options]
    return subprocess.Popen(
        command, env={**os.environ, "JOBS_STORE": str(store)}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The queue of the program, over a store of this test's."""
    queue = Jobs(tmp_path / "s")
    queue.tasks = dict(app.load(APP).tasks)
    for task in (once, deadly, endless):
        monkeypatch.setattr(task, "_jobs", queue)
    yield queue
    queue.close()


def workers(of: subprocess.Popen[str]) -> list[int]:
    """The processes of a pool."""
    path = Path(f"/proc/{of.pid}/task/{of.pid}/children")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def test_each_job_is_done_once_whoever_is_killed(tmp_path: Path, jobs: Jobs) -> None:
    """Workers are killed amid their jobs; what a job adds in its transaction is there once."""
    count = 500
    for n in range(count):
        once.delay(n)
    running = pool(tmp_path / "s", "--processes", "3")
    rng = random.Random(7)
    killed = 0
    while (info := jobs.info()).finished < count:  # the test's own limit ends this
        assert running.poll() is None
        there = workers(running)
        if there and killed < 3 and info.finished > 60 * killed:
            os.kill(rng.choice(there), signal.SIGKILL)
            killed += 1
        time.sleep(0.05)
    running.terminate()
    told = json.loads(running.communicate(timeout=60)[0])
    assert running.returncode == 0
    assert (told["finished"], told["dead"], told["workers_died"]) == (count, 0, killed)
    done = [int(entry["n"]) for entry in jobs.store.stream("done")]
    assert sorted(done) == list(range(count))
    with logstore.open(tmp_path / "s", readonly=True) as store:
        assert len(store["jobs"]) < 200  # what ended is dropped, whole nodes of it


def test_a_job_that_kills_its_workers_ends_dead_and_the_others_go_on(
    tmp_path: Path, jobs: Jobs
) -> None:
    """One that never returns is killed with its worker when the grace is over."""
    deadly.delay()
    running = pool(tmp_path / "s", "--grace", "0.2")
    while jobs.info().dead == 0:  # the test's own limit ends this
        assert running.poll() is None
        time.sleep(0.1)
    assert "workers died of it" in next(iter(jobs.dead))["origin_error"]
    endless.delay()
    while jobs.info().running == 0:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    told = json.loads(running.communicate(timeout=60)[0])
    assert told["workers_killed"] == 1
    assert jobs.info().running == 1  # it goes to the next worker


def test_a_drained_queue_and_names_that_are_none(tmp_path: Path, jobs: Jobs) -> None:
    """A pool ends by itself; a wrong name is one line, and no process is started."""
    for n in range(20):
        once.delay(n)
    done = pool(tmp_path / "s", "--drain", "--processes", "2")
    assert json.loads(done.communicate(timeout=60)[0])["finished"] == 20
    for name, told in {
        "no.such": "no module", "tests.jobs.app:none": "no queue", ":x": "module:attribute",
        "tests.jobs.test_pool": "0 queues",
    }.items():  # fmt: skip
        with pytest.raises(logstore.OptionError, match=told):
            app.load(name)
