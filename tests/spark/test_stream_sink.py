"""Prevents a row of a streaming query that is written twice or not at all, whoever was killed.

The query runs in a driver of its own, which is killed at a step that the test chooses, and started
again on the same checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.errors import OptionError
from logstore.log.stagefile import StagedRun
from tests.scan.scanned_stores import make_store


def entries(path: Path, name: str) -> list[bytes]:
    with logstore.open(path) as store:
        return [entry.pairs[0][1] for entry in store.stream(name).range()]


def a_query(spark: Any, rows: Path, path: Path, checkpoint: Path) -> None:
    """Reads what files there are, one a batch, and ends."""
    frame = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(str(rows))
    writer = frame.writeStream.format("logstore").trigger(availableNow=True)
    writer = writer.options(path=str(path), stream="s", producer="p")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def test_a_batch_that_is_repeated_is_written_once(spark: Any, tmp_path: Path) -> None:
    """The driver's note that a batch is done is removed, as a kill behind the commit leaves it."""
    path, rows, checkpoint = tmp_path / "store", tmp_path / "rows", tmp_path / "checkpoint"
    rows.mkdir()  # and the store is made by the query
    for file in range(3):
        (rows / f"{file}.txt").write_text("".join(f"{file}-{n}\n" for n in range(50)))
    a_query(spark, rows, path, checkpoint)
    wanted = sorted(b"%d-%d" % (file, n) for file in range(3) for n in range(50))
    assert sorted(entries(path, "s")) == wanted
    for done in (checkpoint / "commits").iterdir():
        if done.name.lstrip(".").startswith("2"):
            done.unlink()
    (rows / "3.txt").write_text("3-0\n")
    a_query(spark, rows, path, checkpoint)
    assert sorted(entries(path, "s")) == [*wanted, b"3-0"]
    with pytest.raises(Exception, match="another streaming query's"):
        a_query(spark, rows, path, tmp_path / "another")
    assert sorted(entries(path, "s")) == [*wanted, b"3-0"]


def test_batches_by_number(tmp_path: Path) -> None:
    """As the commits of killed drivers come: twice, once more with other files, then the next."""
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyspark")
    from logstore.spark_io import publishing, spark_options
    from logstore.spark_io.sink import StreamSink

    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    make_store(path).close()
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": "one"}))
    given = {"path": str(path), "stream": "s", "producer": "p"}
    options = spark_options.parse_write(
        {**given, "checkpointLocation": f"file://{checkpoint}"}, streaming=True
    )
    sink = StreamSink(options, publishing.begin(options, overwrite=False))

    def staged(*values: str) -> Any:
        return sink.write(iter([pa.record_batch({"a": list(values)})]))

    first = staged("a", "b")
    sink.commit([first], 0)
    runs: list[StagedRun] = staged("a", "b").runs
    sink.commit([staged("a", "b")], 0)  # a driver that was killed behind the commit
    publishing.discard(str(path), [runs])
    sink.commit([staged("c"), None], 1)
    sink.abort([staged("d"), None], 2)
    sink.commit([staged("d")], 2)
    sink.commit([], 3)
    assert entries(path, "s") == [b"a", b"b", b"c", b"d"]
    assert len(list((path / "pins").iterdir())) == 1
    (checkpoint / "metadata").write_text(json.dumps({"id": "two"}))
    with pytest.raises(OptionError, match="another streaming query's"):
        sink.commit([staged("e")], 0)
    assert entries(path, "s") == [b"a", b"b", b"c", b"d"]
