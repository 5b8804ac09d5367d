"""Spark on two cores: what a DataFrame of a store takes beside one of Parquet and of JSON lines.

One session reads the same rows from all of them, in turns. A frame is loaded, and so planned, in
the round that does not count; what a session takes until its first count is a figure of its own.
Rows go to Spark's ``noop`` sink, which takes every column. The reader in the JVM reads, as where
its jar is; ``the Python source`` reads the same beside it.
"""

from __future__ import annotations

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
    at_least,
    at_most,
    fresh,
    in_turns,
)

NAME = "spark"
MAP = "fields map<string,string>"
OURS, PARQUET, LINES, PYTHON = "logstore", "Parquet", "JSON lines", "the Python source"

Frame = Any
Loaded = Callable[[], Frame]


def run(bench: Bench) -> list[Result | Curve]:
    """Reads, counts, a stream, writes, and memory."""
    rows = bench.size(10_000_000, 3_000_000)
    with session(bench) as spark:
        made = _Sides(spark, bench, rows)
        memory = _memory(made)  # first: a heap keeps what it had of other queries
        reads = [*_typed(made), _one(made), _groups(made), _map(made), _hundredth(made)]
        found = [*reads, _count(made), _streamed(made), _sink(made), memory]
    return found if bench.tiny else [*found, _first_count(bench, rows)]  # that takes a minute


