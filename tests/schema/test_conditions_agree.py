"""Prevents a condition that a range answers in another way than a scan, or than DuckDB does."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logstore
from logstore.codec import ARROW_COLUMNS
from logstore.compaction import segment_rewrite
from logstore.engine.maintenance import column_statistics
from logstore.ids import StreamID
from tests.scan.scanned_stores import make_store

BEGIN_MS = 1_700_000_000_000
NAMES = count()


class ColumnCase(NamedTuple):
    """A type of a schema and of DuckDB, values, and literals as ours and as DuckDB's."""

    kind: str
    sql: str
    values: st.SearchStrategy[Any]
    literals: st.SearchStrategy[str]


def quoted(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


DAYS = st.dates(date(2026, 1, 1), date(2026, 1, 5))
MOMENTS = DAYS.map(lambda day: datetime(day.year, day.month, day.day, 12, tzinfo=UTC))
TIMES = st.sampled_from([time(0), time(12, 30), time(12, 30, 0, 1), time(23, 59, 59)])
LETTERS = st.text("ab%_!é\n", max_size=3)
SMALL = st.integers(-3, 3)
HALVES = st.integers(-6, 6).map(lambda each: f"{each / 2}")
LEVELS = st.sampled_from(["low", "high"])
REFS = st.integers(0, 3).map(lambda each: UUID(int=each << 126 | each))
COLUMNS = {
    "flag": ColumnCase("bool", "boolean", st.booleans(), st.sampled_from(["true", "FALSE"])),
    "small": ColumnCase("int", "integer", SMALL, HALVES | st.just("99999999999")),
    "large": ColumnCase("long", "bigint", SMALL.map(lambda each: each * 2**61), st.sampled_from(
        ["-9223372036854775808", "0", "0.5", "2305843009213693952", "99999999999999999999"])),
    "temp": ColumnCase("double", "double", st.sampled_from(
        [0.0, -0.0, 0.1, 1.5, -2.0, math.nan, math.inf, -math.inf]), HALVES | st.just("0.1")
        | st.just("'nan'")),
    "price": ColumnCase("decimal(6, 2)", "decimal(6, 2)", SMALL.map(lambda each: Decimal(each) / 4),
                        HALVES | st.sampled_from(["0.255", "123456.7", "0.25"])),
    "note": ColumnCase("string", "varchar", LETTERS, LETTERS.map(quoted)),
    "raw": ColumnCase("binary", "blob", st.sampled_from([b"", b"a", b"ab", b"\xff"]),
                      st.sampled_from(["'a'", "'ab'", "''"])),
    "day": ColumnCase("date", "date", DAYS, DAYS.map(lambda day: f"date '{day}'")),
    "moment": ColumnCase("timestamp", "timestamptz", MOMENTS, MOMENTS.map(
        lambda at: f"timestamp '{at.isoformat(' ')}'") | DAYS.map(quoted)),
    "clock": ColumnCase("time", "time", TIMES, TIMES.map(lambda each: f"time '{each}'")),
    "ref": ColumnCase("uuid", "uuid", REFS, REFS.map(quoted)),
    "level": ColumnCase("enum('low', 'high')", "varchar", LEVELS, LEVELS.map(quoted)),
}  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | SMALL | st.sampled_from([0.5, 1e300]) | LETTERS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)
PATHS = st.sampled_from([("tags.a", "$.a"), ("tags.a.b", "$.a.b"), ("tags.a[0]", "$.a[0]"),
                         ("tags[1]", "$[1]"), ('tags."b"', "$.b")])  # fmt: skip
SIGNS = st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">="])


class Said(NamedTuple):
    """A condition in our language and in DuckDB's."""

    ours: str
    sql: str


