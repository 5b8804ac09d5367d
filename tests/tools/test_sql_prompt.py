"""Prevents a prompt that ends with its statement, or keeps one from ending; statements that touch
files; results that hide their types; a store of many streams that is read through for one.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

import logstore
from logstore.tools.sql import result_forms
from logstore.tools.sql.sql_shell import gathered
from logstore.tools.sql.stream_tables import StreamTables, connect, interruptible, is_whole
from tests.tools.commands import COMMAND, contents, invoke, objects, ok, process
from tests.tools.pseudo_terminal import Terminal

pytest.importorskip("duckdb", reason="duckdb is not installed: install the extra 'duckdb'")

SLOW = "select count(*) from range(1000000000000) t(i) where i % 7 = 3"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream with a schema, one without, one with a name that is no word."""
    path = tmp_path_factory.mktemp("prompt") / "store"
    with logstore.open(path, sync="os", background=False) as store:
        typed = store.stream("typed")
        typed.configure(schema="temp double, room string, tags json?")
        typed.add({"temp": 21.5, "room": "a", "tags": {"x": [1]}}, id="1-0")
        typed.add({"temp": 22.5, "room": "b"}, id="2-0")
        store.stream("orders/eu").add_many(((n, 0), {"n": n}) for n in range(1, 200))
        store.stream("odd").add({"text": "evil\x1b[2J\nline", "raw": b"\xff"}, id="5-0")
    return path


def test_a_prompt_answers_goes_on_after_errors_and_interrupts_and_ends(
    path: Path, tmp_path: Path
) -> None:
    shell = Terminal("sql", str(path), home=tmp_path)
    shell.prompt()
    shell.type("select temp,\n")
    shell.until("...>")
    shell.type("room from typed order by 1;\n")
    shown = shell.until("2 rows")
    assert re.search(r"│ +temp +│ +room +│", shown)
    assert re.search(r"│ +DOUBLE +│ +VARCHAR +│", shown)
    shell.prompt()
    shell.type("select nonsense from typed;\n")
    shown = shell.until("^^^^")
    assert "Binder Error" in shown
    assert "Traceback" not in shown
    shell.prompt()
    shell.type(f"select 1; {SLOW};\n")
    shell.until("1 row")  # the next statement begins
    shell.type("\x03")
    shell.until("interrupted")
    shell.prompt()
    shell.type(".tables\n")
    shown = shell.until("4 rows")
    assert re.search(r"│ orders/eu +│ +199 │", shown)
    assert re.search(r"│ typed +│ +2 │ temp double, room string, tags json\? +│", shown)
    shell.prompt()
    shell.type("select 1 as half")
    shell.type("\x03")  # forgets the line
    shell.prompt()
    shell.type(".quit\n")
    assert shell.end() == 0
    kept = (tmp_path / "logstore" / "sql_history").read_text()
    assert "+select temp,\n+room from typed order by 1;\n" in kept
    assert (tmp_path / "logstore" / "sql_history").stat().st_mode & 0o077 == 0


def test_tab_completes_tables_columns_and_words(path: Path, tmp_path: Path) -> None:
    shell = Terminal("sql", str(path), home=tmp_path)
    shell.prompt()
    shell.type('select n from "ord\t')
    shell.until('ers/eu"')
    shell.type(" order by 1 limit 1;\n")
    shell.until("1 row")
    shell.prompt()
    shell.type(".mo\t")
    shell.until("de")
    shell.type(" lines\n")
    shell.prompt()
    shell.type("from typed limit 1;\n")
    assert "temp = 21.5" in shell.until("pairs = ")
    shell.prompt()
    shell.type("\x04")
    assert shell.end() == 0


