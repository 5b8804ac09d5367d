"""A driver for tests that kill it: a cluster of processes on this host, a write, and a query.

The write has two tasks. One of them has to be tried four times: it waits in the midst of its rows
until a test has killed what runs it, twice, and fails by itself once.

The query copies a stream of a store, a few rows a batch, to another one. The first task that has
rows of HELD_BATCH stops in the midst of them, tells who it is, and waits, so that a test can kill
its executor there. The executors find no LMDB: they need the store's files and nothing else.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.spark import clusters
from tests.spark.clusters import OF_EXECUTORS

WRITTEN, HELD_ROWS = 40, 16
PAD_BYTES = 500_000  # a file is begun at 4 MiB
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
KILLED_TRIES, TRIES = 2, 4
ROWS, ROWS_A_BATCH = 80, 10
HELD_ROW = 25
MASTER = "local-cluster[1,2,512]"  # one executor, with two cores, which is started again


def a_write(spark: Any, path: Path, aside: Path) -> None:
    """Write the stream ``written``; tries of the first task stop once much of theirs is staged."""
    where, wait_s = str(aside), 120

    def hold(batches: Any) -> Any:  # made here, so that it is sent whole
        from pyspark import TaskContext

        from logstore.engine.shm import process_identity

        task = TaskContext.get()
        assert task is not None
        number, given = task.attemptNumber(), 0
        for batch in batches:
            yield batch
            given += batch.num_rows
            if task.partitionId() or number >= TRIES - 1 or given != HELD_ROWS:
                continue
            if number == KILLED_TRIES:
                raise RuntimeError("on purpose")
            with open(f"{where}/try.part", "w") as told:
                told.write(str(process_identity.ancestor("java")))
            os.rename(f"{where}/try.part", f"{where}/try-{number}")
            until = time.monotonic() + wait_s
            while not os.path.exists(f"{where}/go-{number}") and time.monotonic() < until:
                time.sleep(0.02)

    size = f"IF(id < {WRITTEN // 2}, {PAD_BYTES}, 1)"
    frame = spark.range(0, WRITTEN, 1, 2).selectExpr("id AS n", f"repeat('x', {size}) AS pad")
    frame = frame.mapInArrow(hold, frame.schema)
    spark.conf.set(BATCH_ROWS, "2")  # so that a task stages rows while it still takes others
    try:
        frame.write.format("logstore").mode("append").save(path=str(path), stream="written")
    finally:
        spark.conf.unset(BATCH_ROWS)


def a_copy(spark: Any, path: Path, aside: Path) -> Any:
    """Start the query, on its checkpoint; it ends at what there was when it began."""
    held, go, wait_s = str(aside / "held"), str(aside / "go"), 120

    def hold(batches: Any) -> Any:  # made here, so that it is sent whole
        import pyarrow as pa

        from logstore.engine.shm import process_identity

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
                    told.write(str(process_identity.ancestor("java")))
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


def main(path: Path, aside: Path) -> None:
    """Write; count the source, which leaves a pin; then run the query to its end."""
    logging.getLogger("logstore.spark").setLevel(logging.INFO)
    spark = clusters.session(MASTER, aside)
    a_write(spark, path, aside)
    print("wrote", flush=True)
    frame = spark.read.format("logstore").options(path=str(path), stream="from").load()
    print("counted", frame.count(), flush=True)
    query = a_copy(spark, path, aside)
    print("started", flush=True)
    query.awaitTermination()
    print("ended", query.exception(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
