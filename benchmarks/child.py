"""What is measured in a process of its own: ``python -m benchmarks.child FUNCTION ARGUMENT ..``.

Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import logstore
from benchmarks import data, sensors
from benchmarks.harness import CORES


def open_store(path: str) -> dict[str, Any]:
    """What an open did."""
    with logstore.open(path, create=False) as store:
        reads = store._engine().segments.body_reads
        return {"trusted": store.recovery["index_trusted"], "body_reads": reads}


def add_and_die(path: str, count: str) -> int:
    """Add rows one by one; then this process is gone, and closes nothing."""
    stream = logstore.open(path, sync="os", background=False).stream(data.STREAM)
    for row in data.rows(int(count)):
        stream.add(row)
    print(count, flush=True)
    os._exit(0)


def _rss_anon_mib() -> float:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    return int(found.group(1)) / 1024 if found else 0.0


def scan_memory(path: str, name: str) -> dict[str, Any]:
    """Peak of the process's anonymous memory while it scans a stream."""
    import pyarrow as pa

    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], _rss_anon_mib())

    with logstore.open(path, create=False) as store:
        idle = _rss_anon_mib()
        watcher = threading.Thread(target=watch)
        watcher.start()
        count = sum(batch.num_rows for batch in store.stream(name).scan())
        done.set()
        watcher.join()
    return {
        "rows": count, "idle_mib": idle, "peak_mib": max(peak[0], _rss_anon_mib()),
        "arrow": pa.__version__,
    }  # fmt: skip


def import_rdb(store: str, file: str) -> float:
    """Seconds to import an RDB file into a store that is made for it."""
    from logstore.transfer.rdb_files import import_file

    with logstore.open(store) as opened:
        started = time.perf_counter()
        import_file(opened, Path(file))
        return time.perf_counter() - started


def first_count(kind: str, path: str, rows: str, folder: str) -> float:
    """Seconds that a new session of Spark takes to load a store or files, and to count the rows."""
    from benchmarks import spark
    from benchmarks.harness import Bench

    with spark.session(Bench(folder=Path(folder))) as session:
        reader = session.read.format(kind)
        if kind == "logstore":
            reader = reader.option("stream", sensors.STREAM)
        started = time.perf_counter()
        assert reader.load(path).count() == int(rows)
        return time.perf_counter() - started


def import_table(store: str, file: str) -> float:
    """Seconds of the processor that the command takes to import a file of a table, or CSV."""
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401

    from logstore.tools.commands import main

    started = time.process_time()
    with redirect_stdout(TextIOWrapper(BytesIO())):
        main(["import", store, file], standalone_mode=False)
    return time.process_time() - started


def read_by_duckdb(file: str) -> float:
    """Seconds of the processor that DuckDB takes to read a CSV into a table, types found."""
    import duckdb

    started = time.process_time()
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT * FROM '{file}'")
    return time.process_time() - started


def load_memory(path: str, count: str, ids: str) -> dict[str, Any]:
    """The process's most resident memory while it adds rows, with ``ids`` 1 with IDs of theirs."""
    rows: Iterator[Any] = data.streamed(int(count))
    if ids == "1":
        rows = (((1_700_000_000_000 + 37 * n, n % 3), row) for n, row in enumerate(rows))
    with logstore.open(path, sync="os") as store:
        given = store.stream(data.STREAM).add_many(rows, batch=1000)
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert len(given) == int(count)
    return {"peak_mib": int(found.group(1)) / 1024 if found else 0.0,
            "ids_mib": given._runs.nbytes / 2**20}  # fmt: skip


def add_rows(path: str, count: str) -> int:
    """Open a store, say so, wait for the end of the input, and add so many rows one by one."""
    with logstore.open(path, create=False) as store:
        stream = store.stream(data.STREAM)
        stream.add({"ready": "1"})
        print(flush=True)
        sys.stdin.read()
        for row in data.rows(int(count)):
            stream.add(row)
    return int(count)


def plan(path: str, streams: str, token: str) -> dict[str, Any]:
    """What a plan of Spark takes here, and what it leaves: its file, the splits on their way."""
    from pyspark import cloudpickle

    from logstore.log import pinfile
    from logstore.spark_io import planning, spark_options
    from logstore.spark_io.split_tasks import SplitPartition

    given = {"path": path, "streams": streams} | ({"asof": token} if token else {})
    parsed = spark_options.parse_read(given)
    started, processor = time.perf_counter(), time.process_time()
    splits = planning.plan(parsed, CORES, ()).splits
    taken, processor = time.perf_counter() - started, time.process_time() - processor
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    pickled = max(len(cloudpickle.dumps(SplitPartition(split))) for split in splits)
    pin = splits[0].pin_id
    file_bytes = pinfile.snapshot_path(Path(path), pin).stat().st_size
    with logstore.open(path, create=False, background=False) as store:
        store.release_pins(pin)
    return {
        "seconds": taken, "processor_s": processor, "split_kib": pickled / 1024,
        "peak_mib": int(found.group(1)) / 1024 if found else 0.0,
        "node_bytes": file_bytes / sum(split.nodes for split in splits),
    }  # fmt: skip


WORK = (add_and_die, add_rows, first_count, import_rdb, import_table, load_memory, open_store, plan,
        read_by_duckdb, scan_memory)  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {work.__name__: work for work in WORK}

if __name__ == "__main__":
    print(json.dumps(FUNCTIONS[sys.argv[1]](*sys.argv[2:])))
