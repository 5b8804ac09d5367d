"""Prevents tools of Arrow that get other rows than a scan has, or read what they do not need."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import logstore
import logstore.duckdb
import logstore.polars
from logstore.api.store import Store
from logstore.errors import EntryTypeError, OptionError, StreamNotFoundError, UsageError
from logstore.ids import StreamID
from logstore.scan import live
from tests.scan.scanned_stores import make_store

COUNT = 2000
BEGIN_MS = 1_700_000_000_000
BEGIN = datetime.fromtimestamp(BEGIN_MS / 1000, UTC)
TYPES = {"id": None, "ms": None, "ts": None, "stream": None, "speed": pa.float64()}


@pytest.fixture(scope="module")
def races(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store[bytes]]:
    with make_store(tmp_path_factory.mktemp("tools") / "store", node_max_entries=10) as store:
        for first, name in enumerate(("race:a", "race:b")):
            rows = (
                ((BEGIN_MS + n, 0), {"speed": n % 40, "rider": f"r{n % 3}", "TS": n, "Rider": 1})
                for n in range(first, COUNT, 2)
            )
            store.stream(name).add_many(rows, batch=500)
        yield store


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, int, int]]:
    """What is read: streams, and milliseconds after the beginning."""
    found: list[tuple[bytes, int, int]] = []
    whole = live.StreamScan.__init__

    def init(
        self: Any, engine: Any, name: bytes, start: StreamID, end: StreamID, skipping: Any
    ) -> None:
        found.append((name, start.ms - BEGIN_MS, end.ms - BEGIN_MS))
        whole(self, engine, name, start, end, skipping)

    monkeypatch.setattr(live.StreamScan, "__init__", init)
    return found


@pytest.fixture
def con(races: Store[bytes]) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute("set timezone = 'America/Lima'")
        assert logstore.duckdb.attach(con, races, "race:*") == ["race:a", "race:b"]
        yield con


# -- DuckDB ----------------------------------------------------------------------------------
def test_duckdb_reads_streams_as_views(con: duckdb.DuckDBPyConnection) -> None:
    told = [name for name, *_ in con.execute('describe "race:a"').fetchall()]
    assert told == [
        "stream",
        "id",
        "ms",
        "seq",
        "ts",
        "fields",
        "id_key",
        "pairs",
        "speed",
        "rider",
        "TS_2",
        "Rider_2",
    ]
    sql = "select count(*), sum(speed::int), min(fields['rider']) from \"race:a\""
    wanted = (COUNT // 2, sum(n % 40 for n in range(0, COUNT, 2)), "r0")
    for _ in range(2):
        assert con.execute(sql).fetchone() == wanted
    both = (
        'select count(*) from "race:a" a join "race:b" b on a.ms + 1 = b.ms where a.speed = \'2\''
    )
    assert con.execute(both).fetchone() == (COUNT // 40,)


@pytest.mark.parametrize(
    ("where", "rows", "read"),
    [
        ("ts >= $at and ts < $at + interval 10 milliseconds", 5, (100, 109)),
        ("ts between $at and $at and speed = '20'", 1, (100, 100)),
        (f"ms > {BEGIN_MS + 1990}", 4, (1991, None)),
        (f"ms in ({BEGIN_MS + 8}, {BEGIN_MS + 10})", 2, None),
        (f"(ms = {BEGIN_MS + 8} or ms = {BEGIN_MS + 400}) and rider is not null", 2, (8, 400)),
        ("ts is null", 0, None),
        ("length(rider) = 3", 0, None),
        ("stream = 'race:b'", 0, ()),
    ],
)
def test_duckdb_reads_only_what_a_query_needs(
    con: duckdb.DuckDBPyConnection, walks: list[Any], where: str, rows: int, read: Any
) -> None:
    given = {"at": BEGIN + timedelta(milliseconds=100)} if "$at" in where else {}
    found = con.execute(f'select id from "race:a" where {where}', given).fetchall()
    assert len(found) == rows
    if read == ():
        assert walks == []
    elif read:
        ((_, first, last),) = walks
        assert first == read[0]
        assert read[1] is None or last == read[1]


def test_one_view_of_several_streams(races: Store[bytes], walks: list[Any]) -> None:
    with duckdb.connect() as con:
        schema = {"speed": pa.int32(), "SPEED": None}
        assert logstore.duckdb.attach(con, races, view="races", schema=schema) == ["races"]
        sql = "select stream, sum(speed) from races where stream = 'race:b' group by 1"
        assert con.execute(sql).fetchall() == [("race:b", sum(n % 40 for n in range(1, COUNT, 2)))]
        assert {name for name, *_ in walks} == {b"race:b"}
        races.stream("more").add({"speed": 7}, id=(BEGIN_MS, 0))
        assert con.execute("select count(*) from races").fetchone() == (COUNT + 1,)
        races.drop("more")


@pytest.fixture
def alike(tmp_path: Path) -> Iterator[Store[bytes]]:
    """Streams and fields whose names differ by case, or are those of standard columns."""
    with make_store(tmp_path / "alike") as store:
        store.stream("Orders").add({"Name": 1, "name": 2, "id": "x"}, id="1-0")
        store.stream("orders").add({"name": 3}, id="2-0")
        yield store


def test_streams_whose_names_differ_by_case_are_views_of_their_own(alike: Store[bytes]) -> None:
    """The last one's rows were in both; and whoever attaches one of them gets the same name."""
    with duckdb.connect() as con:
        assert logstore.duckdb.attach(con, alike) == ["Orders_2", "orders_3"]
        assert con.execute("select id from orders_2").fetchall() == [("1-0",)]
        assert con.execute("select id from orders_3").fetchall() == [("2-0",)]
        with pytest.raises(duckdb.CatalogException):
            con.execute("from orders")
        assert logstore.duckdb.attach(con, alike, "orders") == ["orders_3"]
        assert logstore.duckdb.attach(con, alike, "orders", view="mine") == ["mine"]
        assert con.execute("select id from mine").fetchall() == [("2-0",)]


