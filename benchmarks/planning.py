"""What a plan of Spark takes: time, memory, bytes; and how little is read of an hour of many.

A plan is made in a process of its own, as Spark's planner is, and its most resident memory is that
of the whole process, with Python and pyspark. What it takes depends on the number of nodes, not on
the entries in them, so quick runs have small nodes.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import logstore
from benchmarks import data, sensors
from benchmarks.harness import Bench, Result, Sample, below, cores, fresh, in_turns

NAME = "planning"
STREAMS_A_COMMIT = 1000
EVERYTHING = "*"
LIMITS = {"seconds": 2.0, "MiB": 200.0, "bytes a node": 60.0, "KiB": 64.0}


def run(bench: Bench) -> list[Result]:
    """Plans of a large stream and of many, now and as of a moment; a hundredth by time."""
    return [*_large(bench), *_many(bench), *_hundredth(bench)]


# -- plans ----------------------------------------------------------------------------------
def _large(bench: Bench) -> list[Result]:
    """One stream of a million nodes."""
    nodes = bench.size(1_000_000, 1_000_000)
    each = 8 if bench.quick or bench.tiny else 100  # entries
    path = sensors.store(bench, nodes * each, each)
    found = _plans(bench, path, sensors.STREAM)
    name = f"plan of {nodes:,} nodes"
    results = [
        *_results(name, found),
        _limited(f"{name}: its file", "bytes a node", [one["node_bytes"] for one in found]),
        _limited(f"{name}: the largest split", "KiB", [one["split_kib"] for one in found]),
    ]
    shutil.rmtree(path)
    return results


def _many(bench: Bench) -> list[Result]:
    """As many streams as there are customers, one entry each."""
    count = bench.size(100_000, 100_000)
    path = bench.folder / "many"
    with logstore.open(path, sync="os") as store:
        for first in range(0, count, STREAMS_A_COMMIT):
            with store.transaction() as transaction:
                for number in range(first, min(first + STREAMS_A_COMMIT, count)):
                    transaction.stream(f"customer:{number}").add(data.rows(1, number)[0])
        token = store.moment()
    results = [
        *_results(f"plan of {count:,} streams", _plans(bench, path, EVERYTHING)),
        *_results(
            f"plan of {count:,} streams as of a moment", _plans(bench, path, EVERYTHING, token)
        ),
    ]
    shutil.rmtree(path)
    return results


def _plans(bench: Bench, path: Path, streams: str, token: str = "") -> list[dict[str, Any]]:
    return [fresh("plan", path, streams, token) for _ in range(bench.rounds)]


def _results(name: str, found: list[dict[str, Any]]) -> list[Result]:
    seconds = Sample("logstore", [one["seconds"] for one in found])
    processor = Sample("of the processor", [one["processor_s"] for one in found])
    return [
        below(f"{name}", "s", seconds, LIMITS["seconds"], processor),
        _limited(f"{name}: memory of the planner", "MiB", [one["peak_mib"] for one in found]),
    ]


def _limited(name: str, unit: str, values: list[float]) -> Result:
    return below(name, unit, Sample("logstore", values), LIMITS[unit])


# -- a hundredth ----------------------------------------------------------------------------
def _hundredth(bench: Bench) -> list[Result]:
    """A sum over one of a hundred stretches of time, by each way that there is to ask for it."""
    import duckdb
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

    import logstore.duckdb
    import logstore.polars

    rows = bench.size(10_000_000, 10_000_000)
    low, high = (sensors.FIRST_MS + rows * part // 100 for part in (50, 51))
    # parquet has the same rows in four files, with statistics for each row group
    files = str(sensors.parquet_files(bench, rows) / "*.parquet")
    types: dict[str, Any] = {"ts": None, "temp": pa.float64()}
    spans = f"ts >= make_timestamptz({low * 1000}) and ts < make_timestamptz({high * 1000})"
    ask = f"select count(*), sum(temp) from {{}} where {spans}"
    moments = [pl.lit(each).cast(pl.Datetime("ms", "UTC")) for each in (low, high)]
    wanted = (high - low,)
    path = sensors.store(bench, rows)
    with logstore.open(path, create=False, sync="os") as store, cores(1), duckdb.connect() as con:
        con.execute("set threads to 1; set timezone to 'UTC'")
        stream = store.stream(sensors.STREAM)
        logstore.duckdb.attach(con, store, schema=types)

        def by_scan() -> Any:
            where = [("ms", ">=", low), ("ms", "<", high)]
            table = stream.scan(columns=types, where=where).to_arrow()
            return table.num_rows, pc.sum(table["temp"]).as_py()

        def by_range() -> Any:
            table = stream.scan(str(low), f"({high}-0", columns=types).to_arrow()
            return table.num_rows, pc.sum(table["temp"]).as_py()

        def by_duckdb(source: str) -> Any:
            return con.execute(ask.format(source)).fetchone()

        def by_polars() -> Any:
            frame = logstore.polars.scan(store, sensors.STREAM, schema=types)
            inside = frame.filter((pl.col("ts") >= moments[0]) & (pl.col("ts") < moments[1]))
            return inside.select(pl.len(), pl.col("temp").sum()).collect().row(0)

        def processor(work: Callable[[], Any], _: int) -> float:
            started = time.process_time()
            found = work()
            taken = time.process_time() - started
            assert found[:1] == wanted, (found, wanted)
            return taken

        ways: dict[str, Callable[[], Any]] = {
            "scan(start, end)": by_range,
            "scan(where=)": by_scan,
            "DuckDB": partial(by_duckdb, f'"{sensors.STREAM}"'),
            "Polars": by_polars,
            "DuckDB over Parquet": partial(by_duckdb, f"'{files}'"),
        }
        sides = {label: partial(processor, work) for label, work in ways.items()}
        *ours, parquet = in_turns(bench.rounds, sides)
    slowest = max(ours, key=lambda each: statistics.fmean(each.values))
    others = [each for each in ours if each is not slowest]
    name = f"a hundredth of {rows:,} rows by time, processor"
    return [
        Result(
            name, "s", slowest, parquet, slowest.mean, "<= 0.15 s", slowest.mean <= 0.15,
            others=others,
        )
    ]  # fmt: skip
