"""Spark on two cores: what a DataFrame of a store takes beside one of Parquet and of JSON lines.

One session reads the same rows from all of them, in turns. A frame is loaded, and so planned, in
the round that does not count; what loading takes is a figure of its own. Rows go to Spark's
``noop`` sink, which takes every column. Where a goal depends on what Spark itself takes for each
row of a Python source, ``hand-over alone`` is one side: a source with batches made before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import logstore
from benchmarks import sensors
from benchmarks.harness import (
    CORES,
    Bench,
    Curve,
    Result,
    Sample,
    at_most,
    below,
    in_turns,
)

NAME = "spark"
MAP = "fields map<string,string>"
OURS, PARQUET, LINES, ALONE = "logstore", "Parquet", "JSON lines", "hand-over alone"
SAMPLE_S = 0.02

Frame = Any
Loaded = Callable[[], Frame]


def run(bench: Bench) -> list[Result | Curve]:
    """Reads, counts, writes, and the memory of the workers."""
    rows = bench.size(10_000_000, 3_000_000)
    with session(bench) as spark:
        made = _Sides(spark, bench, rows)
        memory = _memory(made)  # first: workers keep what they had of other queries
        reads = [*_typed(made), _map(made), _all_columns(made), *_count(made)]
        return [*reads, _sink(made), *memory]


@contextmanager
def session(bench: Bench) -> Iterator[Any]:
    """A session on two cores with the source registered: the one that there is, or a new one."""
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    from benchmarks import handover
    from logstore.spark_io import register

    before = SparkSession.getActiveSession()
    spark = before or (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("logstore benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.local.dir", str(bench.folder / "spark"))
        .config("spark.sql.warehouse.dir", str(bench.folder / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    cloudpickle.register_pickle_by_value(handover)
    try:
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        spark.dataSource.register(handover.HandOver)
        yield spark
    finally:
        cloudpickle.unregister_pickle_by_value(handover)
        if before is None:
            spark.stop()


class _Sides:
    """The frames of one question's rows."""

    def __init__(self, spark: Any, bench: Bench, rows: int) -> None:
        self.spark = spark
        self.bench = bench
        self.rows = rows

    def ours(self, schema: Any, rows: int | None = None) -> Frame:
        """Of the store; without a schema the standard columns."""
        path = sensors.store(self.bench, rows or self.rows)
        reader = self.spark.read.format("logstore").option("stream", sensors.STREAM)
        return (reader if schema is None else reader.schema(schema)).load(str(path))

    def parquet(self, folder: Path) -> Frame:
        """Of Parquet."""
        return self.spark.read.parquet(str(folder))

    def lines(self, schema: str) -> Frame:
        """Of JSON lines."""
        return self.spark.read.schema(schema).json(str(sensors.json_files(self.bench, self.rows)))

    def alone(self, schema: str | None, rows: int | None = None) -> Frame:
        """Of batches that are there: one that our own reader made."""
        import pyarrow as pa

        from logstore.spark_io.source import LogstoreSource
        from logstore.spark_io.split_tasks import SplitPartition

        path = sensors.store(self.bench, self.rows)
        source = LogstoreSource({"path": str(path), "stream": sensors.STREAM})
        spark_schema = self.ours(schema).schema
        reader = source.reader(spark_schema)
        parts = reader.partitions()
        assert isinstance(parts[0], SplitPartition)
        batch = next(iter(reader.read(parts[0])))
        with logstore.open(path, create=False) as opened:
            opened.release_pins(parts[0].split.pin_id)
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        return (
            self.spark.read.format("handover")
            .schema(spark_schema)
            .option("batch", out.getvalue().to_pybytes().hex())
            .option("rows", str(rows or self.rows))
            .load()
        )

    def measured(
        self, frames: Mapping[str, Loaded], query: Callable[[Frame], object] | None = None
    ) -> list[Sample]:
        """Seconds of a query on each frame, which is loaded in the round that does not count."""
        loaded: dict[str, Frame] = {}

        def seconds(label: str, _: int) -> float:
            if label not in loaded:
                loaded[label] = frames[label]()
            started = time.perf_counter()
            (query or _all_rows)(loaded[label])
            return time.perf_counter() - started

        return in_turns(self.bench.rounds, {label: partial(seconds, label) for label in frames})


