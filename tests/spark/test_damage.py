"""Prevents a query that gives fewer rows than there were without a word, or says it of others.

Nodes of a store are damaged, and a segment is taken away while another process has the store open.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore.errors import CorruptionError
from logstore.format import Kind
from tests.corruption import frames
from tests.scan.scanned_stores import make_store
from tests.spark.tables import rows as table_rows
from tests.spark.tables import source_of

ROWS = 600
FIRST, LAST = 401, 412  # three nodes of four entries


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "store"
    with make_store(path) as store:
        for n in range(1, ROWS + 1):
            store["x"].add({"n": n, "text": "t" * 60}, id=f"{n}-0")
        store["y"].add({"n": "1"}, id="1-0")
    return path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """The store with nodes that are damaged."""
    path = Path(shutil.copytree(whole, tmp_path / "store"))
    nodes = [each for each in frames.everything(path) if each.kind == Kind.NODE]
    for frame in nodes[(FIRST - 1) // 4 : LAST // 4]:
        frames.spoil(path, frame)
    return path


@pytest.fixture
def held(whole: Path, tmp_path: Path) -> Iterator[Path]:
    """The store, open in this process, without its second segment."""
    path = Path(shutil.copytree(whole, tmp_path / "store"))
    with make_store(path, background=False, sync="everysec"):
        frames.file(path, 2).unlink()
        yield path


def load(spark: Any, path: Path, **options: Any) -> Any:
    reader = spark.read.format("logstore").options(path=str(path), **{"stream": "x", **options})
    return reader.load()


def numbers(path: Path, **options: Any) -> list[int]:
    """The rows of a load, without a session."""
    from pyspark.sql.types import StringType, StructField, StructType

    source = source_of(path, **{"stream": "x", **options})
    reader = source.reader(StructType([StructField("n", StringType())]))
    return [
        int(n)
        for each in reader.partitions()
        for batch in reader.read(each)
        for n in batch.column(0).to_pylist()
    ]


def test_a_job_says_which_ids_are_damaged(spark: Any, path: Path) -> None:
    frame = load(spark, path)
    with pytest.raises(Exception, match="CorruptFrameError") as raised:
        frame.collect()  # a count alone may be the plan's, which reads no node
    assert f"entries from {FIRST}-0 to {LAST}-0, 12 at most in 3 nodes, cannot" in str(raised.value)
    assert "stream 'x', segment 2, offset" in str(raised.value)
    assert load(spark, path, endId=f"{FIRST - 1}-0").count() == FIRST - 1
    assert load(spark, path, stream="y").count() == 1
    rest = load(spark, path, failOnDataLoss="false")
    found = sorted(row.ms for row in rest.select("ms").collect())
    assert found == [*range(1, FIRST), *range(LAST + 1, ROWS + 1)]
    assert rest.count() == ROWS - 12
    options = {"path": str(path), "stream": "x", "failOnDataLoss": "FALSE"}
    empty = spark.read.format("logstore").options(**options).schema("nothing string").load()
    assert empty.count() == ROWS - 12
    (row,) = load(spark, path, table="damage").drop("stream").collect()
    assert (row.first_id, row.last_id, row.nodes, row.entries) == (f"{FIRST}-0", f"{LAST}-0", 3, 12)
    assert row.segment == 2
    assert "checksum" in row.reason


def test_rows_are_counted_as_they_are_read(path: Path) -> None:
    """Also of a schema that asks for nothing, whose rows are otherwise counted unread."""
    from pyspark.sql.types import StructType

    counts: dict[str, int] = {}
    for fail in ("true", "false"):
        reader = source_of(path, stream="x", failOnDataLoss=fail).reader(StructType([]))
        parts = reader.partitions()
        counts[fail] = sum(batch.num_rows for each in parts for batch in reader.read(each))
    assert counts == {"true": ROWS, "false": ROWS - 12}


def test_left_out_nodes_are_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "logstore.spark"):
        found = numbers(path, failOnDataLoss="false", minPartitions="1")
    assert len(found) == ROWS - 12
    (line,) = [each.getMessage() for each in caplog.records]
    words = f"a task left out 12 entries, at most, of {path}: entries from {FIRST}-0 to {LAST}-0"
    assert line.startswith(words)
    with pytest.raises(CorruptionError, match="failOnDataLoss=false reads the rest"):
        numbers(path)


def test_a_segment_that_is_gone_is_told_before_the_job_begins(
    held: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark.sql.types import StructType

    reader = source_of(held, stream="x").reader(StructType([]))
    words = r"entries from .* cannot be read: the segment's file is gone.*segment 2, offset"
    with pytest.raises(CorruptionError, match=words):
        reader.partitions()
    with caplog.at_level(logging.WARNING, "logstore.spark"):
        found = numbers(held, failOnDataLoss="false", minPartitions="1")
    before, told = (each.getMessage() for each in caplog.records)
    lost = ROWS - len(found)
    assert 0 < lost < ROWS
    assert before.startswith(f"tasks will leave out {lost} entries, at most, of {held}: ")
    assert told.startswith(f"a task left out {lost} entries, at most, of {held}: ")
    (row,) = table_rows(held, "damage", minPartitions="1")
    assert (row["stream"], row["entries"], row["segment"]) == ("x", lost, 2)
    assert found == [
        n for n in range(1, ROWS + 1) if not ids(row["first_id"]) <= n <= ids(row["last_id"])
    ]


def ids(text: str) -> int:
    return int(text.split("-", maxsplit=1)[0])


def test_a_streaming_query_says_it_too(path: Path) -> None:
    """And goes on behind it where that is allowed, also where a batch ends amid of it."""
    with pytest.raises(CorruptionError, match=f"entries from {FIRST}-0 to "):
        batches(path, "true", 20)
    assert batches(path, "true", 1) == [FIRST - 1]
    assert batches(path, "false", 6)[:6] == [FIRST - 1, *range(LAST + 1, LAST + 6)]
    assert batches(path, "false", 5, FIRST)[:5] == [*range(LAST + 1, LAST + 6)]


def batches(path: Path, fail: str, least: int, after: int = FIRST - 2) -> list[int]:
    """The rows of so many batches as give at least so many, from one before the damage on."""
    from tests.spark.streamed import batch, reader_of

    options = {"streams": "x", "maxRowsPerTrigger": 3, "startingOffsets": f"{after}-0"}
    reader = reader_of(path, failOnDataLoss=fail, **options)
    start, found = reader.initialOffset(), list[int]()
    while len(found) < least:
        some, end = batch(reader, start)
        assert end != start
        found, start = found + some, end
    reader.stop()
    return found
