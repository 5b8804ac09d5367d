"""Rows of a store, as Spark reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def source_of(path: Path, **options: Any) -> Any:
    pytest.importorskip("pyspark")
    from logstore.spark_io.source import LogstoreSource

    given = {"path": str(path)} | options
    return LogstoreSource({key.lower(): str(value) for key, value in given.items()})


def rows(path: Path, table: str, schema: str = "", **options: Any) -> list[dict[str, Any]]:
    from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

    kinds = {"string": StringType(), "bigint": LongType(), "timestamp": TimestampType()}
    source = source_of(path, table=table, **options)
    fields = (each.split() for each in (schema or source.schema()).split(", "))
    reader = source.reader(StructType([StructField(name, kinds[kind]) for name, kind in fields]))
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
