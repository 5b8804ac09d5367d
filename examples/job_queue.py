"""A job queue: jobs are given here, and done by workers that may be killed at any moment.

python job_queue.py                               # gives jobs, and waits for the results
logstore work job_queue:jobs --processes 4        # does them, in another terminal
"""

from __future__ import annotations

import os
import random
from datetime import timedelta
from typing import Any

from logstore.jobs import Jobs

jobs = Jobs(os.environ.get("JOB_QUEUE", "queue.store"), retries=5, backoff=0.1)


@jobs.task
def resize(picture: str, width: int) -> str:
    """A job that fails now and then: it is tried again, later each time."""
    if random.random() < 0.2:
        raise OSError("the disk was busy")
    return f"{picture} at {width} pixels"


@jobs.task(transaction=True)
def charge(tx: Any, account: str, cents: int) -> None:
    """What it adds is one commit with its end: it is there once, whoever is killed."""
    tx.stream("charges").add({"account": account, "cents": cents})


@jobs.task(every=timedelta(seconds=1), transaction=True)
def heartbeat(tx: Any) -> None:
    """A job that repeats, each time once, however many workers there are."""
    tx.stream("heartbeats").add({"alive": "yes"}, max_entries=1000)


def main() -> None:
    """Give some jobs, and wait for them."""
    pictures = [resize.delay(f"picture {n}", 640) for n in range(20)]
    charges = [charge.delay("ann", 100) for _ in range(20)]
    for job in pictures:
        print(job.result(timeout=60))
    for job in charges:
        job.result(timeout=60)
    print(len(jobs.store.stream("charges")), "charges")
    jobs.close()


if __name__ == "__main__":
    import job_queue  # the module that workers import, so that names of tasks are the same

    job_queue.main()
