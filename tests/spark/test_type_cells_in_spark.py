"""Prevents a table of types in the docs that says other things than Spark shows."""

from __future__ import annotations

from datetime import time
from pathlib import Path
from typing import Any

import pytest

import logstore
from tests.schema.type_table import TABLE, TYPES, outside, plain, same, typed_store, values


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cells") / "store"
    with typed_store(path):
        pass
    return path


@pytest.mark.parametrize("kind", TYPES)
def test_spark(spark: Any, path: Path, kind: str) -> None:
    """Its values are looked at as Arrow, since datetimes of Python lack some days of Spark."""
    frame = spark.read.format("logstore").option("stream", plain(kind)).load(str(path))
    assert frame.schema["v"].dataType.simpleString() == TABLE[kind]["Spark"]
    assert frame.schema["v"].nullable
    found = frame.orderBy("id_key").select("v").toArrow().column("v").to_pylist()
    wanted = [same(in_spark(outside(kind, value))) for value in values(kind)]
    assert list(map(same, found)) == [*wanted, same(None), same(None)]


def in_spark(value: Any) -> Any:
    return value.isoformat("microseconds") if isinstance(value, time) else value


@pytest.mark.parametrize("kind", TYPES)
def test_a_write_of_spark_is_the_stream_again(
    spark: Any, path: Path, tmp_path: Path, kind: str
) -> None:
    """Types, edges and nulls, by the schema of the stream."""
    again = tmp_path / "again"
    with logstore.open(again) as store:
        store.stream(plain(kind)).configure(schema=f"v {kind}?, n int")
    frame = spark.read.format("logstore").option("stream", plain(kind)).load(str(path))
    rows = frame.select("id", "v", "n").coalesce(1)
    rows.write.format("logstore").mode("append").option("stream", plain(kind)).save(str(again))
    with logstore.open(path) as one, logstore.open(again) as other:
        stored = [
            list(store.stream(plain(kind)).scan().to_arrow()["pairs"]) for store in (one, other)
        ]
    assert stored[0] == stored[1]
