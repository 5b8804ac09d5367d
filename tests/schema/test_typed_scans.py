"""Scans of a stream with a schema: typed columns first, whoever asks, without being told."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import logstore
import logstore.duckdb
import logstore.polars
from logstore import SchemaError
from logstore.codec import ARROW_COLUMNS

SCHEMA = (
    "flag bool, small int, large long, temp double, price decimal(10, 2), note string?, "
    "raw binary, day date, at timestamp, clock time, ref uuid, tags json, "
    "level enum('low', 'high') = 'low'"
)
ROW: dict[str, Any] = {
    "flag": "true", "small": 5, "large": 2**40, "temp": 21.53, "price": "3.5",
    "raw": b"\xff\x00", "day": "2026-11-26", "at": "2026-11-26T12:00+01:00", "clock": "12:30",
    "ref": "00000000-0000-0000-0000-00000000000A", "tags": b'{"b": [1], "a": null}',
}  # fmt: skip
VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), True),
    "small": (pa.int32(), 5),
    "large": (pa.int64(), 2**40),
    "temp": (pa.float64(), 21.53),
    "price": (pa.decimal128(10, 2), Decimal("3.50")),
    "note": (pa.string(), None),
    "raw": (pa.binary(), b"\xff\x00"),
    "day": (pa.date32(), date(2026, 11, 26)),
    "at": (pa.timestamp("us", "UTC"), datetime(2026, 11, 26, 11, tzinfo=UTC)),
    "clock": (pa.time64("us"), time(12, 30)),
    "ref": (pa.string(), "00000000-0000-0000-0000-00000000000a"),
    "tags": (pa.string(), '{"a":null,"b":[1]}'),
    "level": (pa.string(), "low"),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[logstore.Store[bytes]]:
    with logstore.open(tmp_path / "store", background=False) as opened:
        stream = opened.stream("typed")
        stream.configure(schema=SCHEMA)
        stream.add(ROW)
        opened.stream("plain").add({"temp": "warm"})
        yield opened


def test_typed_columns_come_first(store: logstore.Store[bytes]) -> None:
    table = store.stream("typed").scan().to_arrow()
    assert table.schema.names == [*VALUES, *ARROW_COLUMNS]
    for name, (kind, value) in VALUES.items():
        assert table.schema.field(name).type == kind, name
        assert table.schema.field(name).nullable == (name == "note")
        assert table.column(name).to_pylist() == [value], name


def test_columns_that_are_named_have_their_types(store: logstore.Store[bytes]) -> None:
    table = store.stream("typed").scan(columns=["id", "temp", "other"]).to_arrow()
    assert [field.type for field in table.schema] == [pa.string(), pa.float64(), pa.string()]
    assert table.column("other").to_pylist() == [None]


def test_columns_that_are_given_count_more(store: logstore.Store[bytes]) -> None:
    stream = store.stream("typed")
    assert stream.scan(schema="temp string").schema == pa.schema([("temp", pa.string())])
    assert stream.scan(columns={"temp": None}).schema.field("temp").type == pa.string()


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ([("temp", ">", 20)], 1),
        ([("temp", ">", 100)], 0),
        ([("day", "==", date(2026, 11, 26)), ("small", "<", 10)], 1),
    ],
)
def test_conditions_compare_by_type(
    store: logstore.Store[bytes], where: list[tuple[str, str, Any]], rows: int
) -> None:
    scan = store.stream("typed").scan(columns=["id"], where=where)
    assert scan.to_arrow().num_rows == rows


def test_several_streams_have_the_schema_that_all_have(store: logstore.Store[bytes]) -> None:
    assert store.scan(["typed", "plain"]).schema.names == list(ARROW_COLUMNS)
    store.copy("typed", "typed too")
    found = store.scan(["typed", "typed too"]).to_arrow()
    assert found.column("temp").to_pylist() == [21.53, 21.53]


def test_a_column_that_is_called_as_a_standard_one(store: logstore.Store[bytes]) -> None:
    stream = store.stream("named")
    stream.configure(schema="id long, stream string")
    stream.add({"id": 7, "stream": "x"})
    table = stream.scan().to_arrow()
    assert table.column("id_2").to_pylist() == [7]
    assert table.column("stream_2").to_pylist() == ["x"]


def test_polars_and_duckdb_know_the_types(store: logstore.Store[bytes]) -> None:
    frame = logstore.polars.scan(store, "typed").filter(pl.col("temp") > 20).select("temp", "at")
    assert frame.collect().row(0) == (21.53, datetime(2026, 11, 26, 11, tzinfo=UTC))
    connection = duckdb.connect()
    logstore.duckdb.attach(connection, store)
    assert connection.sql("select avg(temp), max(price) from typed").fetchall() == [
        (21.53, Decimal("3.50"))
    ]
    assert connection.sql("select temp from plain").fetchall() == [("warm",)]


# -- what was made before the schema, or the stream, was another one ------------------------------
def read_again(store: logstore.Store[bytes]) -> dict[str, Any]:
    """What reads the column `small` of the stream, made once and read as often as it is called."""
    con = duckdb.connect()
    logstore.duckdb.attach(con, store, "typed")
    scans = {
        "scan": store.stream("typed").scan(),
        "of the store": store.scan("typed"),
        "of a pattern": store.scan("type*", columns=["small"]),
    }
    found: dict[str, Any] = {
        how: (lambda scan=scan: scan.to_arrow().column("small").to_pylist())
        for how, scan in scans.items()
    }
    query = "select small from typed order by id_key"
    found["DuckDB"] = lambda: [row[0] for row in con.execute(query).fetchall()]
    return found


def test_a_wider_type_is_not_read_as_null(store: logstore.Store[bytes]) -> None:
    """Values that the type of before has not were null, without a word."""
    reads = read_again(store)
    stream = store.stream("typed")
    stream.configure(schema=SCHEMA.replace("small int", "small long") + ", more int?")
    stream.add({**ROW, "small": 2**40})
    for how, read in reads.items():
        with pytest.raises((logstore.SchemaError, duckdb.Error), match="small' was int") as told:
            read()
        assert "is long now: make" in str(told.value), how
    for how, read in read_again(store).items():
        assert read() == [5, 2**40], how


def test_another_column_changes_nothing(store: logstore.Store[bytes]) -> None:
    reads = read_again(store)
    store.stream("typed").configure(schema=SCHEMA + ", more int?")
    store.stream("typed").add({**ROW, "small": 6, "more": 1})
    for how, read in reads.items():
        assert read() == [5, 6], how


def test_a_schema_that_was_dropped_and_one_that_a_new_stream_lacks(
    store: logstore.Store[bytes],
) -> None:
    reads = read_again(store)
    store.stream("typed").configure(schema=None)
    store.stream("typed").add({"small": "warm"})
    for how, read in reads.items():
        with pytest.raises((logstore.SchemaError, duckdb.Error), match="has no schema now"):
            read()
        assert how
    store.drop("typed")
    store.stream("typed").configure(schema=SCHEMA)
    store.stream("typed").add(ROW)
    for how, read in read_again(store).items():
        assert read() == [5], how
    pattern = store.scan("type*")
    store.stream("typeless").add({"small": "warm"})
    with pytest.raises(logstore.SchemaError, match="has no schema now"):
        pattern.to_arrow()


def test_a_stream_that_is_made_again_is_read(store: logstore.Store[bytes]) -> None:
    reads = read_again(store)
    store.drop("typed")
    store.stream("typed").configure(schema=SCHEMA)
    store.stream("typed").add({**ROW, "small": 7})
    for how, read in reads.items():
        assert read() == [7], how


def test_a_view_that_a_condition_does_not_fit_is_named(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "views", background=False) as store:
        store.stream("a").configure(schema="temp double")
        store.stream("b").configure(schema="hum double")
        with pytest.raises(SchemaError, match="view 'b': where: there is no column 'temp'"):
            logstore.duckdb.attach(duckdb.connect(), store, where="temp > 30")