def _all_rows(frame: Frame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _rates(sample: Sample, rows: int, cores: int = 1) -> Sample:
    """Seconds as million rows a second."""
    return Sample(sample.label, [rows / each / 1e6 / cores for each in sample.values])


# -- reading --------------------------------------------------------------------------------
def _typed(made: _Sides) -> list[Result]:
    """Four columns of four types: a time, a text, a decimal number, an integer."""
    frames: dict[str, Loaded] = {
        OURS: lambda: made.ours(sensors.COLUMNS),
        PARQUET: lambda: made.parquet(sensors.parquet_files(made.bench, made.rows)),
        LINES: lambda: made.lines(sensors.COLUMNS),
        ALONE: lambda: made.alone(sensors.COLUMNS),
    }
    ours, peer, lines, alone = made.measured(frames)
    name = f"Spark: four typed columns of {made.rows:,} rows"
    times = lines.mean / ours.mean
    faster = Result(f"{name}, beside JSON lines", "s", ours, lines, times, ">= 4 x", times >= 4)
    return [at_most(name, "s", ours, peer, 1.3, others=[lines, alone]), faster]


def _map(made: _Sides) -> Result:
    """The map of fields, which no schema must name."""
    frames: dict[str, Loaded] = {
        OURS: lambda: made.ours(MAP),
        PARQUET: lambda: made.parquet(sensors.map_files(made.bench, made.rows)),
        ALONE: lambda: made.alone(MAP),
    }
    ours, peer, alone = (_rates(each, made.rows) for each in made.measured(frames))
    met = ours.mean >= 3
    return Result(
        "Spark: the map of three fields", "M rows/s", ours, peer, ours.mean, ">= 3 M rows/s", met,
        others=[alone],
    )  # fmt: skip


def _all_columns(made: _Sides) -> Result:
    """The eight standard columns, as they come without a schema."""
    frames: dict[str, Loaded] = {
        OURS: lambda: made.ours(None),
        ALONE: lambda: made.alone(None),
    }
    ours, alone = (_rates(each, made.rows, CORES) for each in made.measured(frames))
    met = ours.mean >= 3.5
    return Result(
        "Spark: all standard columns, a core", "M rows/s", ours, alone, ours.mean,
        ">= 3.5 M rows/s", met,
    )  # fmt: skip


def _count(made: _Sides) -> list[Result]:
    """How many rows: what counting takes, and what a load, its plan and the count take together."""
    from pyspark.sql.types import StructType

    def ours() -> Frame:
        return made.ours(StructType([]))

    def parquet() -> Frame:
        return made.parquet(sensors.parquet_files(made.bench, made.rows))

    def counted(frame: Frame) -> None:
        assert frame.count() == made.rows

    def loaded(frame: Loaded, _: int) -> float:
        started = time.perf_counter()
        counted(frame())
        return time.perf_counter() - started

    frames: dict[str, Loaded] = {
        OURS: ours,
        PARQUET: parquet,
        LINES: lambda: made.lines("ts string"),
    }
    mine, peer, lines = made.measured(frames, counted)
    sides = {OURS: partial(loaded, ours), PARQUET: partial(loaded, parquet)}
    whole, whole_peer = in_turns(made.bench.rounds, sides)
    name = f"Spark: count of {made.rows:,} rows"
    return [
        at_most(f"{name}, planned", "s", mine, peer, 1.2, others=[lines]),
        below(f"{name}, with load and plan", "s", whole, 0.5, whole_peer),
    ]


# -- writing --------------------------------------------------------------------------------
def _sink(made: _Sides) -> Result:
    """Two columns, made by Spark, to a stream of a store that is there; and to files."""
    folder, count = made.bench.folder / "written", made.rows
    folder.mkdir()
    logstore.open(folder / "store", sync="os").close()
    frame = made.spark.range(count).selectExpr(
        "cast(id % 4003 as string) as temp", "cast(id % 1000003 as string) as hum"
    )

    def store(number: int) -> float:
        options = {"path": str(folder / "store"), "stream": f"run {number}"}
        return rate(frame.write.format("logstore").mode("append").options(**options).save)

    def files(kind: str, number: int) -> float:
        return rate(partial(frame.write.format(kind).save, str(folder / f"{kind}-{number}")))

    def rate(work: Callable[[], object]) -> float:
        started = time.perf_counter()
        work()
        return count / (time.perf_counter() - started) / 1e6

    sides = {OURS: store, PARQUET: partial(files, "parquet"), LINES: partial(files, "json")}
    ours, peer, lines = in_turns(made.bench.rounds, sides)
    name = f"Spark: write {count:,} rows of two fields, durable"
    met = ours.mean >= 1
    return Result(
        name, "M rows/s", ours, peer, ours.mean, ">= 1 M rows/s", met, others=[lines]
    )  # fmt: skip


# -- memory ---------------------------------------------------------------------------------
def _memory(made: _Sides) -> list[Result | Curve]:
    """The largest resident memory of a Python worker, less that of one which handed over two
    rows."""
    bench = made.bench
    sizes = [1_000_000, 10_000_000]
    if not bench.quick:
        sizes.append(100_000_000)
    if bench.tiny:
        sizes = [bench.size(0, each // 50) for each in sizes[:2]]
    empty = _peak(partial(_all_rows, made.alone(sensors.COLUMNS, 2)))
    peaks = []
    for each in sizes:
        sensors.store(bench, each)
        frame = made.ours(sensors.COLUMNS, each)
        peaks.append((each, max(0.0, _peak(partial(_all_rows, frame)) - empty)))
    name = "Spark: memory of a worker beyond an empty one"
    most = Sample(OURS, [peak for _, peak in peaks])
    beside = Sample("an empty worker", [empty])
    found = Result(
        f"{name}, at most", "MiB", most, beside, max(most.values), "<= 200 MiB",
        max(most.values) <= 200,
    )  # fmt: skip
    return [found, Curve(name, "entries", "MiB", peaks, "flat", lambda _: 1.0)]


def _peak(work: Callable[[], object]) -> float:
    """The most resident memory (MiB) that a Python process of Spark has while some work is done."""
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(SAMPLE_S):
            peak[0] = max([peak[0], *map(_rss_mib, _workers())])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return peak[0]


def _workers() -> list[int]:
    """The workers of this process's Spark that run tasks. What plans is a worker, too, but of a
    daemon of its own; `planning` measures it."""
    above: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text()
            except OSError:
                continue
            above[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    mine = {os.getpid()}
    size = 0
    while size < len(mine):
        size = len(mine)
        mine |= {each for each, parent in above.items() if parent in mine}
    return [each for each in mine if _is_worker(each)]


def _is_worker(process: int) -> bool:
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"pyspark.daemon" in words and b"pyspark.worker" in words


def _rss_mib(process: int) -> float:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
