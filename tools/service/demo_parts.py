"""The processes of ``logstore demo``: each a part of a small shop, over one store.

``python -m logstore.tools.service.demo_parts PART STORE PARENT`` runs one of them,
with the store in the environment for the job queue: ``visitors``
add events, orders and jobs; ``readers`` are two groups, of which one is too slow; ``workers`` do
the jobs, and one of them is killed now and then; ``web`` is the web view.

Invariants: a part ends at SIGTERM, or when its parent is gone, and leaves nothing behind. Streams
keep so many entries that the demo may run for days. What a part tells its parent is a JSON object
a line on stdout; the parent reads them.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import logstore
from logstore.errors import StreamNotFoundError, UsageError
from logstore.loading import needing
from logstore.signal_handlers import end_with_parent
from logstore.tools import command_options as options

if TYPE_CHECKING:
    from logstore.jobs.pool import Pool

VIEWS, ORDERS, SENSORS, DEAD = "page-views", "orders", "sensors:hall-1", "orders:dead"
BILLING, SEARCH = "billing", "search-index"
PAGES = ("/", "/shoes", "/shoes/trail-7", "/basket", "/help", "/sale")
KEPT = 20_000  # entries of a stream
TICK_S = 0.1
VIEWS_A_TICK, WAVE_S = 4, 40.0  # visitors come in waves
SLOW_A_TICK = 2
AGAIN_S = 1.0  # a broken order is tried again so soon
LEFT_BEHIND = 25
BROKEN_SHARE = 0.06  # of the orders have no amount: dead letters
PAST_S, PAST_EVERY_S = 3600, 6
WORKERS, FIRST_KILL_S, KILL_EVERY_S = 2, 4.0, 12.0
Random = random.Random


def prepare(path: Path) -> None:
    """Make the store: its streams, with an hour that has passed, and their groups."""
    drawn = Random(1)
    with logstore.open(path, encoding="utf-8") as store:
        now_ms = int(time.time() * 1000)
        begin_ms = now_ms - PAST_S * 1000
        times = range(begin_ms, now_ms, PAST_EVERY_S * 1000)
        store.stream(VIEWS).configure(create=True, max_entries=KEPT)
        store.stream(VIEWS).add_many((f"{at}-0", _view(drawn)) for at in times)
        store.stream(ORDERS).configure(create=True, max_entries=KEPT)
        store.stream(ORDERS).add_many((f"{at}-0", _order(drawn)) for at in times)
        store.stream(SENSORS).configure(
            create=True, max_entries=KEPT, schema="celsius double, humidity double"
        )
        store.stream(SENSORS).add_many((f"{at}-0", _reading(at / 1000)) for at in times)
        search = store.stream(VIEWS).group(SEARCH, start="0")
        search.read("indexer-0", count=LEFT_BEHIND)  # which never comes back
        for delivery in search.read("indexer-1"):
            delivery.ack()
        billing = store.stream(ORDERS).group(BILLING, start="0")
        billing.configure(max_deliveries=3, dead_letter=DEAD, min_idle=AGAIN_S)


def _view(drawn: Random) -> dict[str, str]:
    return {"page": drawn.choice(PAGES), "visitor": f"v{drawn.randrange(500)}"}


def _order(drawn: Random) -> dict[str, str]:
    broken = drawn.random() < BROKEN_SHARE
    amount = "n/a" if broken else f"{drawn.uniform(5, 250):.2f}"
    return {"customer": f"v{drawn.randrange(500)}", "amount": amount}


def _reading(at_s: float) -> dict[str, float]:
    return {
        "celsius": round(20 + 4 * math.sin(at_s / 600), 2),
        "humidity": round(45 + 9 * math.cos(at_s / 900), 1),
    }


# -- the parts --------------------------------------------------------------------------------
def visitors(path: Path, stop: threading.Event) -> None:
    """Add page views in waves, orders with a job each, and the readings of a sensor."""
    from logstore.tools.service.demo_jobs import jobs, send_invoice

    drawn, began_s = Random(), time.monotonic()
    with logstore.open(path, encoding="utf-8") as store, jobs:
        for tick in _ticks(stop):
            wave = 1 + math.sin(2 * math.pi * (time.monotonic() - began_s) / WAVE_S)
            views = round(VIEWS_A_TICK * wave * drawn.uniform(0.5, 1.5))
            store.stream(VIEWS).add_many([_view(drawn) for _ in range(views)])
            if tick % 3 == 0:
                send_invoice.delay(str(store.stream(ORDERS).add(_order(drawn))))
            if tick % 5 == 0:
                store.stream(SENSORS).add(_reading(time.time()))


def readers(path: Path, stop: threading.Event) -> None:
    """Bill the orders; put page views into an index of searches, too slowly."""
    with logstore.open(path, encoding="utf-8") as store:
        billing = store.stream(ORDERS).group(BILLING)
        search = store.stream(VIEWS).group(SEARCH)
        for _ in _ticks(stop):
            for delivery in billing.read("till-1", count=50):
                try:
                    float(delivery["amount"])
                except ValueError as error:
                    delivery.nack(error=str(error))
                else:
                    delivery.ack()
            for delivery in search.read("indexer-1", count=SLOW_A_TICK):
                delivery.ack()


def workers(_path: Path, stop: threading.Event) -> None:
    """Do the jobs in processes, and kill one of them now and then: its job goes to another."""
    from logstore.jobs.pool import Pool
    from logstore.tools.service import demo_jobs

    pool = Pool(f"{demo_jobs.__name__}:jobs", WORKERS, batch=1, grace_s=3.0)
    due_s = time.monotonic() + FIRST_KILL_S
    with demo_jobs.jobs as jobs:

        def each_step(_running: int) -> None:
            nonlocal due_s
            if stop.is_set():
                pool.stop()
                stop.clear()  # a second signal ends the workers at once
            elif time.monotonic() >= due_s and _kill_one(pool, jobs):
                due_s = time.monotonic() + KILL_EVERY_S

        pool.run(each_step)


def _kill_one(pool: Pool, jobs: Any) -> bool:
    """Kill a worker of the pool in the middle of a job; whether one had a job."""
    try:
        running = jobs.running()
    except StreamNotFoundError:  # there was no job yet
        return False
    for job in running:
        for pid in pool.pids:
            if f":{pid}:" in job.worker:
                os.kill(pid, signal.SIGKILL)
                _tell(killed=pid, task=job.task)
                return True
    return False


def web(path: Path, stop: threading.Event) -> None:
    """Show the store in a browser, at an address that is told."""

    def server_class() -> Any:
        from logstore.web.app import Server

        return Server

    try:
        make_server = needing("web", server_class)
    except UsageError as error:
        _tell(missing=str(error))
        return
    with options.reading(path) as store:
        server = make_server(store, "127.0.0.1", 0, "", write=False)
        server.bind()
        _tell(address=server.address())
        threading.Thread(target=_end_with, args=(stop,), daemon=True).start()
        server.run()


def _end_with(stop: threading.Event) -> None:
    """End the server, which takes the signal over once it runs."""
    stop.wait()
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(TICK_S)


def _ticks(stop: threading.Event) -> Iterator[int]:
    """Numbers from 0 on, ten a second, until the end."""
    for tick in count():
        if stop.wait(TICK_S):
            return
        yield tick


def _tell(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


PARTS: dict[str, Callable[[Path, threading.Event], None]] = {
    "visitors": visitors,
    "readers": readers,
    "workers": workers,
    "web": web,
}


def main(given: list[str]) -> int:
    """Run a part until it is stopped; the exit code."""
    part, path, parent = given
    stop = threading.Event()
    end_with_parent(stop, int(parent))
    PARTS[part](Path(path), stop)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
