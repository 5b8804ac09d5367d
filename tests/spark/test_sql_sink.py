"""Prevents SQL that writes elsewhere than it says, or half of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.scan.look import make_store, rows_of


def test_insert_into_a_table_and_a_view(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with make_store(path) as store:
        store["laps"].add({"n": "1"}, id="1-0")
    spark.sql("DROP TABLE IF EXISTS sink_laps")
    spark.sql(f"CREATE TABLE sink_laps USING logstore OPTIONS (path '{path}', stream 'laps')")
    try:
        spark.sql(
            "INSERT INTO sink_laps SELECT 'laps', '2-0', 2L, 0L, null, map('n', '2'), null, null"
        )
        assert spark.sql("SELECT count(*) FROM sink_laps").first()[0] == 2
        told = [(row[0], row[1]) for row in spark.sql("DESCRIBE sink_laps").collect()]
        assert told[:2] == [("stream", "string"), ("id", "string")]
    finally:
        spark.sql("DROP TABLE sink_laps")
    with make_store(path) as store:
        assert rows_of(store["laps"]) == [("1-0", [(b"n", b"1")]), ("2-0", [(b"n", b"2")])]
