"""Prevents a table about a store that says something else than the store itself.

Without a session, but for one query: the reader as Spark's planner has it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logstore.errors import OptionError
from logstore.spark_io.tables import TABLES
from tests.house import shown
from tests.scan.scanned_stores import make_store
from tests.spark.tables import rows, source_of


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "store"
    with make_store(path) as store:
        for name in (b"a", b"b\xff"):
            store[name].add_many((((n, 0), {"n": n}) for n in range(1, 21)), batch=7)
            store[name].group("g").create(start="0")
        store["a"].group("g").read("c", count=15)
        store["a"].group("g").ack("1-0", "2-0")
        store["a"].expire(after=3600)
        store["a"].delete("3-0")
    return path


def test_tables_about_the_store_equal_info(path: Path) -> None:
    with make_store(path) as store:
        info, segments = store["a"].info(), store.info().segments
    first, second = rows(path, "streams")
    assert (first["length"], first["entries_added"], first["max_deleted_id"]) == (19, 20, "3-0")
    assert (first["stream"], first["first_id"], first["last_id"]) == ("a", "1-0", "20-0")
    assert (first["nodes"], first["node_bytes"]) == (info.radix_tree_keys, info.node_bytes)
    assert (first["expires_at"], second["expires_at"]) == (info.expires_at, None)
    assert second["stream"] == "b\\xff"
    groups = {(each["stream"], each["pending"], each["lag"]) for each in rows(path, "groups")}
    assert groups == {("a", 13, 5), ("b\\xff", 0, 20)}
    pending = rows(path, "pending", stream="a")
    assert [each["id"] for each in pending] == [f"{n}-0" for n in range(3, 16)]
    assert {(each["consumer"], each["delivery_count"]) for each in pending} == {("c", 1)}
    assert all(each["idle_ms"] >= 0 for each in pending)
    found = rows(path, "segments")
    assert len(found) == segments
    assert sum(each["live_nodes"] for each in found) > 0
    assert rows(path, "pins") == []
    assert rows(path, "groups", "lag bigint, stream string", stream="a") == [
        {"lag": 5, "stream": "a"}
    ]
    assert len(rows(path, "streams", streams="a*")) == 1


def test_the_page_has_the_columns_of_each_table() -> None:
    told = {
        name: shown.rows("docs/scan.md", "`table` | columns")[name].split("`")[1] for name in TABLES
    }
    assert told == {
        name: ", ".join(column.split()[0] for column in columns.split(", "))
        for name, columns in TABLES.items()
    }


def test_in_a_query(spark: Any, path: Path) -> None:
    frame = spark.read.format("logstore").options(path=str(path), table="pending").load()
    assert frame.count() == 13
    by_group = frame.groupBy("group").count().collect()
    assert [(row["group"], row["count"]) for row in by_group] == [("g", 13)]
    pins = spark.read.format("logstore").options(path=str(path), table="pins").load()
    assert pins.collect() == []
    entries = spark.read.format("logstore").options(path=str(path), stream="a").load()
    assert entries.count() == 19
    (row,) = spark.read.format("logstore").options(path=str(path), table="pins").load().collect()
    with make_store(path) as store:
        (pin,) = store.pins()
        store.release_pins(pin.id)
    assert (row.pin, row.purpose, row.host, row.pid) == (pin.id, "spark", pin.host, pin.pid)
    assert (row.segments, row.segment_bytes) == (pin.segments, pin.segment_bytes)
    assert 0 < row.snapshot_bytes == pin.snapshot_bytes
    assert row.since < row.until


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": "stream"}, "option 'table' is streams, groups, pending, segments, pins"),
        ({"table": "streams", "startid": "1"}, "option 'startId' does not go with 'table'"),
        ({"table": "damage", "mode": "FAILFAST"}, "option 'mode' does not go with 'table'"),
        ({"tabel": "streams"}, "did you mean 'table'"),
        ({"option.table": "streams", "provider": "x", "location": "x"}, "option 'table'"),
    ],
)
def test_options_that_cannot_be(path: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as raised:
        source_of(path, **options).schema()
    assert words in str(raised.value)


def test_columns_that_cannot_be(path: Path) -> None:
    for schema in ("length string", "lenght bigint"):
        with pytest.raises(OptionError, match="the table 'streams' has stream string, length"):
            rows(path, "streams", schema)
