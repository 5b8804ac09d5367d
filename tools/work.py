"""``logstore work``: processes that do the jobs of a queue, until stopped.

Invariants: a stop (Ctrl-C, SIGTERM) ends each process after its running job; a second one at once.
With --drain the exit code is 0 only if there was a moment at which no job was left.
The line on a terminal is for eyes; without one nothing is printed but the report at the end.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from logstore.errors import StreamNotFoundError, UsageError
from logstore.tools import options
from logstore.tools.output import Output

TOLD_S = 1.0


@options.command("work", store=False)
@click.argument("app", metavar="MODULE:JOBS")
@click.option("--processes", type=click.IntRange(1, 1000), default=1, show_default=True,
              help="How many jobs are done at once.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1, 10_000), default=4, show_default=True,
              help="Jobs that a process fetches at once while they are quick.")  # fmt: skip
@click.option("--grace", type=click.FloatRange(min=0), default=30.0, show_default=True,
              metavar="SECONDS", help="How long a running job may go on after a stop.")  # fmt: skip
@click.option("--drain", is_flag=True, help="End when no job is left.")
def command(
    output: Output, app: str, processes: int, batch: int, grace: float, drain: bool
) -> None:
    """Do the jobs of a queue: MODULE:JOBS names the Jobs(...) of a program, as app:jobs.

    Processes that die are started again, and their jobs go to others. Ctrl-C or SIGTERM ends each
    process after its running job; a second one at once.

    With --drain it ends when no job waits, runs, also of workers that died, or is to be tried
    again, which it waits for. Jobs that are scheduled for later stay. Stopped before, it ends
    with 1 if jobs are left.
    """
    from logstore.jobs.app import load
    from logstore.jobs.pool import Pool

    with load(app) as jobs:
        jobs.ready()
        begun, before = time.monotonic(), jobs.info()
        left = (lambda: jobs.info().left) if drain else None
        pool = Pool(app, processes, batch=batch, grace_s=grace, left=left)
        with _stopping(pool), output.live() as show:
            pool.run(_teller(jobs, show))
        after = jobs.info()
    output.report(
        {
            "finished": after.finished - before.finished,
            "dead": after.dead,
            "waiting": after.waiting,
            "retrying": after.retrying,
            "scheduled": after.scheduled,
            "workers_died": pool.died,
            "workers_killed": pool.killed,
            "seconds": round(time.monotonic() - begun, 1),
        }
    )
    if drain and not pool.drained and after.left:
        raise UsageError(
            f"stopped before the end, with {after.left} of the jobs left: run it again"
        )


@contextmanager
def _stopping(pool: Any) -> Iterator[None]:
    """SIGINT and SIGTERM stop the pool."""
    numbers = signal.SIGINT, signal.SIGTERM
    previous = [signal.signal(number, lambda *_: pool.stop()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)


def _teller(jobs: Any, show: Callable[[str], None] | None) -> Callable[[int], None]:
    """What shows a line about once a second, if anybody looks."""
    state: dict[str, float] = {"at": 0.0, "finished": -1}

    def tell(running: int) -> None:
        now = time.monotonic()
        if show is None or now - state["at"] < TOLD_S:
            return
        try:
            info, longest = jobs.info(), jobs.running()[:1]
        except StreamNotFoundError:
            return
        rate = (info.finished - state["finished"]) / (now - state["at"])
        rated = f" ({rate:,.0f}/s)" if state["finished"] >= 0 else ""
        state.update(at=now, finished=info.finished)
        counts = [
            f"{running} workers",
            f"{info.running:,} running" + "".join(map(_longest, longest)),
            f"{info.waiting:,} waiting",
            *(f"{count:,} {what}" for what, count in (
                ("dead", info.dead), ("retrying", info.retrying), ("scheduled", info.scheduled)
            ) if count),
            f"{info.finished:,} finished{rated}",
        ]  # fmt: skip
        show(", ".join(counts))

    return tell


def _longest(job: Any) -> str:
    """The task that runs longest, and for how long."""
    return f" ({job.task} {job.since.total_seconds():,.0f} s)"
