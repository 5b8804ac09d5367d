"""Prevents a query by `logstore sql` that writes, misleads, or needs DuckDB without saying so."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import logstore
import logstore.duckdb
from logstore.tools.commands import main

pytest.importorskip("duckdb", reason="duckdb is not installed: install the extra 'duckdb'")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "store"
    with logstore.open(path, sync="os", background=False) as store:
        store.stream("race:a").add_many(((n, 0), {"speed": n, "x": "é"}) for n in range(1, 5))
        store.stream("odd*").add({"raw": b"\xff"}, id="5-0")
    return path


def run(path: Path, query: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["sql", str(path), query, *options])


def test_a_query_is_printed(path: Path) -> None:
    done = run(path, 'select id, speed, ts from "race:a" where speed::int > 2')
    assert done.exit_code == 0
    assert [line.split() for line in done.output.splitlines()] == [
        ["id", "speed", "ts"],
        ["3-0", "3", "1970-01-01T00:00:00.003000+00:00"],
        ["4-0", "4", "1970-01-01T00:00:00.004000+00:00"],
    ]


def test_rows_as_json(path: Path) -> None:
    query = """
        select stream, count(*) as n, max(id_key) as top, max(x) as x, any_value(fields) as f
        from entries group by all order by 1
    """
    rows = [json.loads(line) for line in run(path, query, "--json").output.splitlines()]
    assert [(row["stream"], row["n"], row["x"]) for row in rows] == [
        ("odd*", 1, None), ("race:a", 4, "é"),
    ]  # fmt: skip
    assert rows[1]["f"] == {"speed": "1", "x": "é"}
    assert json.loads(run(path, 'select id from "odd*"', "--json").output) == {"id": "5-0"}


@pytest.mark.parametrize(
    ("query", "told"),
    [("select * from nobody", "entries is all"), ("selec", "syntax error"),
     (" -- no more", "there is no query"),
     ("select speed::int / 0, x::int from \"race:a\"", "Conversion")],
)  # fmt: skip
def test_an_invalid_query_is_an_error(path: Path, query: str, told: str) -> None:
    done = run(path, query)
    assert done.exit_code == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_without_duckdb_the_extra_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = run(path, "select 1")
    assert done.exit_code == 1
    assert "pip install 'logstore-streams[duckdb]'" in done.stderr


# -- names that DuckDB takes for one ----------------------------------------------------------
@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Streams and fields whose names differ by case, or are those of what is there already."""
    path = tmp_path_factory.mktemp("alike") / "store"
    with logstore.open(path, sync="os", background=False) as store:
        store.stream("Orders").add({"Name": "first", "name": "second"}, id="1-0")
        store.stream("orders").add({"n": 2}, id="2-0")
        store.stream("Visits").add({"id": "seven", "ts": "noon", "stream": "Rhine"}, id="3-0")
        store.stream("w").add({"n": 1}, id="4-0")
        store.stream("entries").add({"n": "of the stream"}, id="5-0")
        store.stream('odd "name".x').add({"": "nameless", b"\xff": "bytes"}, id="6-0")
    return path


def rows(path: Path, query: str) -> list[dict[str, object]]:
    done = run(path, query, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.output.splitlines()]


TABLES = ["Orders_2", "Visits", "entries", "entries_2", 'odd "name".x', "orders_3", "w"]


def test_no_query_answers_with_the_rows_of_a_stream_of_another_case(alike: Path) -> None:
    assert rows(alike, "select id from orders_3") == [{"id": "2-0"}]
    assert rows(alike, 'select id from "Orders_2"') == [{"id": "1-0"}]
    for query in ("select id from orders", 'select id from "Orders"', "from ORDERS",
                  "from Orders_2 join orders using (id)"):  # fmt: skip
        done = run(alike, query)
        assert done.exit_code == 1
        assert "'Orders' is the table Orders_2, 'orders' is orders_3" in done.stderr


def test_a_stream_is_found_whatever_the_case_of_its_name_in_the_query(alike: Path) -> None:
    for query in ("select id_2 from visits", "select ID_2 from VISITS",
                  "with x as (from visits) select id_2 from x",
                  "select id_2 from query_table('visits')", "select id_2 from main.visits",
                  "prepare p as select id_2 from visits; execute p",
                  "create table t as select id_2 from visits; select id_2 from t"):  # fmt: skip
        assert [list(row.values()) for row in rows(alike, query)] == [["seven"]], query


def test_statements_that_name_tables_in_other_ways_find_them(alike: Path) -> None:
    """Those of which DuckDB's parser tells no names before it knows the tables."""
    assert rows(alike, "select count(*) as n from w join visits using (seq)") == [{"n": 1}]
    assert rows(alike, "pivot w on n using count(*) group by stream") == [{"stream": "w", "1": 1}]
    assert [row["column_name"] for row in rows(alike, "show w")][-1] == "n"
    assert rows(alike, "select 'orders' as word") == [{"word": "orders"}]