@st.composite
def compared(
    draw: st.DrawFn, name: str, sql: str, literals: st.SearchStrategy[str], *, nulls: bool = True
) -> Said:
    """A test of a column."""
    forms = ["sign", "sign", "between", "in", "mirrored", *["null"] * nulls]
    form = draw(st.sampled_from(forms))
    negation = draw(st.sampled_from(["", "not "]))
    one, other, third = draw(literals), draw(literals), draw(literals)
    if form == "sign":
        found = f"{draw(SIGNS)} {one}"
    elif form == "mirrored":
        sign = draw(SIGNS)
        return Said(f"{one} {sign} {name}", sql_of(f"{one} {sign} {sql}"))
    elif form == "between":
        found = f"{negation}between {one} and {other}"
    elif form == "in":
        found = f"{negation}in ({', '.join([one, other, third][: draw(st.integers(1, 3))])})"
        if draw(st.integers(0, 4)) == 0:
            found = f"{found[:-1]}, null)"
    else:
        found = f"is {negation}null"
    return Said(f"{name} {found}", sql_of(f"{sql} {found}"))


def sql_of(text: str) -> str:
    """As DuckDB has it, where a timestamp has no zone unless it is told."""
    return text.replace("timestamp '", "timestamptz '")


@st.composite
def like(draw: st.DrawFn, name: str, sql: str) -> Said:
    pattern = draw(st.text("ab%_é", max_size=4))
    found = draw(st.sampled_from(["like", "not like"]))
    if draw(st.booleans()):
        pattern = pattern.replace("%", "!%", 1) + "!_"
        found = f"{found} {quoted(pattern)} escape '!'"
    else:
        found = f"{found} {quoted(pattern)}"
    return Said(f"{name} {found}", f"{sql} {found}")


@st.composite
def in_json(draw: st.DrawFn) -> Said:
    """A test of what stands in the column ``tags``."""
    ours, path = draw(PATHS)
    kind = f"json_type(tags, '{path}')"
    text = f"json_extract_string(tags, '{path}')"
    of_text = f"(case when {kind} = 'VARCHAR' then {text} end)"
    numbers = "('BIGINT', 'UBIGINT', 'DOUBLE')"
    of_number = f"(case when {kind} in {numbers} then cast({text} as double) end)"
    of_bool = f"(case when {kind} = 'BOOLEAN' then cast({text} as boolean) end)"
    form = draw(st.integers(0, 4))
    if form == 0:
        return draw(compared(ours, of_number, HALVES, nulls=False))
    if form == 1:
        return draw(compared(ours, of_text, LETTERS.map(quoted), nulls=False))
    if form == 2:
        return draw(compared(ours, of_bool, st.sampled_from(["true", "false"]), nulls=False))
    if form == 3:
        return draw(like(ours, of_text))
    negation = draw(st.sampled_from(["", "not "]))
    return Said(f"{ours} is {negation}null", f"nullif({kind}, 'NULL') is {negation}null")


@st.composite
def of_ids(draw: st.DrawFn) -> Said:
    """A test of an ID, or of the time that is in it."""
    ms, seq = BEGIN_MS + draw(st.integers(-1, 6)), draw(st.integers(0, 2))
    sign = draw(SIGNS)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms, microseconds=seq)
    return draw(
        st.sampled_from(
            [
                Said(f"id {sign} '{ms}-{seq}'", f"(ms, seq) {sign} ({ms}, {seq})"),
                Said(f"ms {sign} {ms}.5", f"ms {sign} {ms}.5"),
                Said(f"seq {sign} {seq}", f"seq {sign} {seq}"),
                Said(f"ts {sign} timestamp '{moment}'", f"ts {sign} timestamptz '{moment}'"),
                Said(f"id in ('{ms}-{seq}')", f"(ms, seq) = ({ms}, {seq})"),
            ]
        )
    )


def combined(leaves: st.SearchStrategy[Said]) -> st.SearchStrategy[Said]:
    """Tests in and, or, not."""

    def joined(parts: list[Said], word: str) -> Said:
        return Said(*(f" {word} ".join(f"({each[at]})" for each in parts) for at in (0, 1)))

    def more(inner: st.SearchStrategy[Said]) -> st.SearchStrategy[Said]:
        parts = st.lists(inner, min_size=1, max_size=3)
        return st.builds(joined, parts, st.sampled_from(["and", "or"])) | inner.map(
            lambda each: Said(f"not ({each.ours})", f"not ({each.sql})")
        )

    constants = st.sampled_from(["true", "false", "null"]).map(lambda each: Said(each, each))
    return st.recursive(leaves | leaves | leaves | constants, more, max_leaves=5)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[logstore.Store[bytes]]:
    with make_store(tmp_path_factory.mktemp("agree") / "store", node_max_entries=3) as opened:
        yield opened


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        yield connection


