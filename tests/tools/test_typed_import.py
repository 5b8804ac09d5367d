"""Prevents imports that lose the types of a file, or find types that its rows do not have."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import SchemaError
from logstore.schema.schema_text import parse
from logstore.tools.interchange.import_command import Load
from logstore.tools.interchange.import_schema import ImportSchema
from logstore.tools.interchange.text_rows import ImportRow
from tests.tools.commands import invoke, objects, ok, pairs, process
from tests.tools.tables import pa, written


def told(store: Path, file: Path, *more: Any) -> dict[str, Any]:
    """The report of an import."""
    (found,) = objects(ok("import", store, file, "--json", *more))
    return found


def typed(store: Path, name: str) -> tuple[str, list[dict[str, Any]]]:
    """The schema of a stream, and its entries."""
    with logstore.open(store, create=False, encoding="utf-8") as opened:
        stream = opened.stream(name)
        return str(stream.schema), [dict(entry) for entry in stream]


def from_text(tmp_path: Path, name: str, data: str | bytes, *more: Any) -> Any:
    """The schema and the entries that a file of text becomes."""
    file = tmp_path / name
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    ok("import", tmp_path / "s", file, *more)
    return typed(tmp_path / "s", name.partition(".")[0])


# -- tables -----------------------------------------------------------------------------------
MOMENT = datetime(2026, 11, 26, 12, 0, 0, 123456, tzinfo=UTC)
COLUMNS: list[tuple[Any, str, Any]] = [
    (pa.array([True]), "bool", True),
    (pa.array([-7], pa.int8()), "int", -7),
    (pa.array([7], pa.uint16()), "int", 7),
    (pa.array([7], pa.uint32()), "long", 7),
    (pa.array([2**40]), "long", 2**40),
    (pa.array([2**64 - 1], pa.uint64()), "decimal(20, 0)", Decimal(2**64 - 1)),
    (pa.array([0.5], pa.float32()), "double", 0.5),
    (pa.array([float("inf")]), "double", float("inf")),
    (pa.array([Decimal("1.50")], pa.decimal128(10, 2)), "decimal(10, 2)", Decimal("1.50")),
    (pa.array([Decimal("1.5")], pa.decimal256(38, 4)), "decimal(38, 4)", Decimal("1.5")),
    (pa.array([Decimal("1.5")], pa.decimal256(60, 4)), "string", "1.5000"),
    (pa.array(["x"], pa.large_string()), "string", "x"),
    (pa.array(["x"]).dictionary_encode(), "string", "x"),
    (pa.array([b"\xff"]), "binary", b"\xff"),
    (pa.array([b"\xff"], pa.binary(1)), "binary", b"\xff"),
    (pa.array([date(2026, 1, 2)]), "date", date(2026, 1, 2)),
    (pa.array([MOMENT]), "timestamp", MOMENT),
    (pa.array([MOMENT.replace(tzinfo=None)]), "timestamp", MOMENT),
    (pa.array([MOMENT], pa.timestamp("us", "Asia/Kolkata")), "timestamp", MOMENT),
    (pa.array([1_000_000_000], pa.timestamp("ns")), "timestamp",
     datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    (pa.array([time(1, 2, 3, 4)]), "time", time(1, 2, 3, 4)),
    (pa.array([time(1, 2, 3)], pa.time32("s")), "time", time(1, 2, 3)),
    (pa.array([[1, None]]), "json", [1, None]),
    (pa.array([{"b": 1.5, "a": [{"c": "x"}]}]), "json", {"b": 1.5, "a": [{"c": "x"}]}),
    (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), "json", {"k": 1}),
    (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([uuid.UUID(int=5).bytes], pa.binary(16))),
     "uuid", uuid.UUID(int=5)),
]  # fmt: skip


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_the_schema_of_a_table_is_taken_over(tmp_path: Path, name: str) -> None:
    names = [f"c{at}" for at in range(len(COLUMNS))]
    table = pa.table({at: column for at, (column, _, _) in zip(names, COLUMNS, strict=True)})
    if name.endswith("parquet"):  # which keeps no seconds
        table = table.set_column(names.index("c21"), "c21", table["c21"].cast(pa.time32("ms")))
    report = told(tmp_path / "s", written(tmp_path / name, table))
    schema, (entry,) = typed(tmp_path / "s", "t")
    assert schema == ", ".join(
        f"{at} {kind}?" for at, (_, kind, _) in zip(names, COLUMNS, strict=True)
    )
    assert report["schema"] == schema
    assert report["stream"] == "t"
    assert entry == {at: value for at, (_, _, value) in zip(names, COLUMNS, strict=True)}


def test_columns_that_are_not_nullable_and_ids(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.string()), pa.field("n", pa.int64(), nullable=False)])
    table = pa.table({"id": ["1-1", "2-0"], "n": [1, 2]}, schema)
    file = written(tmp_path / "a.arrow", table)
    assert told(tmp_path / "s", file)["schema"] == "n long"
    assert (
        told(tmp_path / "s", file, "--auto-id", "--stream", "b")["schema"] == "id string?, n long"
    )
    assert [id for id, _ in pairs(tmp_path / "s", "a")] == ["1-1", "2-0"]


def test_a_schema_that_is_given_overrules(tmp_path: Path) -> None:
    table = pa.table({"n": [1.0, 2.0], "at": [MOMENT] * 2, "tags": [["a"], None]})
    file = written(tmp_path / "t.parquet", table)
    told(tmp_path / "s", file, "--schema", "n long, tags string?, at timestamp, more bool = 'true'")
    schema, (first, _) = typed(tmp_path / "s", "t")
    assert schema == "n long, tags string?, at timestamp, more bool = 'true'"
    assert first == {"n": 1, "tags": '["a"]', "at": MOMENT, "more": True}
    report = told(tmp_path / "s", file, "--schema", "none", "--stream", "plain")
    assert "schema" not in report
    assert typed(tmp_path / "s", "plain")[0] == "None"
    assert pairs(tmp_path / "s", "plain")[1][1] == [
        (b"n", b"2"), (b"at", b"2026-11-26 12:00:00.123456Z"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_a_schema_of_the_stream_holds_for_imports(tmp_path: Path, name: str) -> None:
    """A schema, or a codec; or entries without one, among which others go as text."""
    file = tmp_path / name
    if name.endswith("parquet"):
        written(file, pa.table({"n": ["1.0", "x"]}))
    else:
        file.write_text("n\n1.0\nx\n" if name.endswith("csv") else '{"n":1.0}\n{"n":"x"}\n')
    with logstore.open(tmp_path / "s") as store:
        store.stream("typed").configure(schema="n double")
        store.stream("plain").add({"n": "old"})
        store.stream("coded", codec="json").add({"n": 1})
    done = invoke("import", tmp_path / "s", file, "--stream", "typed", "--json")
    (error,) = objects(done.stderr)
    assert (done.exit_code, error["error"]) == (1, "InputLineError")
    assert "column 'n' is double" in error["message"]
    assert error.get("line", error.get("row")) == {"a.parquet": 2, "a.csv": 3, "a.jsonl": 2}[name]
    assert typed(tmp_path / "s", "typed") == ("n double", [])
    report = told(tmp_path / "s", file, "--stream", "typed", "--skip-bad")
    assert (report["imported"], report["bad"]) == (1, 1)
    assert "schema" not in report
    assert typed(tmp_path / "s", "typed") == ("n double", [{"n": 1.0}])
    for stream, text in (("plain", b"x"), ("coded", b'"x"')):
        if stream == "coded" and name.endswith("parquet"):
            assert "codec" in invoke("import", tmp_path / "s", file, "--stream", stream).stderr
            continue
        told(tmp_path / "s", file, "--stream", stream)
        assert typed(tmp_path / "s", stream)[0] == "None"
        assert [fields for _, fields in pairs(tmp_path / "s", stream)][1:] == [
            [(b"n", b"1.0")], [(b"n", text)],
        ]  # fmt: skip
    done = invoke("import", tmp_path / "s", file, "--stream", "plain", "--schema", "n long")
    assert done.exit_code == 1
    assert "n" in done.stderr


def test_a_refused_import_leaves_no_stream(tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", pa.table({"n": [1, None]}))
    done = invoke("import", tmp_path / "s", file, "--schema", "n long")
    assert "row 2: column 'n' is not nullable" in done.stderr
    done = invoke("import", tmp_path / "s", file, "--schema", "n long?, m long")
    assert "column 'm' is missing" in done.stderr
    done = invoke("import", tmp_path / "s", file, "--schema", "m long?")
    assert "no column 'n'" in done.stderr
    done = invoke("import", tmp_path / "s", file, "--schema", "n colour")
    assert done.exit_code == 2
    done = invoke("import", tmp_path / "s", file, "--no-create")
    assert done.exit_code == 1
    with logstore.open(tmp_path / "s") as store:
        assert store.streams() == []
    (tmp_path / "a.csv").write_text("n\n1\n")
    done = invoke("import", tmp_path / "s", tmp_path / "a.csv", "--no-create")
    assert "--no-create" in done.stderr
    with logstore.open(tmp_path / "s") as store:
        assert store.streams() == []


def test_stdin_needs_the_name_of_a_stream(tmp_path: Path) -> None:
    done = process("import", tmp_path / "s", stdin=b'{"a": 1}\n')
    assert done.returncode == 1
    assert b"--stream" in done.stderr
    done = process("import", tmp_path / "s", "--stream", "s", "--json", stdin=b'{"a": 1}\n')
    assert json.loads(done.stdout)["schema"] == "a long?, *"


# -- CSV --------------------------------------------------------------------------------------
FLIGHTS = """day;from;delay;code;price;ok;at
2026-01-02;BER;12;007;"1,5";true;2026-01-02 10:00
2026-01-03;;-3;010;2.5;false;2026-01-02T11:00:00+02:00
"""
FLIGHT_SCHEMA = (
    "day date?, from string?, delay long?, code string?, price string?, ok bool?, at timestamp?"
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be",
                                      "utf-32"])  # fmt: skip
@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
def test_the_delimiter_the_encoding_and_the_types_of_a_csv_are_found(
    tmp_path: Path, encoding: str, delimiter: str
) -> None:
    text = FLIGHTS.replace(";", delimiter).replace("BER", "Köln")
    schema, entries = from_text(tmp_path, "flights.csv", text.encode(encoding))
    assert schema == FLIGHT_SCHEMA
    assert entries == [
        {"day": date(2026, 1, 2), "from": "Köln", "delay": 12, "code": "007", "price": "1,5",
         "ok": True, "at": datetime(2026, 1, 2, 10, tzinfo=UTC)},
        {"day": date(2026, 1, 3), "delay": -3, "code": "010", "price": "2.5", "ok": False,
         "at": datetime(2026, 1, 2, 9, tzinfo=UTC)},
    ]  # fmt: skip


def test_options_overrule_what_is_found(tmp_path: Path) -> None:
    schema, entries = from_text(tmp_path, "a.csv", "x;y\n1;\xfc\n".encode("latin-1"),
                                "--encoding", "latin-1", "--delimiter", ";",
                                "--schema", "x string, y string")  # fmt: skip
    assert (schema, entries) == ("x string, y string", [{"x": "1", "y": "ü"}])
    schema, entries = from_text(tmp_path, "b.csv", "x;y\n1;2\n", "--delimiter", ",")
    assert entries == [{"x;y": "1;2"}]


def test_bytes_that_are_in_no_encoding_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,\xfc\n")
    done = invoke("import", tmp_path / "s", tmp_path / "a.csv")
    assert "line 2: field 'y' is no UTF-8" in done.stderr
    with logstore.open(tmp_path / "s") as store:
        assert store.streams() == []


def test_a_csv_without_a_header(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1,x,2026-01-01\n2,y,2026-01-02\n3,z,2026-01-03\n")
    done = invoke("import", tmp_path / "s", file)
    assert done.exit_code == 1
    assert "--no-header" in done.stderr
    with logstore.open(tmp_path / "s") as store:
        assert store.streams() == []
    told(tmp_path / "s", file, "--no-header")
    schema, entries = typed(tmp_path / "s", "a")
    assert schema == "column1 long?, column2 string?, column3 date?"
    assert [entry["column1"] for entry in entries] == [1, 2, 3]
    told(tmp_path / "s", file, "--no-header", "--schema", "n int, t string, d date",
         "--stream", "b")  # fmt: skip
    assert typed(tmp_path / "s", "b")[1][0] == {"n": 1, "t": "x", "d": date(2026, 1, 1)}
    assert told(tmp_path / "s", file, "--header", "--stream", "c")["imported"] == 2
    told(tmp_path / "s", file, "--no-header", "--schema", "none", "--stream", "d")
    assert pairs(tmp_path / "s", "d")[0][1][0] == (b"column1", b"1")
    done = invoke("import", tmp_path / "s", file, "--no-header", "--schema", "n int",
                  "--stream", "e")  # fmt: skip
    assert "line 1: 3 cells under a header of 1" in done.stderr


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (",a\n0,x\n", [{"column1": 0, "a": "x"}]),
        ("a,A,a,\n1,2,3,4\n", [{"a": 1, "A_2": 2, "a_3": 3, "column4": 4}]),
        ("a,a_2,a\n1,2,3\n", [{"a": 1, "a_2": 2, "a_3": 3}]),
        ('a,"b, c",D e\n1,2,3\n', [{"a": 1, "b, c": 2, "D e": 3}]),
        ("id,ms,a\n1-1,5,x\n", [{"ms": 5, "a": "x"}]),
        ("a,b\n,\n", None),
        ("a,b\n,2\n", [{"b": 2}]),
        ("a,b\n", []),
        ("", []),
    ],
)
def test_names_of_columns(tmp_path: Path, text: str, wanted: list[dict[str, Any]] | None) -> None:
    """Empty ones, repeated ones, and those that differ by case only, as tools have them."""
    if wanted is None:
        file = tmp_path / "a.csv"
        file.write_text(text)
        assert told(tmp_path / "s", file)["imported"] == 1  # of what nothing is known is text
        return
    assert from_text(tmp_path, "a.csv", text)[1] == wanted


def test_hundreds_of_columns(tmp_path: Path) -> None:
    names = [f"c{at}" for at in range(300)]
    rows = [",".join(str(at * row) for at in range(300)) for row in range(3)]
    schema, entries = from_text(tmp_path, "a.csv", "\n".join([",".join(names), *rows]))
    assert schema == ", ".join(f"{name} long?" for name in names)
    assert entries[2]["c299"] == 598
    names = [f"c{at}" for at in range(1001)]
    (tmp_path / "b.csv").write_text(f"{','.join(names)}\n{','.join('x' * 1001)}\n")
    done = invoke("import", tmp_path / "s", tmp_path / "b.csv")
    assert "--schema none" in done.stderr
    told(tmp_path / "s", tmp_path / "b.csv", "--schema", "none")


def test_rows_of_other_types_make_a_schema_wider(tmp_path: Path) -> None:
    """Also far behind the rows in which it was found, whose values stay readable."""
    rows = [f"{at},{at % 7},x{at}" for at in range(100_000)]
    rows[70_000] = "70000,1.5,x"
    rows[90_000] = "n/a,2,x"
    schema, entries = from_text(tmp_path, "a.csv", "\n".join(["a,b,c", *rows]))
    assert schema == "a string?, b double?, c string?"
    assert [entries[at]["b"] for at in (0, 8, 70_000, 99_999)] == [0.0, 1.0, 1.5, 99_999 % 7]
    assert [entries[at]["a"] for at in (0, 90_000)] == ["0", "n/a"]


# -- JSON lines -------------------------------------------------------------------------------
LOG = """{"at": "2026-01-02T10:00:00Z", "level": "error", "code": "007", "n": 5, "tags": {"b": [1.50, null]}}
{"at": "2026-01-02T10:00:01Z", "level": "12", "code": "12", "n": 5.5, "tags": [], "ok": true, "no": null}
{"at": "2026-01-02T10:00:02Z", "level": "", "big": 12345678901234567890, "n": null}
"""  # noqa: E501


@pytest.mark.parametrize("form", ["lines", "array"])
def test_the_types_of_json_lines_are_found(tmp_path: Path, form: str) -> None:
    """Numbers are what JSON says, not what looks like one."""
    text = LOG if form == "lines" else f"[{LOG.strip().replace(chr(10), ',')}]"
    schema, entries = from_text(tmp_path, "log.json", text)
    assert schema == (
        "at timestamp?, level string?, code string?, n double?, tags json?, ok bool?, "
        "big string?, *"
    )
    moment = datetime(2026, 1, 2, 10, tzinfo=UTC)
    assert entries == [
        {"at": moment, "level": "error", "code": "007", "n": 5.0, "tags": {"b": [1.5, None]}},
        {"at": moment.replace(second=1), "level": "12", "code": "12", "n": 5.5, "tags": [],
         "ok": True},
        {"at": moment.replace(second=2), "level": "", "big": "12345678901234567890"},
    ]  # fmt: skip


def test_json_lines_that_come_one_by_one(tmp_path: Path) -> None:
    """What comes later makes the schema wider, and has fields that were not there."""
    lines = [
        {"n": 1, "j": [1]}, {"n": 1.5, "new": True}, {"n": "x", "j": "5"}, {"n": [1]},
        {"n": {"a": None}, "j": 5},
    ]  # fmt: skip
    file = tmp_path / "a.jsonl"
    for at, line in enumerate(lines):
        file.write_text(json.dumps(line) + "\n")
        ok("import", tmp_path / "s", file, "--stream", f"s{at}")
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = told(tmp_path / "s", file, "--batch", 1)
    assert report["imported"] == 5
    schema, entries = typed(tmp_path / "s", "a")
    assert schema == "n string?, j string?, new bool?, *"
    assert [entry["n"] for entry in entries] == ["1", "1.5", "x", "[1]", '{"a":null}']


def test_later_lines_make_the_one_column_wider_that_they_do_not_fit(tmp_path: Path) -> None:
    lines = [json.dumps({"n": at, "j": [at], "pad": "x" * 50}) + "\n" for at in range(30_000)]
    lines += ['{"n": 1.5, "j": "x", "new": 7}\n', '{"j": 5}\n']
    schema, entries = from_text(tmp_path, "a.jsonl", "".join(lines))
    assert schema == "n double?, j json?, pad string?, *"
    assert entries[-2:] == [{"n": 1.5, "j": "x", "new": "7"}, {"j": 5}]
    assert entries[0]["n"] == 0.0


def test_exported_lines_come_back_as_they_were(tmp_path: Path) -> None:
    """Byte for byte, whatever their values look like."""
    with logstore.open(tmp_path / "s") as store:
        store.stream("a").add({"n": "1.50", "at": "2026-01-02T10:00:00Z", "z": "007", "e": ""})
    ok("export", tmp_path / "s", "a", tmp_path / "a.jsonl")
    report = told(tmp_path / "t", tmp_path / "a.jsonl")
    assert "schema" not in report
    assert pairs(tmp_path / "t", "a") == pairs(tmp_path / "s", "a")
    told(tmp_path / "t", tmp_path / "a.jsonl", "--stream", "b",
         "--schema", "n decimal(5, 2), at timestamp, z string, e string")  # fmt: skip
    assert typed(tmp_path / "t", "b")[1] == [
        {"n": Decimal("1.50"), "at": datetime(2026, 1, 2, 10, tzinfo=UTC), "z": "007", "e": ""}
    ]


def test_a_text_in_a_column_of_json_is_a_value(tmp_path: Path) -> None:
    """As a number is; in a CSV it is a JSON text, as nothing else can be."""
    (tmp_path / "a.jsonl").write_text('{"a": "x"}\n{"a": "5"}\n{"a": 5}\n{"a": {"b": 1}}\n')
    told(tmp_path / "s", tmp_path / "a.jsonl", "--schema", "a json")
    assert [entry["a"] for entry in typed(tmp_path / "s", "a")[1]] == ["x", "5", 5, {"b": 1}]
    (tmp_path / "b.csv").write_text('a\n"{""b"": 1}"\n"""5"""\n5\n')
    told(tmp_path / "s", tmp_path / "b.csv", "--schema", "a json")
    assert [entry["a"] for entry in typed(tmp_path / "s", "b")[1]] == [{"b": 1}, "5", 5]


def test_rows_are_held_against_a_schema_that_came_meanwhile(tmp_path: Path) -> None:
    """Prevents an import that passes by what somebody set since it began."""
    with logstore.open(tmp_path / "s", background=False) as store:
        stream = store.stream("a")
        schema = ImportSchema(stream, parse("n double"), to_set=True)
        before = schema.settle(create=True)
        assert schema.settle(create=True) == before > 0
        store.stream("a").configure(schema="n int")
        with pytest.raises(SchemaError, match="'n' is int"):
            Load(stream, rows=rows_of("5.5"), schema=schema).run()
        store.stream("a").configure(schema="n decimal(3, 1)")
        Load(stream, rows=rows_of("5"), schema=schema).run()
        assert [entry["n"] for entry in stream] == [Decimal("5.0")]


def rows_of(text: str) -> Any:
    yield ImportRow(1, None, [(b"n", text.encode())])


# -- decimal commas -----------------------------------------------------------------------------
@pytest.mark.parametrize("rows", [1, 20_000])
@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_decimal_commas_are_found(tmp_path: Path, rows: int, delimiter: str) -> None:
    """In columns all of whose values are such numbers; by cells, and row by row."""
    head = "room;area;fw;code;big;mixed;whole\n"
    some = "attic;12,5;1.3;007,5;1,234;2,5;7\n;-3;1.4;010,0;9,999;2.5;\ncellar;,5;1.5;1,0;,;x;-1\n"
    text = (head + some.replace(",;", ",5;", 0) * rows).replace(";", delimiter)
    (tmp_path / "a.csv").write_text(text)
    report = told(tmp_path / "s", tmp_path / "a.csv")
    assert report["decimal"] == ","
    schema, entries = typed(tmp_path / "s", "a")
    assert schema == (
        "room string?, area double?, fw double?, code string?, big string?, mixed string?, "
        "whole long?"
    )
    assert [entry["area"] for entry in entries] == [12.5, -3, 0.5] * rows
    assert entries[0] == {
        "room": "attic", "area": 12.5, "fw": 1.3, "code": "007,5", "big": "1,234", "mixed": "2,5",
        "whole": 7,
    }  # fmt: skip


def test_thousands_are_no_decimal_commas_unless_that_is_said(tmp_path: Path) -> None:
    text = "n;m\n1,234;1.5\n12,345;2\n"
    assert from_text(tmp_path, "a.csv", text)[0] == "n string?, m double?"
    schema, entries = from_text(tmp_path, "b.csv", text, "--decimal", ",")
    assert (schema, entries[0]) == ("n double?, m string?", {"n": 1.234, "m": "1.5"})
    assert from_text(tmp_path, "c.csv", "n;m\n1,5;1\n", "--decimal", ".")[0] == (
        "n string?, m long?"
    )
    schema, entries = from_text(tmp_path, "d.csv", 'n,m\n"1,5",7\n', "--decimal", ",")
    assert (schema, entries) == ("n double?, m long?", [{"n": 1.5, "m": 7}])


@pytest.mark.parametrize("rows", [1, 20_000])
def test_decimal_commas_of_a_schema_that_is_given(tmp_path: Path, rows: int) -> None:
    text = "area;price;note\n" + "12,5;1,50;1,5\n" * rows
    wanted = "area double, price decimal(6, 2), note string"
    for number, more in enumerate([(), ("--decimal", ",")]):
        schema, entries = from_text(tmp_path, f"a{number}.csv", text, "--schema", wanted, *more)
        assert schema == wanted
        assert entries == [{"area": 12.5, "price": Decimal("1.50"), "note": "1,5"}] * rows


def test_numbers_that_have_no_decimal_comma(tmp_path: Path) -> None:
    """A point is none there: 1.234 may be a thousand."""
    bad = tmp_path / "bad.csv"
    bad.write_text("area;n\n12,5;1\n1.234;2\n")
    refused = process("import", tmp_path / "s", bad, "--schema", "area double, n long",
                      "--decimal", ",")  # fmt: skip
    assert refused.returncode == 1
    assert b"'1.234' has no decimal comma: --decimal . reads a point" in refused.stderr
    bad.write_text('area,n\n"12,5",1\n')
    refused = process("import", tmp_path / "s", bad, "--schema", "area double, n long")
    said = (
        b"'12,5' is no number, for its decimal comma is to be a point, or import with --decimal ,"
    )
    assert said in refused.stderr
    text = "area;n\n" + "12,5;1\n" * 160_000 + "n/a;2\n7,5;1\n"
    schema, entries = from_text(tmp_path, "later.csv", text)
    assert schema == "area string?, n long?"
    assert [entry["area"] for entry in entries[-3:]] == ["12.5", "n/a", "7.5"]
    refused = process("import", tmp_path / "s", "--stream", "s", "--decimal", ",", stdin=b"{}")
    assert b"--decimal is not for jsonl" in refused.stderr
