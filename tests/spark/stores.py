"""Rows of several stores, as Spark reads them."""

from __future__ import annotations

from typing import Any

from tests.spark.tables import source_of


def rows(schema: str, **options: Any) -> list[tuple[Any, ...]]:
    """The rows of a load, without a session."""
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    kinds = {"string": StringType(), "int": IntegerType()}
    source = source_of(options.pop("path", ""), **options)
    if not source.given["path"]:
        del source.given["path"]
    source.schema()
    fields = (each.split() for each in schema.split(", "))
    reader = source.reader(StructType([StructField(name, kinds[kind]) for name, kind in fields]))
    return [
        tuple(row.values())
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
