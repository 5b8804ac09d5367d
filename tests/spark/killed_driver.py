"""A driver for tests that kill it: a cluster of processes on this host, and a streaming query.

The query copies a stream of a store, a few rows a batch, to another one. The first task that has
rows of HELD_BATCH stops in the midst of them, tells who it is, and waits, so that a test can kill
its executor there. The executors find no LMDB: they need the store's files and nothing else.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.spark.conftest import JAVA, SCRATCH

OF_EXECUTORS = "SPARK_EXECUTOR_DIRS"  # set by a worker of a cluster for its executors
ROWS, ROWS_A_BATCH = 80, 10
HELD_ROW = 25
MASTER = "local-cluster[1,2,512]"  # one executor, with two cores, which is started again


def a_copy(spark: Any, path: Path, aside: Path) -> Any:
    """Start the query, on its checkpoint; it ends at what there was when it began."""
    held, go, wait_s = str(aside / "held"), str(aside / "go"), 120

    def hold(batches: Any) -> Any:  # made here, so that it is sent whole
        import pyarrow as pa

        from logstore.engine.shm import process

        if OF_EXECUTORS in os.environ:  # in the cluster: its executors read and write files only
            try:
                import lmdb
            except ImportError:
                pass
            else:
                raise AssertionError(f"this executor has LMDB: {lmdb}")
        for batch in batches:
            rows = batch.column("n").to_pylist()
            if HELD_ROW in rows and not os.path.exists(held):
                yield batch.slice(0, 3)
                batch = batch.slice(3)  # noqa: PLW2901
                with open(held + ".part", "w") as told:
                    told.write(str(process.ancestor("java")))
                os.rename(held + ".part", held)
                until = time.monotonic() + wait_s
                while not os.path.exists(go) and time.monotonic() < until:
                    time.sleep(0.02)
            yield pa.RecordBatch.from_arrays(batch.columns, schema=batch.schema)

    frame = spark.readStream.format("logstore").schema("n int")
    frame = frame.options(path=str(path), stream="from", maxRowsPerTrigger=ROWS_A_BATCH).load()
    writer = frame.mapInArrow(hold, "n int").writeStream.format("logstore")
    writer = writer.options(path=str(path), stream="to", producer="p", idColumn="*")
    return (
        writer.option("checkpointLocation", str(aside / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def without_lmdb(aside: Path) -> Path:
    """A folder for the path of Spark's Python: with it executors find no LMDB, only planners do."""
    folder = aside / "without"
    folder.mkdir()
    (folder / "lmdb.py").write_text(
        f"""
import os, sys
if {OF_EXECUTORS!r} in os.environ:
    raise ImportError("there is no LMDB on this machine")
sys.path.remove({str(folder)!r})
del sys.modules["lmdb"]
import lmdb
"""
    )
    return folder


def home_of_links(aside: Path) -> Path:
    """A SPARK_HOME where a cluster may write its folder ``work``."""
    import pyspark

    home = aside / "home"
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (home / each.name).symlink_to(each)
    return home


def main(path: Path, aside: Path) -> None:
    """Count the source, which leaves a pin; then run the query to its end."""
    os.environ["SPARK_HOME"] = str(home_of_links(aside))
    from pyspark.sql import SparkSession

    from logstore.spark_io import register

    spark = (
        SparkSession.builder.master(MASTER)
        .appName("logstore kills")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", JAVA)
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", JAVA)
        .config("spark.executorEnv.PYTHONPATH", str(without_lmdb(aside)))
        .config("spark.executor.extraJavaOptions", JAVA)
        .config("spark.local.dir", str(SCRATCH / "local"))
        .config("spark.sql.warehouse.dir", str(SCRATCH / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    register(spark)
    frame = spark.read.format("logstore").options(path=str(path), stream="from").load()
    print("counted", frame.count(), flush=True)
    query = a_copy(spark, path, aside)
    print("started", flush=True)
    query.awaitTermination()
    print("ended", query.exception(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
