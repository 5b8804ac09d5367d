"""Prevents SQL that writes elsewhere than it says, or half of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scan.scanned_stores import make_store, rows_of


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


@pytest.fixture
def laps(spark: Any, tmp_path: Path) -> Iterator[Path]:
    """A store, and a table of one of its streams."""
    path = tmp_path / "store"
    with make_store(path) as store:
        store["laps"].add({"n": "1"}, id="1-0")
    spark.sql("DROP TABLE IF EXISTS laps")
    spark.sql(f"CREATE TABLE laps {using(path)}")
    yield path
    for name in ("laps", "own_columns", "made_of_rows"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def using(path: Path, stream: str = "laps") -> str:
    return f"USING logstore OPTIONS (path '{path}', stream '{stream}')"


def kept(path: Path) -> list[tuple[str, dict[str, str]]]:
    with make_store(path) as store:
        found = rows_of(store["laps"])
    return [(id, {field.decode(): value.decode() for field, value in pairs}) for id, pairs in found]


def test_inserts_by_table_and_by_view(spark: Any, laps: Path) -> None:
    """By table and by view; a view with columns of its own takes fields by their names."""
    spark.sql("INSERT INTO laps (id, fields) VALUES ('2-0', map('n', '2'))")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen {using(laps)}")
    spark.sql("INSERT INTO seen VALUES ('laps', '3-0', 3, 0, null, map('n', '3'), null, null)")
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW named (ms bigint, n int, who string) {using(laps)}"
    )
    spark.sql("INSERT INTO named VALUES (4, 4, 'Norem'), (5, 5, null)")
    told = [(row[0], row[1]) for row in spark.sql("DESCRIBE named").collect()]
    assert told == [("ms", "bigint"), ("n", "int"), ("who", "string")]
    assert spark.sql("SELECT count(*), sum(n), count(who) FROM named").first() == (5, 15, 1)
    assert kept(laps) == [
        *((f"{n}-0", {"n": str(n)}) for n in range(1, 4)),
        ("4-0", {"n": "4", "who": "Norem"}),
        ("5-0", {"n": "5"}),
    ]
    spark.sql("INSERT OVERWRITE laps (id, fields) VALUES ('1-0', map('n', '9'))")
    assert kept(laps) == [("1-0", {"n": "9"})]
    spark.sql(f"CREATE OR REPLACE GLOBAL TEMPORARY VIEW everywhere {using(laps)}")
    assert spark.sql("SELECT count(*) FROM global_temp.everywhere").first()[0] == 1
    told = {row[0]: row[1] for row in spark.sql("DESCRIBE EXTENDED laps").collect()}
    assert (told["fields"], told["Table"]) == ("map<string,string>", "laps")


def test_unsupported_statements_are_errors_and_change_nothing(spark: Any, laps: Path) -> None:
    """The errors that docs/spark.md tells of."""
    spark.sql(f"CREATE TABLE own_columns (n int) {using(laps)}")
    cases = {
        "SELECT * FROM own_columns": "created with columns of its own",
        "INSERT INTO own_columns VALUES (1)": "created with columns of its own",
        f"CREATE TABLE made_of_rows {using(laps, 'new')} AS SELECT 1 AS n": "of its own",
        "TRUNCATE TABLE laps": "does not support truncates",
        "DELETE FROM laps WHERE ms = 1": "does not support deletes",
        "UPDATE laps SET ms = 2": "does not support UPDATE TABLE",
        f"SELECT * FROM logstore.`{laps}`": "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY",
        "INSERT INTO laps (id, fields) VALUES ('1-0', map('n', '2'))": "1-0 is not above",
        "INSERT INTO laps (fields) VALUES (map('n', '2'))": "null",
    }
    for query, words in cases.items():
        with pytest.raises(Exception, match=r"\w") as raised:
            spark.sql(query).collect()
        assert words in str(raised.value), query
    assert kept(laps) == [("1-0", {"n": "1"})]
    with make_store(laps) as store:
        assert store.streams() == [b"laps"]
