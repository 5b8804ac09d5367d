"""``python -m logstore.jobs.worker_process APP BATCH PARENT``: one process of a pool of workers.

Invariants: it ends after its running job at SIGTERM, or when its parent is gone; an interrupt from
the terminal is its parent's. Nothing is printed but by tasks.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

from logstore.jobs.jobs_app import load

PARENT_LOOK_S = 1.0


def main(given: list[str]) -> int:
    """Do jobs until stopped; the exit code."""
    name, batch, parent = given
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s worker {os.getpid()} %(levelname)s %(message)s"
    )
    threading.Thread(target=_watch, args=(int(parent), stop), daemon=True).start()
    with load(name) as jobs:
        jobs.work(batch=int(batch), stop=stop)
    return 0


def _watch(parent: int, stop: threading.Event) -> None:
    while not stop.wait(PARENT_LOOK_S):
        if os.getppid() != parent:
            stop.set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