@pytest.mark.parametrize("schema", [None, {"Name": pa.int64(), "name": pa.int64()}])
def test_fields_whose_names_differ_by_case_are_columns_of_their_own(
    alike: Store[bytes], schema: Any
) -> None:
    """One of them was no column, and a condition on it was one on the other."""
    with duckdb.connect() as con:
        logstore.duckdb.attach(con, alike, "Orders", view="o", schema=schema)
        sql = "select Name, name_2, id from o where name_2 = 2 and name = 1"
        assert [tuple(map(str, row)) for row in con.execute(sql).fetchall()] == [("1", "2", "1-0")]
        assert con.execute("select count(*) from o where NAME = 2").fetchone() == (0,)
        if schema is None:
            assert con.execute("select id_2 from o where id_2 = 'x'").fetchone() == ("x",)


def test_a_new_field_takes_no_column_from_an_older_one(alike: Store[bytes]) -> None:
    stream = alike.stream("orders")
    stream.add({"NAME": 7}, id="3-0")
    with duckdb.connect() as con:
        logstore.duckdb.attach(con, alike, "orders", view="o")
        sql = "select name, name_2 from o order by id_key"
        assert con.execute(sql).fetchall() == [("3", None), (None, "7")]


@pytest.fixture(params=["the field's own bytes", "fields of the node"])
def between(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store[bytes]]:
    """A stream of which no sample has the field that its middle has."""
    alone = request.param == "the field's own bytes"
    with make_store(tmp_path / "between", node_max_entries=10) as store:
        stream = store.stream("t")
        for at in range(1, 700):
            odd = 340 <= at < 360 and (at % 2 == 0 or not alone)
            row = {"Name": at, "id_2": at, "x": at} if odd else {"name": at, "id": at, "x": at}
            stream.add(row, id=f"{at}-0")
        yield store


def test_a_field_that_no_sample_has_is_never_answered_by_another_one(
    between: Store[bytes],
) -> None:
    """`Name` answered with `name`, whose case alone is another one: the query is refused."""
    with duckdb.connect() as con:
        logstore.duckdb.attach(con, between)
        told = r"entry 340-0 of stream b't' has the field 'Name', .* the column 'name'"
        for sql in (
            'select "Name" from t',
            "select x from t where NAME = '341'",
            "select max(name) from t where ms between 300 and 400",
        ):
            with pytest.raises(duckdb.Error, match=told):
                con.execute(sql).fetchall()
        with pytest.raises(duckdb.Error, match=r"the field 'id_2', .* the column 'id_2'"):
            con.execute("select id_2 from t").fetchall()
        # What names none of these columns, or reads none of these entries, is answered.
        assert con.execute("select count(x), count(*) from t").fetchone() == (699, 699)
        found = con.execute("select max(name), max(id_2) from t where ms < 340").fetchone()
        assert found == ("99", "99")
        sql = "select fields['Name'], fields['name'] from t where ms in (340, 360) order by id_key"
        assert con.execute(sql).fetchall() == [("340", None), (None, "360")]
        # Nor is it refused where a schema says what the columns are.
        logstore.duckdb.attach(con, between, schema={"name": pa.int64()})
        sql = "select count(name), count(*) filter (fields['Name'] is null) from t"
        named, others = con.execute(sql).fetchone() or (0, 0)
        odd = between["t"].scan(where=[("Name", "!=", "")]).to_arrow().num_rows
        assert named == others == 699 - odd


