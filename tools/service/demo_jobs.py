"""The job queue of ``logstore demo``: what its workers do.

The store is named by the environment, as workers import this module by its name.
"""

from __future__ import annotations

import os
import random
import time
from datetime import timedelta

from logstore.jobs import Jobs

STORE_VARIABLE = "LOGSTORE_DEMO_STORE"
BUSY_SHARE = 0.05  # of the calls fail, and are tried again

jobs = Jobs(
    os.environ.get(STORE_VARIABLE, "demo.store"),
    retries=3,
    backoff=0.5,
    keep_results=timedelta(minutes=10),
)


@jobs.task(name="send_invoice")
def send_invoice(order: str) -> str:
    """Takes a moment; now and then the mail server is busy."""
    time.sleep(random.uniform(0.1, 0.6))
    if random.random() < BUSY_SHARE:
        raise ConnectionError("the mail server is busy")
    return f"invoice of order {order} sent"
