"""What a stream source gives, batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def reader_of(path: Path, **options: Any) -> Any:
    """The reader as Spark's planner has it."""
    pytest.importorskip("pyspark")
    from pyspark.sql.types import StringType, StructField, StructType

    from logstore.spark_io.source import LogstoreSource

    given = {"path": str(path), "streams": "race:*"} | options
    source = LogstoreSource({key.lower(): str(value) for key, value in given.items()})
    return source.streamReader(StructType([StructField("n", StringType())]))


def batch(reader: Any, start: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    """The rows of the next batch, and its end."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return ([] if end == start else rows(reader, start, end)), end


def rows(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    found: list[int] = []
    for partition in reader.partitions(start, end):
        for each in reader.read(partition):
            found += map(int, each.column(0).to_pylist())
    return sorted(found)