def test_a_scan_with_columns_that_differ_by_case_in_duckdb(alike: Store[bytes]) -> None:
    """DuckDB counts from 1 there; the column of each is its own."""
    scan = alike["Orders"].scan(schema={"Name": pa.int64(), "name": pa.int64()})  # noqa: F841
    assert duckdb.sql("select Name, name_1 from scan where name_1 = 2").fetchall() == [(1, 2)]
    assert duckdb.sql("select * from scan where name = 2").fetchall() == []


def test_names_that_duckdb_cannot_have(alike: Store[bytes]) -> None:
    """A field without a name, and names with NUL, behind which DuckDB does not look."""
    alike.stream("odd").add({"": "none", "a\0b": "nul", "a": "plain", b"\xff": "bytes"})
    with duckdb.connect() as con:
        logstore.duckdb.attach(con, alike, "odd")
        sql = "select _, \"a\\x00b\", a from odd where _ = 'none' and a = 'plain'"
        assert con.execute(sql).fetchall() == [("none", "nul", "plain")]
        told = [name for name, *_ in con.execute("describe odd").fetchall()]
        assert told[-3:] == ["_", "a\\x00b", "a"]


def test_a_scan_by_its_name_in_duckdb(races: Store[bytes]) -> None:
    scan = races["race:a"].scan(columns=["ms"], where=[("ms", "<", BEGIN_MS + 10)])  # noqa: F841
    for _ in range(2):
        assert duckdb.sql("select count(*) from scan").fetchall() == [(5,)]


@pytest.mark.parametrize("name", ["orders", "or*ers"])
def test_a_stream_that_was_dropped_since_is_not_read_as_empty(
    alike: Store[bytes], name: str
) -> None:
    alike.stream(name).add({"n": 1}, id="5-0")
    with duckdb.connect() as con:
        (view,) = logstore.duckdb.attach(con, alike, name.replace("*", "[*]"))
        logstore.duckdb.attach(con, alike, name.replace("*", "[*]"), view="renamed")
        sql = f'select id, n from "{view}" order by id_key desc limit 1'
        alike.drop(name)
        with pytest.raises(duckdb.Error, match=f"StreamNotFoundError: .*{re.escape(name)}"):
            con.execute(sql).fetchall()
        alike.stream(name).add({"n": 2}, id="7-0")
        assert con.execute(sql).fetchall() == [("7-0", "2")]
        assert con.execute("select id from renamed").fetchall() == [("7-0",)]


def test_invalid_attaches_are_refused(races: Store[bytes]) -> None:
    with duckdb.connect() as con:
        with pytest.raises(EntryTypeError):
            logstore.duckdb.attach(con, "path")  # type: ignore[arg-type]
        with pytest.raises(StreamNotFoundError):
            logstore.duckdb.attach(con, races, "misspelt")
        for options in ({"schema": {"a": pa.list_(pa.int8())}}, {"start": "9", "end": "1"}):
            with pytest.raises(OptionError):
                logstore.duckdb.attach(con, races, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["filter", "to_table", "head", "get_fragments", "count_rows"])
def test_unsupported_calls_of_a_data_set_are_refused(races: Store[bytes], name: str) -> None:
    """Those of pyarrow would end the process."""
    with pytest.raises(UsageError, match="the scan itself"):
        getattr(races["race:a"].scan().dataset(), name)(pc.field("ms") > 1)


# -- Polars ----------------------------------------------------------------------------------
def lazy(races: Store[bytes]) -> pl.LazyFrame:
    return logstore.polars.scan(races, "race:*", columns=TYPES)


