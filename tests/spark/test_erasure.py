"""Prevents reads of Spark that lose living entries, or are told of damage, beside an erasure.

The erasure is stopped between its steps, and Spark reads there what it planned before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.compaction.test_erasure_beside_readers import (
    ENTRIES,
    ERASED,
    fill,
    is_segment,
    stepping,
)
from tests.scan.look import make_store

STARTS_MAX = 5
NOT_BEGUN = ("worker failed to connect back", "CANNOT_OPEN_SOCKET")
T = TypeVar("T")
LIVING = [*range(ERASED, ENTRIES + 1), 0]  # the last one is in an open node


def beside_load(action: Callable[[], T]) -> T:
    """Do it; again where Spark lost its own Python process, which has some seconds to begin and no
    option for more: then nothing was read yet."""
    from pyspark.errors import PySparkException

    for left in reversed(range(STARTS_MAX)):
        try:
            return action()
        except PySparkException as error:
            if not left or not any(each in str(error) for each in NOT_BEGUN):
                raise
    raise AssertionError


def erase(path: Path, between: Callable[[], None]) -> None:
    """Erase entries; in the middle of it, when one segment is gone and more are to go, do this."""
    unlinked: list[str] = []

    def before(kind: str, at: Path) -> None:
        if kind == "remove" and is_segment(at):
            unlinked.append(at.name)
            if len(unlinked) == 2:
                between()

    with stepping(before), make_store(path, background=False) as store:
        store["x"].delete(*[(n, 0) for n in range(1, ERASED)])
        store.compact(purge=True)
        assert len(unlinked) > 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "store"
    fill(made)
    return made


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_load_is_told_to_load_again(spark: Any, path: Path, strict: str) -> None:
    reader = spark.read.format("logstore").schema("n int")
    frame = reader.options(path=str(path), stream="x", failOnDataLoss=strict).load()
    assert frame.count() == ENTRIES + 1  # planned, and from here on a snapshot
    told: list[str] = []

    def between() -> None:
        with pytest.raises(Exception, match="SnapshotExpired") as raised:
            print(len(beside_load(frame.collect)), "rows")
        told.append(str(raised.value))

    erase(path, between)
    assert len(told) == 1
    assert "load again" in told[0]
    assert "CorruptionError" not in told[0]
    again = reader.options(path=str(path), stream="x", failOnDataLoss=strict).load()
    assert [row.n for row in again.collect()] == LIVING


def test_a_streaming_query_reads_the_rest_when_it_goes_on(
    spark: Any, path: Path, tmp_path: Path
) -> None:
    """The batch is not over: started again, the query does it anew, with all that lives."""
    from pyspark.errors import PySparkException

    found: list[int] = []
    told: list[Exception] = []

    def batch(frame: Any, _number: int) -> None:
        def between() -> None:
            try:
                found.extend(row.n for row in beside_load(frame.collect))
            except PySparkException as error:
                told.append(error)

        if told:
            between()
            return
        erase(path, between)
        if told:
            raise told[0]

    def run() -> None:
        options = {"path": str(path), "stream": "x", "failOnDataLoss": "false"}
        source = spark.readStream.format("logstore").options(**options).schema("n int").load()
        writer = source.writeStream.foreachBatch(batch).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    with pytest.raises(PySparkException, match="SnapshotExpired"):
        beside_load(run)
    assert len(told) == 1
    beside_load(run)
    assert found == LIVING
