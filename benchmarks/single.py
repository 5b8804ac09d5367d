"""One ``add`` under everysec, against a SQLite autocommit insert (WAL, synchronous=NORMAL)."""

from __future__ import annotations

import time

import logstore
from benchmarks import data
from benchmarks.harness import Bench, Result, at_most, interleave

NAME = "single"


def run(bench: Bench) -> list[Result]:
    """Microseconds of one call."""
    count = bench.size(20_000, 5_000)
    rows = data.rows(count)
    database = data.database(bench.folder / "single.db")
    with logstore.open(bench.folder / "single", sync="everysec") as store:
        stream = store.stream(data.STREAM)

        def ours(_: int) -> float:
            started = time.perf_counter()
            for row in rows:
                stream.add(row)
            return (time.perf_counter() - started) / count * 1e6

        def peer(_: int) -> float:
            started = time.perf_counter()
            for row in rows:
                database.execute(data.INSERT, row)
            return (time.perf_counter() - started) / count * 1e6

        labels = ("add, everysec", "SQLite insert")
        samples = interleave(2 * bench.rounds, ours, peer, labels)
    database.close()
    return [at_most("add under everysec", "us", *samples, 1.5)]
