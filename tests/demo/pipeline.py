"""The question once more: flights through a streaming query of Spark, and their means back.

A query copies what is left of the flights to one stream of another store. In ``make demo`` it is a
process that is killed half-way (SIGKILL, with its Java), and this one's session goes on from the
checkpoint. The means that Spark works out of the copy become entries of a stream of their own, and
DuckDB and Polars are asked the same of the copy.

Invariants: in the copy is each flight once, whoever was killed; every answer is compared with that
of pandas, which has read the CSV and knows nothing of a store. Run as a module it is that process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from logstore.api.store import open_store
from tests.demo import of_spark as demo_spark
from tests.demo.data import StreamRows
from tests.demo.load import DemoError
from tests.demo.of_spark import SCHEMA, Means

FLOWN = "flown"  # each flight, with its airport and ID
DELAYS = "delays"  # the means, an entry for each carrier and month
BATCHES = 5
COLUMNS = f"stream string, id string, {SCHEMA}"
KILL_TIMEOUT_S = 120
LOOK_EVERY_S = 0.05


def flights(spark: Any, source: Path, target: Path, checkpoint: Path, batch: int) -> Any:
    """Start the query, or go on with it, so many rows a batch; it ends at what there was when it
    began."""
    read = (
        spark.readStream.format("logstore")
        .option("path", str(source.absolute()))
        .option("streams", "flights:*")
        .option("maxRowsPerTrigger", batch)
        .schema(COLUMNS)
        .load()
        .withColumnsRenamed({"stream": "airport", "id": "flight"})
    )
    return (
        read.writeStream.format("logstore")
        .option("path", str(target.absolute()))
        .option("stream", FLOWN)
        .option("idColumn", "*")
        .option("producer", "demo")
        .option("checkpointLocation", checkpoint.absolute().as_uri())
        .trigger(availableNow=True)
        .start()
    )


def copied(target: Path) -> int:
    """How many flights the copy has."""
    with open_store(target, readonly=True, create=False) as store:
        return len(store.stream(FLOWN))


def run_and_kill(source: Path, target: Path, scratch: Path, rows: int) -> int:
    """Run the query in a process, and kill it when it has copied something; how much it has."""
    command = [sys.executable, "-m", "tests.demo.pipeline", source, target, scratch]
    command.append(str(rows // BATCHES + 1))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as driver:
        until = time.monotonic() + KILL_TIMEOUT_S
        while not copied(target) and driver.poll() is None and time.monotonic() < until:
            time.sleep(LOOK_EVERY_S)
        if driver.poll() is not None:
            raise DemoError(f"the streaming query ended by itself, with {driver.returncode}")
        os.killpg(driver.pid, signal.SIGKILL)  # Java is of this group, too
    found = copied(target)
    if not 0 < found < rows:
        raise DemoError(f"the kill was not half-way: {found} of {rows} flights were copied")
    return found


def go_on(spark: Any, source: Path, target: Path, scratch: Path, batch: int) -> None:
    """Run the query to its end, from its checkpoint if there is one."""
    query = flights(spark, source, target, scratch / "checkpoint", batch)
    query.awaitTermination()
    if query.exception() is not None:
        raise DemoError(f"the streaming query failed: {query.exception()}")


def check_copy(target: Path, left: list[StreamRows]) -> int:
    """How many flights; DemoError unless the copy has each of them, once."""
    wanted = Counter((rows.name, str(id)) for rows in left for id, _ in rows.rows)
    with open_store(target, encoding="utf-8", readonly=True, create=False) as store:
        found = Counter(
            (entry.fields["airport"], entry.fields["flight"]) for entry in store.stream(FLOWN)
        )
    if found != wanted:
        lost, more = sum((wanted - found).values()), sum((found - wanted).values())
        raise DemoError(f"of {sum(wanted.values())} flights {lost} are lost, {more} are too many")
    return sum(wanted.values())


def write_means(spark: Any, target: Path) -> None:
    """The means of the copy, by Spark, as entries of the same store."""
    from pyspark.sql import functions

    frame = spark.read.format("logstore").option("path", str(target.absolute()))
    grouped = frame.option("stream", FLOWN).schema(SCHEMA).load().groupBy("carrier", "month")
    writer = grouped.agg(functions.avg("dep_delay").alias("mean")).write.format("logstore")
    writer = writer.mode("append").option("path", str(target.absolute()))
    writer.option("stream", DELAYS).option("idColumn", "*").save()


def answers(target: Path) -> dict[str, Means]:
    """The means: those that Spark wrote, and what DuckDB and Polars say of the copy."""
    with open_store(target, encoding="utf-8", readonly=True, create=False) as store:
        written = {
            (entry.fields["carrier"], int(entry.fields["month"])): float(entry.fields["mean"])
            for entry in store.stream(DELAYS)
        }
        return {
            "Spark": written,
            "DuckDB": _of_duckdb(store),
            "Polars": _of_polars(store),
        }


def _of_duckdb(store: Any) -> Means:
    import duckdb

    import logstore.duckdb

    with closing(duckdb.connect()) as con:
        logstore.duckdb.attach(con, store, FLOWN)
        found = con.execute(
            "select carrier, month::int, avg(dep_delay::double) from flown group by all"
        ).fetchall()
    return {(carrier, month): mean for carrier, month, mean in found}


def _of_polars(store: Any) -> Means:
    import polars as pl
    import pyarrow as pa

    import logstore.polars

    schema = {"carrier": None, "month": pa.int32(), "dep_delay": pa.float64()}
    flown = logstore.polars.scan(store, FLOWN, schema=schema)
    means = flown.group_by("carrier", "month").agg(pl.col("dep_delay").mean()).collect()
    return {(carrier, month): mean for carrier, month, mean in means.iter_rows()}


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("scratch", type=click.Path(path_type=Path))
@click.argument("batch", type=int)
def main(source: Path, target: Path, scratch: Path, batch: int) -> None:
    """Run the query, until it ends or somebody kills it."""
    go_on(demo_spark.session(scratch), source, target, scratch, batch)


if __name__ == "__main__":
    main()
