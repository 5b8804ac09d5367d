"""Prevents a tool that takes the values of a stream with a codec for the bytes they are stored as:
one codec is kept with the stream, and scans, SQL, data frames and conditions are not told of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import logstore
import logstore.duckdb
import logstore.polars
from logstore.codec import ARROW_COLUMNS

AT = datetime(2026, 1, 2, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"level": "error", "n": 7, "tags": {"room": "a", "seats": [1, 4]}, "ok": True, "at": AT},
    {"level": "info", "n": 9, "tags": {"room": "b"}, "ok": False, "none": None},
    {"level": "error", "n": 2.5, "tags": {"room": "b"}, "raw": b"\xff"},
]
CONDITIONS = {
    "level = 'error'": [7, 2.5],
    "n > 5": [7, 9],
    "tags.room = 'b' and n > 5": [9],
    "tags.seats[1] = 4": [7],
    "ok": [7],
    "at >= timestamp '2026-01-02 00:00Z'": [7],
    "none is null": [7, 9, 2.5],
    "level > 5": [],
    "level like 'e%'": [7, 2.5],
}


@pytest.fixture(params=["json", "msgpack"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[logstore.Store[bytes]]:
    with logstore.open(tmp_path / "store", background=False) as opened:
        opened.stream("jobs", codec=request.param).add_many(ROWS)
        opened.stream("plain").add({"level": "error", "n": 7})
        yield opened


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_condition_compares_values_whoever_asks(store: logstore.Store[bytes], where: str) -> None:
    wanted = CONDITIONS[where]
    codec = store.stream("jobs").settings.codec
    coded, plain = store.stream("jobs", codec=codec), store.stream("jobs")
    assert [entry["n"] for entry in coded.range(where=where)] == wanted
    ids = [entry.id for entry in coded.range(where=where)]
    assert [entry.id for entry in plain.range(where=where)] == ids
    followed = store.follow({"jobs": "0"}, where=where, timeout=0)
    assert [entry.id for _, entry in followed] == ids
    columns = {"n": pa.float64()}
    assert plain.scan(columns=columns, where=where).to_arrow()["n"].to_pylist() == wanted
    assert plain.scan(where=where).to_arrow()["n"].to_pylist() == wanted


def test_a_mixed_scan_reads_each_stream_by_its_own_codec(store: logstore.Store[bytes]) -> None:
    for merge in (False, True):
        found = store.scan(columns=["stream", "n"], where="level = 'error'", merge=merge).to_arrow()
        assert sorted((row["stream"], row["n"]) for row in found.to_pylist()) == [
            ("jobs", "2.5"), ("jobs", "7"), ("plain", "7"),
        ]  # fmt: skip


def test_a_scan_has_columns_of_the_values_that_are_there(store: logstore.Store[bytes]) -> None:
    table = store.stream("jobs").scan().to_arrow()
    fields = ["level", "n", "tags", "ok", "at", "none", "raw"]
    assert table.schema.names == [*fields, *ARROW_COLUMNS]
    assert [table.schema.field(name).type for name in fields] == [
        pa.string(), pa.float64(), pa.string(), pa.bool_(), pa.timestamp("us", "UTC"),
        pa.string(), pa.binary(),
    ]  # fmt: skip
    assert table["level"].to_pylist() == ["error", "info", "error"]
    assert table["n"].to_pylist() == [7.0, 9.0, 2.5]
    assert table["tags"][0].as_py() == '{"room":"a","seats":[1,4]}'
    assert table["at"][0].as_py() == AT
    assert table["none"].to_pylist() == [None] * 3
    assert table["raw"][2].as_py() == b"\xff"
    frame = logstore.polars.scan(store, "jobs").select("level", "n").collect()
    assert frame["n"].to_list() == [7.0, 9.0, 2.5]


def test_columns_that_are_named_are_texts_of_the_values(store: logstore.Store[bytes]) -> None:
    names = ["level", "n", "ok", "at", "none"]
    (first, *_) = store.stream("jobs").scan(columns=names).to_arrow().to_pylist()
    assert first == {
        "level": "error", "n": "7", "ok": "true", "at": "2026-01-02 00:00:00.000000Z",
        "none": None,
    }  # fmt: skip
    compared = store.stream("jobs").scan(columns=["n"], where=[("level", "==", "error")])
    assert compared.to_arrow()["n"].to_pylist() == ["7", "2.5"]


def test_duckdb_compares_numbers_as_numbers(store: logstore.Store[bytes]) -> None:
    with duckdb.connect() as con:
        logstore.duckdb.attach(con, store, "jobs")
        assert con.sql("select avg(n) from jobs where level = 'error'").fetchall() == [(4.75,)]
        assert con.sql("select n from jobs where n > 5 order by n").fetchall() == [(7.0,), (9.0,)]
        assert con.sql("select json_extract_string(tags, '$.room') from jobs where ok").fetchall()
        logstore.duckdb.attach(con, store, view="all_of_it")
        found = con.sql("select count(*) from all_of_it where level = 'error'").fetchall()
        assert found == [(3,)]


def test_a_value_of_another_type_than_those_looked_at_is_refused(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", background=False) as store:
        stream = store.stream("jobs", codec="json")
        stream.add_many([{"n": 1}] * 100 + [{"n": "many"}] + [{"n": 1}] * 100)
        scan = stream.scan()
        assert scan.schema.field("n").type == pa.int64()
        with pytest.raises(logstore.OptionError, match=r"column 'n' .* int64 .*'many'.* schema="):
            scan.to_arrow()
        assert len(stream.scan(columns=["id"], where="n = 'many'").to_arrow()) == 1
        assert stream.scan(schema="n string").to_arrow()["n"][100].as_py() == "many"


def test_a_value_that_the_codec_did_not_store_is_null(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", background=False) as store:
        store.stream("jobs", codec="json").add({"level": "error"})
        store.stream("jobs").add({"level": "error"})  # as another client would
        jobs = store.stream("jobs")
        assert jobs.scan(columns=["level"]).to_arrow()["level"].to_pylist() == ["error", None]
        assert len(list(jobs.range(where="level = 'error'"))) == 1
        assert len(jobs.scan(where="level = 'error'").to_arrow()) == 1


@pytest.mark.parametrize("where", CONDITIONS)
def test_views_and_frames_take_a_condition(store: logstore.Store[bytes], where: str) -> None:
    wanted = CONDITIONS[where]
    frame = logstore.polars.scan(store, "jobs", where=where)
    assert frame.select("n").collect()["n"].to_list() == wanted
    small = frame.filter(pl.col("n") < 8).collect()
    assert small["n"].to_list() == [n for n in wanted if n < 8]
    with duckdb.connect() as con:
        logstore.duckdb.attach(con, store, "jobs", where=where)
        assert [n for (n,) in con.sql("select n from jobs order by id").fetchall()] == wanted


def test_a_condition_that_cannot_be_is_refused_at_once(store: logstore.Store[bytes]) -> None:
    store.stream("typed").configure(schema="n int")
    with duckdb.connect() as con:
        for where in ("m > 3", "n > 'a'"):
            with pytest.raises(logstore.SchemaError, match=r"\^"):
                logstore.duckdb.attach(con, store, "typed", where=where)
            with pytest.raises(logstore.SchemaError, match=r"\^"):
                logstore.polars.scan(store, "typed", where=where)
        with pytest.raises(logstore.OptionError, match=r"\^"):
            logstore.duckdb.attach(con, store, "plain", where="n >")
        assert con.sql("show tables").fetchall() == []
