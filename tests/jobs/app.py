"""A program with tasks, as workers import it; the store's path comes from the environment."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from logstore.jobs import Jobs

jobs = Jobs(os.environ.get("JOBS_STORE", "jobs.store"), backoff=0.05)


@jobs.task
def plus(a: int, b: int) -> int:
    """The sum."""
    return a + b


@jobs.task(transaction=True, retries=5)
def once(tx: Any, n: int) -> None:
    """Leaves its number in a stream, exactly once."""
    time.sleep(0.002)
    tx.stream("done").add({"n": n})


@jobs.task(retries=1, backoff=1.0)
def flaky(path: str) -> None:
    """Fails when it is first tried, and leaves a file."""
    if not Path(path).exists():
        Path(path).touch()
        raise RuntimeError("the first time")


@jobs.task
def held(path: str) -> None:
    """Leaves a file and never returns, unless the file is there."""
    if not Path(path).exists():
        Path(path).touch()
        endless.function()


@jobs.task
def deadly() -> None:
    """Kills its worker."""
    os.kill(os.getpid(), signal.SIGKILL)


@jobs.task
def endless() -> None:
    """Never returns, and does not mind a SIGTERM."""
    while True:
        time.sleep(0.1)
