"""Scanning to Arrow on one core, against Parquet and SQLite; and the memory of a scan."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

import logstore
from benchmarks import data
from benchmarks.harness import Bench, Result, Sample, at_least, below, cores, fresh, in_turns

NAME = "reading"


FIELDS = ("temp", "hum")


def run(bench: Bench) -> list[Result]:
    """Entries a second on one core; anonymous memory of a process that scans."""
    entries = bench.size(10_000_000, 1_000_000)
    return [_rate(bench, min(entries, 1_000_000)), _memory(bench, entries)]


def _measured(number: int) -> dict[str, str]:
    return {
        "temp": f"{number * 7919 % 4_000_003 / 100:.2f}",
        "hum": str(number * 104_729 % 1_000_003),
    }


def _rate(bench: Bench, entries: int) -> Result:
    """Two text fields, all of them read: the same rows in the store, in Parquet, in SQLite.

    Most values are distinct, so that Parquet has no small dictionary to read instead of them.
    """
    import pyarrow as pa
    from pyarrow import parquet

    rows = [_measured(number) for number in range(entries)]
    database = sqlite3.connect(bench.folder / "reading.db", isolation_level=None)
    database.execute("CREATE TABLE measured (id INTEGER PRIMARY KEY, temp TEXT, hum TEXT)")
    database.execute("BEGIN")
    database.executemany("INSERT INTO measured (temp, hum) VALUES (:temp, :hum)", rows)
    database.execute("COMMIT")
    file = bench.folder / "reading.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), file)

    def rate(rows: Callable[[], int]) -> Callable[[int], float]:
        def timed(_: int) -> float:
            started = time.perf_counter()
            count = rows()
            return count / (time.perf_counter() - started) / 1e6

        return timed

    def from_parquet() -> int:
        rows: int = parquet.read_table(file, columns=list(FIELDS), use_threads=False).num_rows
        return rows

    def from_sqlite() -> int:
        found = database.execute("SELECT temp, hum FROM measured").fetchall()
        columns = map(list, zip(*found, strict=True))
        rows: int = pa.table(dict(zip(FIELDS, columns, strict=True))).num_rows
        return rows

    with logstore.open(bench.folder / "reading") as store, cores(1):
        stream = store.stream(data.STREAM)
        stream.add_many(rows, batch=10_000)
        sides = {
            "logstore": rate(lambda: sum(each.num_rows for each in stream.scan(columns=FIELDS))),
            "Parquet": rate(from_parquet),
            "SQLite": rate(from_sqlite),
        }
        ours, peer, other = in_turns(bench.rounds, sides)
    database.close()
    name = "scan two text fields to Arrow, one core"
    return at_least(name, "M rows/s", ours, peer, 1.0, others=[other])


def _memory(bench: Bench, entries: int) -> Result:
    store = data.history(bench, entries)
    found = [fresh("scan_memory", store, data.STREAM) for _ in range(2)]
    sample = Sample("RssAnon while scanning", [one["peak_mib"] for one in found])
    idle = Sample("before the scan", [one["idle_mib"] for one in found])
    return below(f"memory of a scan of {entries:,}", "MiB", sample, 100, idle)
