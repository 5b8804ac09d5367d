"""Prevents a query by `logstore sql` that writes, misleads, or needs DuckDB without saying so."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import logstore
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
def test_what_cannot_be_answered_is_told(path: Path, query: str, told: str) -> None:
    done = run(path, query)
    assert done.exit_code == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_without_duckdb_the_extra_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = run(path, "select 1")
    assert done.exit_code == 1
    assert "pip install 'logstore-streams[duckdb]'" in done.stderr
