"""A nightly job: the means of each hour of a day, by Spark, from where a store is shipped to.

    pip install '.[spark]'        # in a clone; and a Java, 17 or 21, on PATH
    logstore ship sensor.store s3://bucket/sensors/42       # on the host that writes, first
    python nightly_spark.py s3://bucket/sensors/42 means 2026-11-27

The job needs the place that was shipped to, and nothing of the host that writes. A day is written
as a whole, as Parquet below means/day=2026-11-27: a job that failed, or came too early, is run
again. edge_sensor.py is what writes and ships.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import logstore
from logstore.spark_io import jar, register

DAY = timedelta(days=1)
LAST = timedelta(milliseconds=1)  # an ID has milliseconds, and both ends of a range are read


def spark_jars() -> str:
    """The reader in the JVM, where this installation has it; else the Python source reads."""
    try:
        return jar()
    except logstore.OptionError:
        return ""


def main(store: str, target: str, day: str) -> None:
    """Write the means of a day, in UTC."""
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC)
    builder = SparkSession.builder.appName(f"means of {day}").config("spark.jars", spark_jars())
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    register(spark)
    readings = (
        spark.read.format("logstore")
        .option("stream", "readings")
        .option("startTime", begin.isoformat())
        .option("endTime", (begin + DAY - LAST).isoformat())
        .schema("ts timestamp, celsius double, percent int")
        .load(store)
    )
    hours = readings.groupBy(f.date_trunc("hour", "ts").alias("hour")).agg(
        f.count("*").alias("readings"),
        f.round(f.avg("celsius"), 2).alias("celsius"),
        f.max("percent").alias("percent"),
    )
    hours.coalesce(1).write.mode("overwrite").parquet(f"{target}/day={day}")
    spark.read.parquet(f"{target}/day={day}").orderBy("hour").show(24)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