def test_a_long_result_goes_to_the_pager(path: Path, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho the pager has:\nhead -6\n")
    pager.chmod(0o755)
    asked = 'select n from "orders/eu"'
    shell = Terminal("sql", str(path), asked, home=tmp_path, PAGER=str(pager))
    shown = shell.until("│ 2")
    assert shell.end() == 0
    assert "the pager has:" in shown
    assert "199 rows" not in shown
    shell = Terminal("sql", str(path), f"{asked} limit 3", home=tmp_path, PAGER=str(pager))
    assert "the pager" not in shell.until("3 rows")
    assert shell.end() == 0


def test_without_prompt_toolkit_there_is_a_plain_prompt(path: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['prompt_toolkit'] = None; "
        "import logstore.tools.cli as cli; cli.main()"
    )
    shell = Terminal("sql", str(path), home=tmp_path, program=(sys.executable, "-c", program))
    assert "logstore-streams[duckdb]" in shell.until("sql>")
    shell.type("select room\n")
    shell.until("...>")
    shell.type("from typed;\n")
    shell.until("2 rows")
    shell.until("sql>")
    shell.type("\x04")
    assert shell.end() == 0


def test_a_stream_that_comes_or_goes_meanwhile(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", sync="os") as store:
        store.stream("a").add({"n": 1})
        shell = Terminal("sql", str(tmp_path / "store"), home=tmp_path)
        shell.prompt()
        shell.type("select n from a;\n")
        shell.until("1 row")
        store.stream("b").add({"m": 7})
        store.stream("a").add({"n": 2, "later": 3})
        shell.prompt()
        shell.type("select later, m from a join b on true;\n")
        assert re.search(r"│ 3 +│ 7 +│", shell.until("2 rows"))
        store.drop("a")
        shell.prompt()
        shell.type("select n from a;\n")
        assert "Table with name a does not exist" in shell.until("entries is all")
        shell.prompt()
        shell.type(".quit\n")
        assert shell.end() == 0


# -- scripts ----------------------------------------------------------------------------------
def test_statements_from_stdin_up_to_the_first_error(path: Path) -> None:
    script = b".mode csv\nselect 1 as a;\nselect ';' as\n  b; -- ; no end\nselec 3;\nselect 4;\n"
    done = process("sql", path, stdin=script)
    assert (done.returncode, done.stdout) == (1, b"a\n1\nb\n;\n")
    assert b'syntax error at or near "selec"' in done.stderr
    assert b"logstore:" not in done.stderr
    assert process("sql", path, stdin=b"select 5 as x").stdout == b"x\n5\n"
    assert b"there is no query" in process("sql", path, stdin=b"").stderr


def test_an_error_is_duckdbs_own_with_its_lines(path: Path) -> None:
    done = invoke("sql", path, 'select avg(n)\nfrom "orders/eu"')
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert lines[0].startswith("Binder Error: No function matches")
    assert lines[-2].startswith("LINE 1: select avg(n)")
    assert lines[-1].strip("^ ") == ""
    assert lines[-1].index("^") == lines[-2].index("avg")
    told = json.loads(invoke("sql", path, "select avg(n) from typed", "--json").stderr)
    assert told["error"] == "BinderException"


def test_several_statements_of_a_query_are_all_shown(path: Path) -> None:
    query = "select 1 as a; create table t as select 5 as x; set variable y = 2; from t"
    assert objects(ok("sql", path, query, "--json")) == [{"a": 1}, {"x": 5}]
    query = "create table t(i int); insert into t values (1), (2) returning i; delete from t"
    assert objects(ok("sql", path, query, "--json")) == [{"i": 1}, {"i": 2}]


def test_csv_and_json(path: Path) -> None:
    query = "select room, tags, ms, null as nothing, 'nan'::double as odd from typed order by ms"
    assert ok("sql", path, query, "--csv") == (
        'room,tags,ms,nothing,odd\na,"{""x"":[1]}",1,,nan\nb,,2,,nan\n'
    )
    assert objects(ok("sql", path, query, "--json"))[0] == {
        "room": "a", "tags": '{"x":[1]}', "ms": 1, "nothing": None, "odd": "nan",
    }  # fmt: skip
    both = invoke("sql", path, query, "--csv", "--json")
    assert both.exit_code == 2
    assert "not both" in both.stderr


def test_dot_commands(path: Path) -> None:
    assert objects(ok("sql", path, ".tables", "--json")) == [
        {"table": "entries", "entries": 202, "columns": ""},
        {"table": "odd", "entries": 1, "columns": ""},
        {"table": "orders/eu", "entries": 199, "columns": ""},
        {"table": "typed", "entries": 2, "columns": "temp double, room string, tags json?"},
    ]
    shown = ok("sql", path, '.schema "orders/eu"')
    assert shown.startswith('CREATE TABLE "orders/eu" (\n')
    assert shown.endswith('  "n" VARCHAR\n);\n')
    assert '  "temp" DOUBLE,\n' in ok("sql", path, ".schema")
    assert ".schema [TABLE]" in ok("sql", path, ".help")
    for said, told in ((".nonsense", ".help lists"), (".mode x", "box, csv"),
                       (".schema nobody", "there is no table 'nobody'")):  # fmt: skip
        done = invoke("sql", path, said)
        assert done.exit_code == 1
        assert told in done.stderr


def test_control_characters_do_not_steer_the_terminal(path: Path, tmp_path: Path) -> None:
    for mode in ("box", "csv", "json", "lines"):
        query = f".mode {mode}\nselect text, raw from odd;\n"
        shell = Terminal("sql", str(path), home=tmp_path, program=(
            "/bin/sh", "-c", f'printf "{query}" | "$0" "$@"', *COMMAND,
        ))  # fmt: skip
        assert shell.end() == 0
        assert b"\x1b[2J" not in shell.said
        assert b"evil" in shell.said


# -- nothing is written -----------------------------------------------------------------------
@pytest.mark.parametrize(
    "query",
    [
        "copy (select 1) to '{0}/x.csv'", "attach '{0}/x.db' as x", "export database '{0}'",
        "install httpfs", "load httpfs", "from '{0}/there.csv'", "from read_text('{0}/there.csv')",
        "set profiling_output = '{0}/x'", "set log_query_path = '{0}/x'",
        "set temp_directory = '{0}'", "set enable_external_access = true",
        "set home_directory = '{0}'",
        "create persistent secret x (type http)", "set allowed_configs = ['profiling_output']",
    ],
)  # fmt: skip
def test_no_statement_touches_a_file(path: Path, tmp_path: Path, query: str) -> None:
    (tmp_path / "there.csv").write_text("a\n1\n")
    before = contents(path)
    done = invoke("sql", path, query.format(tmp_path))
    assert done.exit_code == 1, done.output
    assert [each.name for each in tmp_path.iterdir()] == ["there.csv"]
    assert contents(path) == before


def test_files_are_touched_when_they_are_allowed(path: Path, tmp_path: Path) -> None:
    query = f"copy (select temp from typed) to '{tmp_path}/x.csv'; from '{tmp_path}/x.csv'"
    assert objects(ok("sql", path, query, "--files", "--json")) == [{"temp": 21.5}, {"temp": 22.5}]


def test_tables_of_statements_are_in_memory_and_before_a_stream(path: Path) -> None:
    query = "from typed limit 0; create table typed as select 7 as x; from typed"
    assert objects(ok("sql", path, query, "--json")) == [{"x": 7}]
    query = "create table typed as select 7 as x; drop table typed; select room from typed"
    assert objects(ok("sql", path, query, "--json")) == [{"room": "a"}, {"room": "b"}]


# -- many streams -----------------------------------------------------------------------------
def test_of_many_streams_those_that_are_named_are_looked_at(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", sync="os", background=False) as store:
        for number in range(10_000):
            store.stream(f"dev:{number}").add({"n": number})
        made: list[str] = []

        class Counted(StreamTables):
            def _make(self, name: str) -> bool:
                made.append(name)
                return super()._make(name)

        with connect(files=False) as con:
            tables = Counted(con, store, _no_progress)
            for query, named, rows in (
                ("select 1", [], [(1,)]),
                ("select n from \"dev:77\" union all select n from 'dev:9999'",
                 ["dev:77", "dev:9999"], [("77",), ("9999",)]),
                ("select sum(n::int) from entries", ["entries"], [(49_995_000,)]),
                ("select count(*) from range(3)", [], [(3,)]),
            ):  # fmt: skip
                made.clear()
                (statement,) = con.extract_statements(query)
                tables.execute(statement)
                assert con.fetchall() == rows
                assert sorted(made) == named
    assert len(objects(ok("sql", tmp_path / "store", ".tables", "--json"))) == 10_001


class _Silent:
    def __enter__(self) -> Callable[[int, int], None]:
        return lambda _done, _total: None

    def __exit__(self, *_error: object) -> None:
        return None


def _no_progress(_what: str) -> _Silent:
    return _Silent()


# -- parts ------------------------------------------------------------------------------------
def test_an_interrupt_ends_a_statement_and_the_connection_stays() -> None:
    with connect(files=False) as con:
        for _ in range(3):
            timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                interruptible(con, lambda: con.execute(SLOW))
            timer.join()
        assert interruptible(con, lambda: con.execute("select 5").fetchall()) == [(5,)]


@pytest.mark.parametrize(
    ("text", "whole"),
    [("select 1;", True), ("select 1; -- x", True), ("select é;", True), (";", True), ("", False),
     ("select 1", False), ("select ';", False), ("select $$;", False), ("-- ;", False),
     ("/* ;", False), ('select "a;', False), ("select ';';", True)],
)  # fmt: skip
def test_the_end_of_a_statement(text: str, whole: bool) -> None:
    assert is_whole(text) == whole


def test_lines_are_gathered_to_statements() -> None:
    lines = [".mode csv\n", "\n", "select 1\n", ".5;\n", "select ';\n", "';\n", "select 2"]
    assert [each.strip() for each in gathered(lines)] == [
        ".mode csv", "select 1\n.5;", "select ';\n';", "select 2",
    ]  # fmt: skip


def test_a_box_is_cut_to_its_terminal_and_takes_rows_as_they_come() -> None:
    def rows() -> Iterator[tuple[object, ...]]:
        number = 0
        while True:
            number += 1
            yield number, "字" * 60, None

    result = result_forms.Result(["n", "text", "x"], ["INTEGER", "VARCHAR", "DOUBLE"], rows())
    lines = list(islice(result_forms.box_lines(result, result_forms.Canvas(40, True)), 2000))
    assert {result_forms.cell_len(line) for line in lines} == {40}
    assert lines[3].startswith("├─")
    assert lines[4].endswith("…  │   NULL │") or "NULL" in lines[4]
    plain = list(islice(result_forms.box_lines(result, result_forms.Canvas(40, False)), 3))
    assert all(each.isascii() for each in plain)
