"""The question of the demo: the mean departure delay per carrier and month, of what is left.

Spark answers from the store, by its reader in the JVM where the jar is, and by the Python source;
pandas answers from the CSV, and knows nothing of the store. Imports pyspark and pandas only when it
is asked.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

from tests.demo import data as demo_data
from tests.demo.data import MINUTE_MS, SECOND_HALF
from tests.demo.load import DemoError
from tests.spark.found_jar import found_jar

Means: TypeAlias = dict[tuple[str, int], float]

TOLERANCE = 1e-9
SCHEMA = "carrier string, month int, dep_delay double"
TASKS = 2


def session(scratch: Path) -> Any:
    """A quiet local session that knows logstore; its files stay below ``scratch``."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    from logstore.spark_io import register

    scratch = scratch.absolute()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": found_jar(),
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": str(TASKS),
        # The first compiler alone: most of Spark's code runs a few times here.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    builder = SparkSession.builder.appName("logstore demo").master(f"local[{TASKS}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def readers() -> tuple[str, ...]:
    """Which readers a session has: ``jvm`` first, where the jar is."""
    return ("jvm", "python") if found_jar() else ("python",)


def means_of_spark(spark: Any, path: Path, streams: list[str], reader: str) -> Means:
    """The means, from the store, by a reader; DemoError if another one reads."""
    from pyspark.sql import functions

    flights = (
        spark.read.format("logstore")
        .option("path", str(path.absolute()))
        .option("streams", ",".join(streams))
        .option("reader", reader)
        .schema(SCHEMA)
        .load()
    )
    grouped = flights.groupBy("carrier", "month").agg(functions.avg("dep_delay").alias("mean"))
    with redirect_stdout(StringIO()) as plan:
        grouped.explain()
    if ("read by the JVM" in plan.getvalue()) is not (reader == "jvm"):
        raise DemoError(f"{reader} was to read, and the plan says: {plan.getvalue()}")
    return {(row["carrier"], row["month"]): row["mean"] for row in grouped.collect()}


def means_of_pandas(every: int) -> Means:
    """The means, from the CSV: every step of the demo done again by other means."""
    import pandas as pd

    flights = pd.read_csv(demo_data.folder() / demo_data.FLIGHTS_ZIP).iloc[::every]
    largest = [
        (origin, carrier)
        for origin, carriers in flights.groupby("origin")["carrier"]
        for carrier in carriers.value_counts().index[:2]
    ]
    hour = pd.to_datetime(flights["time_hour"], utc=True)
    ms = (hour - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(milliseconds=1)
    left = flights[
        flights["dep_time"].notna()
        & ~pd.MultiIndex.from_frame(flights[["origin", "carrier"]]).isin(largest)
        & (ms + flights["minute"] * MINUTE_MS >= SECOND_HALF.ms)
    ]
    means = left.groupby(["carrier", "month"])["dep_delay"].mean()
    return {(carrier, int(month)): float(mean) for (carrier, month), mean in means.items()}


def compare(spark: Means, pandas: Means) -> float:
    """The largest difference; DemoError if it is too large, or a mean is missing."""
    if spark.keys() != pandas.keys():
        raise DemoError(f"Spark and pandas differ in {sorted(spark.keys() ^ pandas.keys())}")
    worst = max((abs(spark[key] - pandas[key]) for key in pandas), default=0.0)
    if not pandas or not worst <= TOLERANCE:
        raise DemoError(f"{len(pandas)} means, and Spark and pandas differ by up to {worst}")
    return worst
