"""``add_many`` of two-field dicts, against SQLite's executemany into a WAL table."""

from __future__ import annotations

import time

import logstore
from benchmarks import data
from benchmarks.harness import Bench, Result, at_least, interleave

NAME = "batch"
BATCH = 1000


def run(bench: Bench) -> list[Result]:
    """Rates of both, a commit for each 1000 rows."""
    count = bench.size(300_000, 100_000)
    rows = data.rows(count)
    database = data.database(bench.folder / "batch.db")
    with logstore.open(bench.folder / "batch") as store:
        stream = store.stream(data.STREAM)

        def ours(_: int) -> float:
            started = time.perf_counter()
            stream.add_many(rows, batch=BATCH)
            return count / (time.perf_counter() - started) / 1e6

        def peer(_: int) -> float:
            started = time.perf_counter()
            for first in range(0, count, BATCH):
                database.execute("BEGIN")
                database.executemany(data.INSERT, rows[first : first + BATCH])
                database.execute("COMMIT")
            return count / (time.perf_counter() - started) / 1e6

        labels = ("add_many", "SQLite executemany")
        samples = interleave(bench.rounds, ours, peer, labels)
    database.close()
    return [at_least("add_many of two-field dicts", "M rows/s", *samples, 3.0)]
