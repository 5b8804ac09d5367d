"""A driver on a cluster: it reads a store of several streams, and writes to another one.

Beside the rows it tells who read them, so that a test sees that these were other processes, each
without LMDB. With a jar the JVM reads.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tests.spark import clusters

EXECUTORS = 2
BARE = "bare"
SCHEMA = "stream string, id string, fields map<string,string>"


def rows_and_readers(frame: Any) -> tuple[list[list[Any]], list[list[Any]]]:
    """The rows of a frame, and who read them: the executor's process, and whether it has LMDB."""

    def with_reader(batches: Any) -> Any:  # made here, so that it is sent whole
        import pyarrow as pa

        from logstore.engine.shm import process_identity

        try:
            import lmdb  # noqa: F401
        except ImportError:
            has_lmdb = False
        else:
            has_lmdb = True
        for batch in batches:
            executor = pa.array([process_identity.ancestor("java")] * batch.num_rows, pa.int64())
            lmdb_there = pa.array([has_lmdb] * batch.num_rows)
            names = [*batch.schema.names, "executor", "has_lmdb"]
            yield pa.RecordBatch.from_arrays([*batch.columns, executor, lmdb_there], names)

    read = frame.mapInArrow(with_reader, f"{SCHEMA}, executor long, has_lmdb boolean").collect()
    readers = {(row.executor, row.has_lmdb) for row in read}
    return sorted(list(row[:-2]) for row in read), [list(reader) for reader in readers]


def session(master: str, aside: Path, **conf: Any) -> Any:
    """A session that begins when all executors are there."""
    return clusters.session(
        master,
        aside,
        executor_cores="1",
        cores_max=str(EXECUTORS),
        scheduler_minRegisteredResourcesRatio="1.0",
        scheduler_maxRegisteredResourcesWaitingTime="100s",
        **conf,
    )


def plan(frame: Any) -> str:
    """The physical plan."""
    with redirect_stdout(StringIO()) as told:
        frame.explain()
    return told.getvalue()


def without_python(path: str, aside: Path, jar: str, planner: str) -> None:
    """Read where no worker of Python can be started, and where nothing was registered."""
    spark = session(
        f"local-cluster[{EXECUTORS},1,1024]", aside,
        registers=False, jars=jar, logstore_python=planner,
    )  # fmt: skip
    options = {"path": path, "streams": "race:*", "minPartitions": 4}
    frame = spark.read.format("logstore").schema(SCHEMA).options(**options).load()
    pid = "java_method('java.lang.ProcessHandle', 'current') executor"
    executors = [row.executor for row in frame.selectExpr(pid).distinct().collect()]
    found = {"rows": frame.orderBy("stream", "id").toJSON().collect(), "executors": executors}
    (aside / "told.json").write_text(json.dumps(found))
    spark.stop()


def main(master: str, path: str, target: str, aside: Path, jar: str) -> None:
    """Read in a batch and count, write in a batch, copy in a streaming query, and tell."""
    spark = session(master, aside, jars=jar)
    options = {"path": path, "streams": "race:*"}
    frame = spark.read.format("logstore").schema(SCHEMA).options(**options, minPartitions=4).load()
    rows, readers = rows_and_readers(frame)
    count = frame.count()
    frame.write.format("logstore").mode("append").options(path=target).save()
    streamed = spark.readStream.format("logstore").options(**options, maxRowsPerTrigger=1500)
    query = (
        streamed.schema("id string, n int, stream string")
        .load()
        .selectExpr("concat('copy of ', stream) stream", "id", "n")
        .writeStream.format("logstore")
        .options(path=target, producer="copies")
        .option("checkpointLocation", str(aside / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = len(query.recentProgress)
    found = {"rows": rows, "readers": readers, "count": count, "batches": batches}
    found["plan"] = plan(frame)
    (aside / "told.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1] == BARE:
        without_python(sys.argv[2], Path(sys.argv[3]), sys.argv[4], sys.argv[5])
    else:
        main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5])