def test_the_catalogue_lists_all_streams_and_no_substrings(alike: Path) -> None:
    """`show tables` listed a stream w, for there is a w in it, and no other."""
    assert [row["name"] for row in rows(alike, "show tables")] == TABLES
    found = rows(alike, "select table_name as name from information_schema.tables order by 1")
    assert [row["name"] for row in found] == TABLES
    columns = rows(alike, "select column_name from duckdb_columns() where table_name = 'Visits'")
    assert [row["column_name"] for row in columns][-3:] == ["id_2", "ts_2", "stream_2"]


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The tables that are made of streams."""
    found: list[str | None] = []
    whole = logstore.duckdb.attach

    def attach(*given: Any, view: str | None = None) -> list[str]:
        found.append(view)
        return whole(*given, view=view)

    monkeypatch.setattr(logstore.duckdb, "attach", attach)
    return found


NAMES_ONLY = (
    "show tables",
    "select name from (show tables) order by 1",
    "select table_name as name from information_schema.tables order by 1",
    "select view_name as name from duckdb_views() where not internal order by 1",
    "select name from sqlite_master order by 1",
    "prepare p as show tables; execute p",
)


@pytest.mark.parametrize("query", NAMES_ONLY)
def test_the_names_of_tables_cost_no_look_at_their_streams(
    alike: Path, attached: list[str | None], query: str
) -> None:
    """Of ten thousand streams, `show tables` made ten thousand tables, in 46 s."""
    assert [row["name"] for row in rows(alike, query)] == TABLES
    assert attached == []


def test_a_table_that_was_listed_is_read_as_any_other(
    alike: Path, attached: list[str | None]
) -> None:
    """In the same statement, and in one after it, by every way to name it."""
    both = (
        "select id_2, (select count(*) from information_schema.tables) as n from visits "
        "where exists (from duckdb_views() where view_name = 'w')"
    )
    assert rows(alike, both) == [{"id_2": "seven", "n": len(TABLES)}]
    for query in ("select id_2 from visits", "select id_2 from query_table('visits')",
                  "prepare p as select id_2 from visits; execute p",
                  "pivot visits on id_2 using min(seq)"):  # fmt: skip
        found = rows(alike, f"show tables; {query}")
        assert len(found) == len(TABLES) + 1
        assert "seven" in [*found[-1], *found[-1].values()]
    assert set(attached) == {"Visits"}
    undone = rows(alike, "begin; show tables; rollback; show tables; select id_2 from visits")
    assert len(undone) == 2 * len(TABLES) + 1
    made = rows(alike, "show tables; create table t as select n from w; show tables; from t")
    assert [row["name"] for row in made[len(TABLES) : -1]] == sorted([*TABLES, "t"])
    assert made[-1] == {"n": "1"}


@pytest.mark.parametrize(
    "query",
    [
        "select column_count as n from duckdb_views() where view_name = 'Visits'",
        "select count(*) as n from information_schema.columns where table_name = 'Visits'",
        "select len(column_names) as n from (show all tables) where name = 'Visits'",
        "select count(*) as n from pragma_table_info('visits')",
    ],
)
def test_statements_that_tell_of_columns_tell_those_of_the_streams(alike: Path, query: str) -> None:
    assert rows(alike, f"show tables; {query}")[-1] == {"n": 11}


def test_the_table_of_all_streams_is_not_a_stream(alike: Path) -> None:
    """A stream of its name took its place."""
    assert rows(alike, "select count(*) as n from entries") == [{"n": 6}]
    assert rows(alike, "select n from ENTRIES where stream = 'w'") == [{"n": "1"}]
    assert rows(alike, "select n from entries_2") == [{"n": "of the stream"}]


def test_fields_that_are_named_alike_have_columns_of_their_own(alike: Path) -> None:
    query = 'select name, name_2, "Name" as again from orders_2'
    assert rows(alike, query) == [{"Name": "first", "name_2": "second", "again": "first"}]
    query = "select id, id_2, ts_2, stream, stream_2 from visits where id_2 = 'seven'"
    assert rows(alike, query) == [
        {"id": "3-0", "id_2": "seven", "ts_2": "noon", "stream": "Visits", "stream_2": "Rhine"}
    ]
    assert rows(alike, 'select _ as nameless from "odd ""name"".x"') == [{"nameless": "nameless"}]


def test_a_field_that_no_sample_has_is_refused_by_name(tmp_path: Path) -> None:
    """Where the tool had seen `name` only, a query of `Name` answered with it."""
    with logstore.open(tmp_path / "store", sync="os", background=False) as store:
        for at in range(1, 500):
            store.stream("t").add({"Name" if at == 250 else "name": at}, id=(at, 0))
    done = run(tmp_path / "store", 'select "Name" from t')
    assert done.exit_code == 1
    assert "entry 250-0 of stream b't' has the field 'Name'" in done.stderr
    assert "Traceback" not in done.stderr
    query = "select fields['Name'] as name from t where ms = 250"
    assert rows(tmp_path / "store", query) == [{"name": "250"}]


def test_columns_of_one_name_are_all_in_json(alike: Path) -> None:
    found = rows(alike, "select w.id, o.id, 7 as id from w join orders_3 o on true")
    assert found == [{"id": "4-0", "id_2": "2-0", "id_3": 7}]


def test_variables_of_python_are_no_tables(alike: Path) -> None:
    """DuckDB looks for a name in the frames above: a query read variables of ours."""
    for name in ("output", "con", "names", "store", "path", "query", "self"):
        done = run(alike, f"from {name}")
        assert done.exit_code == 1
        assert f"Table with name {name} does not exist" in done.stderr
