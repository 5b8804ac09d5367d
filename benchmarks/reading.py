"""Scanning to Arrow on one core, against SELECT and a pyarrow table; and the memory of a scan."""

from __future__ import annotations

import time

import logstore
from benchmarks import data
from benchmarks.harness import Bench, Result, Sample, below, cores, fresh, interleave

NAME = "reading"


def run(bench: Bench) -> list[Result]:
    """Entries a second on one core; anonymous memory of a process that scans."""
    entries = bench.size(10_000_000, 1_000_000)
    return [_rate(bench, entries), _memory(bench, entries)]


def _rate(bench: Bench, entries: int) -> Result:
    import pyarrow as pa

    some = min(entries, 1_000_000)
    database = data.database(bench.folder / "reading.db")
    database.execute("BEGIN")
    database.executemany(data.INSERT, data.repeated(some))
    database.execute("COMMIT")
    with logstore.open(data.history(bench, entries)) as store, cores(1):
        stream = store.stream(data.STREAM)

        def ours(_: int) -> float:
            started = time.perf_counter()
            count: int = sum(batch.num_rows for batch in stream.scan())
            return count / (time.perf_counter() - started) / 1e6

        def peer(_: int) -> float:
            started = time.perf_counter()
            found = database.execute("SELECT id, rider, speed FROM race").fetchall()
            columns = zip(*found, strict=True)
            table = pa.table(dict(zip(("id", "rider", "speed"), map(list, columns), strict=True)))
            rows: int = table.num_rows
            return rows / (time.perf_counter() - started) / 1e6

        labels = ("scan to Arrow", "SQLite SELECT to Arrow")
        samples = interleave(bench.rounds, ours, peer, labels)
    database.close()
    mean, ratio = samples[0].mean, samples[0].mean / samples[1].mean
    return Result(
        "scan to Arrow, one core", "M entries/s", *samples, mean, ">= 3 M entries/s", mean >= 3,
        f"{ratio:.1f} x SQLite",
    )  # fmt: skip


def _memory(bench: Bench, entries: int) -> Result:
    store = data.history(bench, entries)
    found = [fresh("scan_memory", store, data.STREAM) for _ in range(2)]
    sample = Sample("RssAnon while scanning", [one["peak_mib"] for one in found])
    idle = Sample("before the scan", [one["idle_mib"] for one in found])
    return below(f"memory of a scan of {entries:,}", "MiB", sample, 100, idle)
