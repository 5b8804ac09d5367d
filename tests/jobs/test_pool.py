"""Prevents jobs that are lost or done twice by killed workers, and pools that do not end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.jobs import Jobs
from logstore.jobs.pool import load
from tests.jobs.app import deadly, endless, flaky, held, once

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
    queue.tasks = dict(load(APP).tasks)
    for task in (once, deadly, endless, flaky, held):
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
    running = pool(tmp_path / "s", "--grace", "200ms")
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
            load(name)


def wait_for_file(path: Path, running: subprocess.Popen[str]) -> None:
    """Wait until a job of a pool has left its file; the test's own limit ends this."""
    while not path.exists():
        assert running.poll() is None
        time.sleep(0.02)


def told_of(running: subprocess.Popen[str]) -> tuple[int, dict[str, int], str]:
    """The exit code of a pool that ends, its report, and what it says besides."""
    out, err = running.communicate(timeout=120)
    return running.returncode, json.loads(out), err


def test_a_drain_does_the_jobs_of_workers_that_were_killed(tmp_path: Path, jobs: Jobs) -> None:
    """It ended with 905 of 2,000 jobs left: those who found nothing to do knew no others."""
    count = 300
    for n in range(count):
        once.delay(n)
    running = pool(tmp_path / "s", "--drain", "--processes", "2")
    rng = random.Random(11)
    killed = 0
    while killed < 3:
        assert running.poll() is None
        alive = workers(running)
        if alive and jobs.info().finished > 50 * killed:
            with suppress(ProcessLookupError):  # one that was killed is replaced just now
                os.kill(rng.choice(alive), signal.SIGKILL)
                killed += 1
        time.sleep(0.02)
    code, told, err = told_of(running)
    assert code == 0, err
    assert (told["finished"], told["workers_died"], told["workers_killed"]) == (count, 3, 0)
    assert jobs.info().left == 0
    assert sorted(int(entry["n"]) for entry in jobs.store.stream("done")) == [*range(count)]


def test_a_drain_takes_over_the_last_job_of_a_killed_worker(tmp_path: Path, jobs: Jobs) -> None:
    """The one that took its place ended before the job was free to be taken."""
    held.delay(str(tmp_path / "begun"))
    running = pool(tmp_path / "s", "--drain")
    wait_for_file(tmp_path / "begun", running)
    for pid in workers(running):
        os.kill(pid, signal.SIGKILL)
    code, told, err = told_of(running)
    assert (code, told["finished"], told["workers_died"]) == (0, 1, 1), err
    assert jobs.info().left == 0


def test_a_drain_waits_for_a_retry_and_not_for_what_is_scheduled(
    tmp_path: Path, jobs: Jobs
) -> None:
    """A job that failed is left, until it was tried again; one for tomorrow is not."""
    flaky.delay(str(tmp_path / "tried"))
    once.submit((1,), after=86_400)
    code, told, err = told_of(pool(tmp_path / "s", "--drain"))
    assert (code, told["finished"], told["dead"]) == (0, 1, 0), err
    assert told["scheduled"] == 1
    assert jobs.info().left == 0


def test_a_drain_that_is_stopped_says_what_is_left(tmp_path: Path, jobs: Jobs) -> None:
    """A zero would be taken for all jobs done."""
    held.delay(str(tmp_path / "begun"))
    running = pool(tmp_path / "s", "--drain", "--grace", "100ms")
    wait_for_file(tmp_path / "begun", running)
    running.terminate()
    code, told, err = told_of(running)
    assert (code, told["finished"], told["workers_killed"]) == (1, 0, 1)
    assert "with 1 of the jobs left: run it again" in err
    assert jobs.info().left == 1
