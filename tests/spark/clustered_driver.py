"""A driver on a cluster: it reads a store of several streams, and writes to another one.

Beside the rows it tells who read them, so that a test sees that these were other processes, each
without LMDB.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.spark import clusters

EXECUTORS = 2
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


def main(master: str, path: str, target: str, aside: Path) -> None:
    """Read in a batch and count, write in a batch, copy in a streaming query, and tell."""
    spark = clusters.session(
        master,
        aside,
        executor_cores="1",
        cores_max=str(EXECUTORS),
        scheduler_minRegisteredResourcesRatio="1.0",
        scheduler_maxRegisteredResourcesWaitingTime="100s",
    )
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
    (aside / "told.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
