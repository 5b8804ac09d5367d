"""Prevents an example of a nightly job that gives other means, or others when it is run again."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.house.repo import EXAMPLES
from tests.recovery.shipped import ship
from tests.scan.scanned_stores import make_store

BEGIN_MS = int(datetime(2026, 11, 27, tzinfo=UTC).timestamp() * 1000)
DAY_MS = 24 * 3_600_000
IDS_MS = (BEGIN_MS - 1, BEGIN_MS, BEGIN_MS + 1, BEGIN_MS + DAY_MS - 1, BEGIN_MS + DAY_MS)
EARLY = 3  # so many are shipped when the job runs first
DAYS = {
    "2026-11-27": {0: (2, 21.5, 42), 23: (1, 23.0, 43)},
    "2026-11-28": {0: (1, 24.0, 44)},
}


def means(day: str, folder: Path) -> dict[int, tuple[int, float, int]]:
    """The means of a day that the program writes, by hour."""
    program = [sys.executable, EXAMPLES / "nightly_spark.py", folder / "shipped", folder / "means"]
    done = subprocess.run(
        [*program, day], cwd=folder, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = pq.read_table(folder / "means" / f"day={day}", partitioning=None).to_pylist()
    return {each.pop("hour").hour: tuple(each.values()) for each in rows}


def test_a_day_is_written_as_a_whole_also_again(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: make test installs it")
    with make_store(tmp_path / "sensor.store") as store:
        for number, ms in enumerate(IDS_MS):
            if number == EARLY:
                ship(store, tmp_path / "shipped")
                assert means("2026-11-27", tmp_path) == {0: (2, 21.5, 42)}
            values = {"celsius": 20 + number, "percent": 40 + number}
            store["readings"].add(values, id=f"{ms}-0")
        ship(store, tmp_path / "shipped")
    assert {day: means(day, tmp_path) for day in DAYS} == DAYS