AT = BEGIN + timedelta(milliseconds=100)


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        (pl.col("ts") >= AT, (100, None)),
        ((pl.col("ts") > AT) & (pl.col("speed") > 3), (101, None)),
        (pl.lit(AT) > pl.col("ts"), (None, 99)),
        (pl.col("ts").is_between(AT, AT + timedelta(milliseconds=9), closed="left"), (100, 108)),
        (pl.col("ms") == BEGIN_MS + 7, (7, 7)),
        ((pl.col("ms") < BEGIN_MS + 7) | (pl.col("ms") == BEGIN_MS + 50), (None, 50)),
        ((pl.col("ms") < BEGIN_MS + 7) | (pl.col("speed") == 5), (None, None)),
        ((pl.col("stream") == "race:b") & (pl.col("ms") > BEGIN_MS + 8), (9, None)),
        (~(pl.col("ms") > BEGIN_MS + 7), (None, None)),
        (pl.col("ms") % 2 == 0, (None, None)),
        (pl.col("ts").dt.year() == 2023, (None, None)),
        (pl.col("id").str.ends_with("7-0"), (None, None)),
    ],
    ids=str,
)
def test_polars_reads_only_what_a_query_needs(
    races: Store[bytes], walks: list[Any], condition: pl.Expr, read: tuple[Any, Any]
) -> None:
    wanted = lazy(races).collect().filter(condition)
    walks.clear()
    frame = lazy(races).filter(condition)
    for _ in range(2):
        assert frame.collect().equals(wanted)
    first, last = min(walk[1] for walk in walks), max(walk[2] for walk in walks)
    assert read[0] is None or first == read[0]
    assert read[1] is None or last == read[1]
    if "race:b" in str(condition):
        assert {name for name, *_ in walks} == {b"race:b"}


def test_limits_and_columns_of_polars(races: Store[bytes]) -> None:
    every = lazy(races).collect()
    late = pl.col("ms") > BEGIN_MS + 1000
    for frame in (every.lazy(), lazy(races)):
        assert frame.head(7).filter(late).collect().height == 0
        assert frame.filter(late).head(7).collect().equals(every.filter(late).head(7))
        assert frame.slice(5, 3).select("id").collect().equals(every[5:8].select("id"))
        assert frame.select(pl.len()).collect().item() == COUNT
        assert frame.tail(2).collect().equals(every.tail(2))


def test_all_columns_and_paths_in_polars(races: Store[bytes], tmp_path: Any) -> None:
    frame = logstore.polars.scan(races, "race:a").collect()
    assert frame.equals(races["race:a"].scan().to_polars())
    with logstore.open(tmp_path / "s", sync="os") as store:
        store.stream("x").add({"a": 1}, id="1-1")
    found = logstore.polars.scan(tmp_path / "s", schema={"a": pa.int64(), "id": None})
    assert found.filter(pl.col("a") == 1).collect().rows() == [(1, "1-1")]
    merged = logstore.polars.scan(races, columns=["ms"], merge=True).collect()["ms"]
    assert merged.to_list() == [BEGIN_MS + n for n in range(COUNT)]


def test_polars_tells_names_by_case(alike: Store[bytes]) -> None:
    schema = {"Name": pa.int64(), "name": pa.int64(), "stream": None}
    found = logstore.polars.scan(alike, schema=schema).filter(pl.col("name") > 1).collect()
    assert found.rows() == [(1, 2, "Orders"), (None, 3, "orders")]
    only = logstore.polars.scan(alike, "orders", schema=schema).select("Name", "name").collect()
    assert only.rows() == [(None, 3)]


def test_invalid_polars_scans_are_refused(races: Store[bytes]) -> None:
    with pytest.raises(OptionError):
        logstore.polars.scan(races, columns=["a", "a"])
    with pytest.raises(StreamNotFoundError):
        logstore.polars.scan(races, "misspelt")


@pytest.mark.parametrize("name", ["polars", "pandas"])
def test_a_package_that_is_not_there_is_named(
    races: Store[bytes], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    scan = races["race:a"].scan(columns=["id"])
    monkeypatch.setitem(sys.modules, name, None)
    if name == "pandas":
        monkeypatch.setitem(sys.modules, "pyarrow.pandas_compat", None)
    with pytest.raises(UsageError, match="pip install"):
        getattr(scan, f"to_{name}")()