@contextmanager
def session(bench: Bench) -> Iterator[Any]:
    """A session on two cores with both readers: the one that there is, or a new one."""
    from pyspark.sql import SparkSession

    from logstore.spark_io import jar, register

    before = SparkSession.getActiveSession()
    spark = before or (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("logstore benchmarks")
        .config("spark.jars", jar())
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
    try:
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        yield spark
    finally:
        if before is None:
            spark.stop()


class _Sides:
    """The frames of one question's rows."""

    def __init__(self, spark: Any, bench: Bench, rows: int) -> None:
        self.spark = spark
        self.bench = bench
        self.rows = rows

    def ours(self, schema: Any, rows: int | None = None, reader: str = "jvm") -> Frame:
        """Of the store; without a schema the standard columns."""
        path = sensors.store(self.bench, rows or self.rows)
        made = self.spark.read.format("logstore").option("stream", sensors.STREAM)
        made = made.option("reader", reader)
        return (made if schema is None else made.schema(schema)).load(str(path))

    def parquet(self) -> Frame:
        """Of Parquet, four typed columns."""
        return self.spark.read.parquet(str(sensors.parquet_files(self.bench, self.rows)))

    def lines(self, schema: str) -> Frame:
        """Of JSON lines."""
        return self.spark.read.schema(schema).json(str(sensors.json_files(self.bench, self.rows)))

    def of(self, schema: str) -> dict[str, Loaded]:
        """The frames of all four, of typed columns."""
        return {
            OURS: lambda: self.ours(schema),
            PARQUET: self.parquet,
            LINES: lambda: self.lines(schema),
            PYTHON: lambda: self.ours(schema, reader="python"),
        }

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


# -- reading --------------------------------------------------------------------------------
def _typed(made: _Sides) -> list[Result]:
    """Four columns of four types: a time, a text, a decimal number, an integer."""
    ours, peer, lines, python = made.measured(made.of(sensors.COLUMNS))
    name = f"Spark: four typed columns of {made.rows:,} rows"
    return [
        at_most(name, "s", ours, peer, 0.9, others=[lines, python]),
        at_least(f"{name}, JSON lines over ours", "s", lines, ours, 7),
    ]


def _one(made: _Sides) -> Result:
    """The sum of one column of four."""
    ours, peer, *others = made.measured(
        made.of(sensors.COLUMNS), lambda frame: frame.agg({"hum": "sum"}).collect()
    )
    name = f"Spark: sum of one of four columns of {made.rows:,} rows"
    return at_most(name, "s", ours, peer, 1.2, others=others)


def _groups(made: _Sides) -> Result:
    """An average and a maximum for each of 97 texts."""

    def query(frame: Frame) -> None:
        found = frame.groupBy("room").agg({"temp": "avg", "hum": "max"}).collect()
        assert len(found) == 97

    ours, peer, *others = made.measured(made.of(sensors.COLUMNS), query)
    name = f"Spark: group by a text of {made.rows:,} rows, avg and max"
    return at_most(name, "s", ours, peer, 1.0, others=others)


def _map(made: _Sides) -> Result:
    """The map of fields, which no schema must name."""
    files = str(sensors.map_files(made.bench, made.rows))
    frames: dict[str, Loaded] = {
        OURS: lambda: made.ours(MAP),
        PARQUET: lambda: made.spark.read.parquet(files),
        PYTHON: lambda: made.ours(MAP, reader="python"),
    }
    ours, peer, python = made.measured(frames)
    name = f"Spark: the map of three fields of {made.rows:,} rows"
    return at_most(name, "s", ours, peer, 1.0, others=[python])


def _hundredth(made: _Sides) -> Result:
    """A filter on time that keeps a hundredth of the rows."""
    first = sensors.FIRST_MS + made.rows // 2
    since, until = (f"timestamp_millis({first + more})" for more in (0, made.rows // 100))

    def query(frame: Frame) -> None:
        kept = frame.where(f"ts >= {since} and ts < {until}").agg({"temp": "sum", "*": "count"})
        assert kept.collect()[0]["count(1)"] == made.rows // 100

    ours, peer, *others = made.measured(made.of(sensors.COLUMNS), query)
    name = f"Spark: sum of a hundredth by time of {made.rows:,} rows"
    return at_most(name, "s", ours, peer, 1.0, others=others)


def _count(made: _Sides) -> Result:
    """How many rows."""

    def counted(frame: Frame) -> None:
        assert frame.count() == made.rows

    ours, peer, *others = made.measured(made.of(sensors.COLUMNS), counted)
    return at_most(f"Spark: count of {made.rows:,} rows", "s", ours, peer, 0.5, others=others)


def _first_count(bench: Bench, rows: int) -> Result:
    """What a new session takes for its first load, plan and count."""
    store, files = sensors.store(bench, rows), sensors.parquet_files(bench, rows)

    def seconds(kind: str, path: Path, _: int) -> float:
        found: float = fresh("first_count", kind, path, rows, bench.folder / "spark")
        return found

    sides = {
        OURS: partial(seconds, "logstore", store),
        PARQUET: partial(seconds, "parquet", files),
    }
    ours, peer = in_turns(bench.rounds, sides)
    name = f"Spark: a new session's first load, plan and count of {rows:,} rows"
    return at_most(name, "s", ours, peer, 1.0)


def _streamed(made: _Sides) -> Result:
    """A streaming query that reads all there is in batches of a million rows; files one each."""
    files = str(sensors.parquet_files(made.bench, made.rows))
    path = str(sensors.store(made.bench, made.rows))
    sides: dict[str, Loaded] = {
        OURS: lambda: (
            made.spark.readStream.format("logstore")
            .schema(sensors.COLUMNS)
            .options(
                stream=sensors.STREAM, maxRowsPerTrigger=str(max(1, made.rows // sensors.FILES))
            )
            .load(path)
        ),
        PARQUET: lambda: (
            made.spark.readStream.schema(made.parquet().schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(files)
        ),
    }

    def rate(label: str, number: int) -> float:
        started = time.perf_counter()
        query = (
            sides[label]()
            .writeStream.format("noop")
            .option("checkpointLocation", str(made.bench.folder / f"checkpoint-{label}-{number}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return made.rows / (time.perf_counter() - started) / 1e6

    ours, peer = in_turns(made.bench.rounds, {label: partial(rate, label) for label in sides})
    name = f"Spark: a streaming query over {made.rows:,} rows in {sensors.FILES} batches"
    met = ours.mean >= 1
    return Result(name, "M rows/s", ours, peer, ours.mean, ">= 1 M rows/s", met)


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
def _memory(made: _Sides) -> Curve:
    """The most that lives in the heap after a collection while rows of four columns are read."""
    bench = made.bench
    sizes = [1_000_000, 10_000_000]
    if not bench.quick:
        sizes.append(100_000_000)
    if bench.tiny:
        sizes = [bench.size(0, each // 50) for each in sizes[:2]]
    points = []
    for each in sizes:
        sensors.store(bench, each)
        before = _live_mib(made.spark)
        _all_rows(made.ours(sensors.COLUMNS, each))
        points.append((each, max(0.0, _live_mib(made.spark, peak=True) - before)))
    name = "Spark: memory that lives in the JVM beyond what did before a read"
    return Curve(name, "entries", "MiB", points, "flat", lambda _: 1.0)


def _live_mib(spark: Any, *, peak: bool = False) -> float:
    """What lives in the heap after a collection, now or at the most since the last call."""
    beans = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    if not peak:
        spark._jvm.java.lang.System.gc()
    found = 0
    for bean in beans:
        after = bean.getCollectionUsage()
        if after is not None:
            found += after.getUsed()
    return found / 2**20