def seal(store: Any) -> None:
    """Give all sealed nodes statistics."""
    shared = store._live()
    segment_rewrite.seal(shared.engine, shared.committer)
    column_statistics.write_missing(shared.engine)


def ids_of(stream: Any, where: str) -> list[str]:
    """Of a range, which a scan and a range from the end must answer alike."""
    found = [str(entry.id) for entry in stream.range(where=where)]
    assert stream.scan(columns=["id"], where=where).to_arrow()["id"].to_pylist() == found, where
    assert [str(entry.id) for entry in stream.range(where=where, reverse=True)] == found[::-1]
    assert [str(entry.id) for entry in stream.range(where=where, count=1)] == found[:1]
    assert [str(entry.id) for entry in stream.follow("0-0", where=where, timeout=0)] == found
    pushed = stream.scan(columns=["id"], where=where)._query._condition.filter
    if "\0" not in str(pushed):  # a step into JSON, or a field that is no column
        scan = stream.scan(columns=[*dict.fromkeys([*ARROW_COLUMNS, *stream.scan().schema.names])])
        batches = scan.pushed(["id"], pushed, None)
        assert [id for batch in batches for id in batch["id"].to_pylist()] == found, where
    return found


def ids_of_duckdb(
    database: duckdb.DuckDBPyConnection, types: list[str], rows: list[list[Any]], sql: str
) -> list[str]:
    """The IDs of rows, which begin with their ms, seq and ts."""
    database.execute(f"create or replace table rows ({', '.join(types)})")
    marks = ", ".join("?" for _ in types)
    database.executemany(f"insert into rows values ({marks})", rows)
    found = database.execute(f"select ms, seq from rows where {sql} order by ms, seq").fetchall()
    return [f"{ms}-{seq}" for ms, seq in found]


STANDARD = ["ms bigint", "seq bigint", "ts timestamptz"]


