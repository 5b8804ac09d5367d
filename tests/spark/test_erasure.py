"""Prevents reads of Spark that lose living entries, or are told of damage, beside an erasure.

The erasure is stopped between its steps, and Spark reads there what it planned before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logstore.errors import SnapshotExpiredError
from tests.compaction.erased import ENTRIES, ERASED, before_name_changes, fill, is_segment
from tests.scan.scanned_stores import make_store
from tests.spark.streamed import reader_of, rows

LIVING = [*range(ERASED, ENTRIES + 1), 0]  # the last one is in an open node


def erase(path: Path, between: Callable[[], None]) -> None:
    """Erase entries; in the middle of it, when one segment is gone and more are to go, do this."""
    unlinked: list[str] = []

    def before(kind: str, at: Path) -> None:
        if kind == "remove" and is_segment(at):
            unlinked.append(at.name)
            if len(unlinked) == 2:
                between()

    with before_name_changes(before), make_store(path, background=False) as store:
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
        with pytest.raises(Exception, match="SnapshotExpiredError") as raised:
            print(len(frame.collect()), "rows")
        told.append(str(raised.value))

    erase(path, between)
    assert len(told) == 1
    assert "load again" in told[0]
    assert "CorruptionError" not in told[0]
    again = reader.options(path=str(path), stream="x", failOnDataLoss=strict).load()
    assert [row.n for row in again.collect()] == LIVING


def test_a_streaming_query_reads_the_rest_when_it_goes_on(path: Path) -> None:
    """A batch whose tasks are told to load again is not over: a query that is started again asks
    for the same batch, with the offsets of its checkpoint, and has all that lives."""
    reader = reader_of(path, streams="x", failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    planned = reader.partitions(start, end)
    told: list[SnapshotExpiredError] = []

    def between() -> None:
        with pytest.raises(SnapshotExpiredError) as raised:
            print(sum(batch.num_rows for each in planned for batch in reader.read(each)), "rows")
        told.append(raised.value)

    erase(path, between)
    assert len(told) == 1
    again = reader_of(path, streams="x", failOnDataLoss="false")
    assert rows(again, start, end) == sorted(LIVING)
    again.commit(end)
    assert again.latestOffset(end, again.getDefaultReadLimit()) == end
