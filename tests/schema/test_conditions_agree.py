"""Prevents a condition that a range answers in another way than a scan, or than DuckDB does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logstore
from logstore.codec import ARROW_COLUMNS
from logstore.ids import StreamID
from tests.scan.scanned_stores import make_store, seal_with_statistics
from tests.schema.drawn_conditions import (
    BEGIN_MS,
    COLUMNS,
    HALVES,
    MOMENTS,
    SIGNS,
    VALUES,
    Said,
    combined,
    compared,
    in_json,
    like,
    of_ids,
    quoted,
)

NAMES = count()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[logstore.Store[bytes]]:
    with make_store(tmp_path_factory.mktemp("agree") / "store", node_max_entries=3) as opened:
        yield opened


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        yield connection


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
    seal_with_statistics(store)
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