def placed(rows: list[Any]) -> list[tuple[StreamID, Any]]:
    """Rows with IDs, some of them of one millisecond."""
    return [(StreamID(BEGIN_MS + at // 2, at % 2), row) for at, row in enumerate(rows)]


@given(st.data())
def test_a_range_and_a_scan_answer_as_duckdb_does(
    store: logstore.Store[bytes], database: duckdb.DuckDBPyConnection, data: st.DataObject
) -> None:
    some = st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4, unique=True)
    cases = {name: COLUMNS[name] for name in data.draw(some)}
    fields = {name: st.none() | case.values for name, case in cases.items()}
    row_of = st.fixed_dictionaries(fields | {"tags": VALUES})
    rows = placed(data.draw(st.lists(row_of, min_size=1, max_size=8)))
    stream = store.stream(f"typed {next(NAMES)}")
    columns = [f"{name} {case.kind}?" for name, case in cases.items()]
    others = data.draw(st.sampled_from([[], ["*"]]))
    stream.configure(schema=", ".join([*columns, "tags json", *others]))
    for id, row in rows:
        there = {name: row[name] for name in cases if row[name] is not None}
        stream.add(there | {"tags": json.dumps(row["tags"]).encode()}, id=id)
    leaves = [compared(name, name, case.literals) for name, case in cases.items()]
    leaves += [like(name, name) for name in cases if name in ("note", "level")]
    leaves += [st.sampled_from([Said("flag", "flag")])] * ("flag" in cases)
    said = data.draw(combined(st.one_of([*leaves, in_json(), of_ids()])))
    types = [*STANDARD, *[f"{name} {case.sql}" for name, case in cases.items()], "tags json"]
    given_rows = [
        [id.ms, id.seq, id.time, *[row[name] for name in cases], json.dumps(row["tags"])]
        for id, row in rows
    ]
    expected = ids_of_duckdb(database, types, given_rows, said.sql)
    assert ids_of(stream, said.ours) == expected
    gone = data.draw(st.lists(st.sampled_from([str(id) for id, _ in rows]), unique=True))
    seal(store)
    assert ids_of(stream, said.ours) == expected
    if gone:
        stream.delete(*gone)
        assert ids_of(stream, said.ours) == [each for each in expected if each not in gone]


NUMBERS = ["0", "-0.0", "1.5", "15e-1", "nan", "-inf", "x", "", "007", "1e400", "9007199254740993"]
TEXTS = [*NUMBERS, "true", "False", "2026-01-02", "2026-01-02 12:00:00",
         "2026-01-02T13:00:00+01:00", "ab", "é%"]  # fmt: skip


@given(st.data())
def test_a_stream_without_a_schema_is_compared_as_the_literals_are(
    store: logstore.Store[bytes], database: duckdb.DuckDBPyConnection, data: st.DataObject
) -> None:
    fields = st.fixed_dictionaries({"x": st.none() | st.sampled_from(TEXTS)})
    rows = placed(data.draw(st.lists(fields, min_size=1, max_size=8)))
    stream = store.stream(f"plain {next(NAMES)}")
    for id, row in rows:
        stream.add({"x": row["x"]} if row["x"] is not None else {"y": ""}, id=id)
    leaves = [
        compared("x", "try_cast(x as double)", HALVES | st.just("7"), nulls=False),
        compared("x", "x", st.sampled_from(TEXTS).map(quoted)),
        compared("x", "try_cast(x as timestamptz)", MOMENTS.map(
            lambda at: f"timestamp '{at.isoformat(' ')}'"), nulls=False),
        like("x", "x"),
        compared("z", "null", HALVES),
    ]  # fmt: skip
    said = data.draw(combined(st.one_of([*leaves, of_ids()])))
    given_rows = [[id.ms, id.seq, id.time, row["x"]] for id, row in rows]
    found = ids_of_duckdb(database, [*STANDARD, "x varchar"], given_rows, said.sql)
    assert ids_of(stream, said.ours) == found


WILD = st.sampled_from([
    b"+5", b" 5", b"5 ", b"+inf", b"infinity", b"NaN", b"nan(1)", b"-nan", b"0x10", b"1_0", b"5.",
    b".5", b"5e", b"1" * 450, b"t", b"T", b"1", b"0", b"yes", b"\xff", b"5\xff", b"\xef\xbf\xbd",
    b"2026-01-02", b"2026-01-02 12", b"2026-01-02T12:30", b"2026-01-02Z", b"2026-01-02 12:30:60",
    b"2026-01-02 24:00", b"2026-01-02 12:30-25:00", b"2026-01-02 12:30:00.1234567", b"2026-1-2",
    b"12:30", b"12:30:00.1", b"25:00", b"{}", b'{"a": 5}', b'{"a": "\xff"}', b'{"a": NaN}',
    b'{"a": 1e400}', b'{"a": "2026-01-02"}', b'{"a": true}', b"[" * 5000, b"\0", b"",
    b'{"a": "\\ud800"}', b'{"a": 1' + b"0" * 400 + b"}",
]) | st.binary(max_size=4)  # fmt: skip
LITERALS = st.sampled_from([
    "5", "0", "1e300", "true", "'5'", "'\ufffd'", "'5\ufffd'", "''", "'t'", "date '2026-01-02'",
    "timestamp '2026-01-02'", "timestamp '2026-01-02 12:00'", "time '12:30'", "'[' ", "'{}'",
])  # fmt: skip


@given(st.lists(WILD, min_size=1, max_size=8), st.sampled_from(["x", "x.a"]), SIGNS, LITERALS)
def test_any_stored_bytes_are_compared_alike(
    store: logstore.Store[bytes], texts: list[bytes], name: str, sign: str, literal: str
) -> None:
    stream = store.stream(f"wild {next(NAMES)}")
    stream.add_many([{"x": text} for text in texts])
    ids_of(stream, f"{name} {sign} {literal} or {name} is null")
    ids_of(stream, f"{name} not in ({literal})")
