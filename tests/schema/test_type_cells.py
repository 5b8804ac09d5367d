"""Prevents a table of types in the docs that says other things than the tools show.

Each cell is a test, but for those of Spark, which are in its room.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import logstore
import logstore.duckdb
import logstore.polars
from logstore.redis import Redis
from logstore.schema.column_types import PLAIN_TYPES
from logstore.tools.commands import main
from tests.schema.type_table import (
    TABLE,
    TYPES,
    check_cell,
    example,
    outside,
    plain,
    same,
    typed_store,
    values,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cells") / "store"
    with typed_store(path):
        pass
    return path


@pytest.fixture(scope="module")
def store(path: Path) -> Iterator[logstore.Store[bytes]]:
    with logstore.open(path) as opened:
        yield opened


def test_the_table_has_every_type_and_tool() -> None:
    assert {plain(kind) for kind in TYPES} == {*PLAIN_TYPES, "decimal", "enum"}
    assert len(TYPES) == len(PLAIN_TYPES) + 2
    tools = "type Python|JSON lines|Arrow|DuckDB|Polars|pandas|Spark|Parquet|on the wire"
    assert list(TABLE["bool"]) == tools.replace("type ", "type|").split("|")


def exported(path: Path, kind: str, ending: str, tmp_path: Path) -> Path:
    found = tmp_path / f"out.{ending}"
    done = CliRunner().invoke(main, ["export", str(path), plain(kind), str(found)])
    assert done.exit_code == 0, done.output
    return found


# -- as values ----------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", TYPES)
def test_python(store: logstore.Store[bytes], kind: str) -> None:
    *entries, given, left_out = store.stream(plain(kind)).range()
    found = [same(entry["v"]) for entry in entries]
    assert found == [same(in_utc(value)) for value in values(kind)]
    for entry in (given, left_out):
        assert entry.get("v") is None
        assert "v" not in entry.fields


def in_utc(value: Any) -> Any:
    """A moment as it is kept."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@pytest.mark.parametrize("kind", TYPES)
def test_on_the_wire(path: Path, kind: str) -> None:
    """The first text is that of the table; and each text, given as one, is the value again."""
    client: Any = Redis(str(path))
    try:
        rows = [dict(fields) for _, fields in client.xrange(plain(kind))]
    finally:
        client.close()
    texts = [row[b"v"] for row in rows[:-2]]
    assert texts[0].decode() == TABLE[kind]["on the wire"]
    assert [row.get(b"v") for row in rows[-2:]] == [None, None]
    assert len(set(texts)) == len(values(kind))
    with logstore.open(path.parent / f"again-{plain(kind)}", sync="os") as again:
        stream = again.stream("again")
        stream.configure(schema=f"v {kind}")
        for text in texts:
            stream.add({"v": text})
        found = [same(entry["v"]) for entry in stream.range()]
    assert found == [same(in_utc(value)) for value in values(kind)]


NOT_IN_JSON = {"nan": "nan", "inf": "inf", "-inf": "-inf"}


@pytest.mark.parametrize("kind", TYPES)
def test_json_lines(path: Path, kind: str, tmp_path: Path) -> None:
    lines = exported(path, kind, "jsonl", tmp_path).read_text().splitlines()
    assert f'"v": {TABLE[kind]["JSON lines"]}, ' in lines[0]
    parse = Decimal if kind.startswith("decimal") else float
    rows = [json.loads(line, parse_float=parse)["fields"] for line in lines]
    assert ["v" in row for row in rows[-2:]] == [False, False]
    for row, value in zip(rows[:-2], values(kind), strict=True):
        assert same(row["v"]) == same(in_json(kind, value)), value


def in_json(kind: str, value: Any) -> Any:
    """What the parser of Python makes of a value in a line."""
    if kind == "double":
        if repr(value) in NOT_IN_JSON:
            return NOT_IN_JSON[repr(value)]
        # Without a point where it is whole and not large, but for the zero that has a sign.
        whole = value.is_integer() and abs(value) < 1e10 and repr(value) != "-0.0"
        return int(value) if whole else value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, datetime):
        return f"{in_utc(value).replace(tzinfo=None).isoformat(' ', 'microseconds')}Z"
    if isinstance(value, time):
        return value.isoformat("microseconds")
    return str(value) if kind == "uuid" or isinstance(value, date) else value


def test_bytes_that_are_no_text_are_whole_in_json_lines(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", sync="os") as store:
        store.stream("binary").configure(schema="v binary?")
        store.stream("binary").add({"v": b"\xff\0"})
    (line,) = exported(tmp_path / "store", "binary", "jsonl", tmp_path).read_text().splitlines()
    ((_, raw),) = json.loads(line)["pairs_base64"]
    assert b64decode(raw) == b"\xff\0"


# -- as columns ---------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", TYPES)
def test_arrow(store: logstore.Store[bytes], kind: str) -> None:
    column = store.stream(plain(kind)).scan().to_arrow().column("v")
    check_cell(kind, "Arrow", str(column.type), column.to_pylist())


@pytest.mark.parametrize("kind", TYPES)
def test_duckdb(store: logstore.Store[bytes], kind: str) -> None:
    with duckdb.connect() as con:
        con.execute("set timezone = 'UTC'")
        logstore.duckdb.attach(con, store, plain(kind), view="x")
        found = con.execute("select v, typeof(v) from x order by id_key").fetchall()
        check_cell(kind, "DuckDB", found[0][1], [row[0] for row in found])
        nulls = con.execute("select count(*) from x where v is null").fetchone()
        assert nulls == (2,)


def test_texts_that_duckdb_reads(store: logstore.Store[bytes]) -> None:
    """As the page says."""
    with duckdb.connect() as con:
        logstore.duckdb.attach(con, store, "uuid")
        logstore.duckdb.attach(con, store, "json")
        found = con.execute("select v::uuid from uuid where n = 0").fetchone()
        assert found == (example("uuid"),)
        found = con.execute("select v->>'$.room' from json where n = 0").fetchone()
        assert found == ("a",)


@pytest.mark.parametrize("kind", TYPES)
def test_polars(store: logstore.Store[bytes], kind: str) -> None:
    lazy = logstore.polars.scan(store, plain(kind)).select("v")
    check_cell(kind, "Polars", str(lazy.collect_schema()["v"]), lazy.collect()["v"].to_list())
    whole = store.stream(plain(kind)).scan().to_polars()
    assert whole["v"].dtype == lazy.collect_schema()["v"]
    assert whole.filter(pl.col("v").is_null()).height == 2


PANDAS_WITH_NULLS = {"bool": "boolean", "int32": "Int32", "int64": "Int64"}


@pytest.mark.parametrize("kind", TYPES)
def test_pandas(store: logstore.Store[bytes], kind: str) -> None:
    stream = store.stream(plain(kind))
    count = len(values(kind))
    filled = stream.scan(columns=["v"], where=[("n", ">=", 0)]).to_pandas()["v"]
    assert str(filled.dtype) == in_pandas(TABLE[kind]["pandas"])
    wanted = [same_in_pandas(outside(kind, value)) for value in values(kind)]
    assert [same_in_pandas(each) for each in filled.tolist()] == wanted
    column = stream.scan().to_pandas()["v"]
    dtype = str(filled.dtype)
    assert str(column.dtype) == PANDAS_WITH_NULLS.get(dtype, dtype)
    assert [same_in_pandas(each) for each in column.tolist()[:count]] == wanted
    nan = sum(same(value) == same(float("nan")) for value in values(kind))
    assert column.isna().sum() == 2 + nan
    assert column[count:].isna().all()


def in_pandas(cell: str) -> str:
    """The type that a cell tells of the pandas that is here."""
    told = re.fullmatch(r"`(\w+)` \(`(\w+)` before pandas 3\)", cell)
    return cell if told is None else told[1 if pd.__version__ >= "3" else 2]


def same_in_pandas(value: Any) -> Any:
    """A moment of pandas is one of Python, with all of its microseconds."""
    return same(value.to_pydatetime() if isinstance(value, pd.Timestamp) else value)


@pytest.mark.parametrize("kind", TYPES)
def test_parquet(path: Path, kind: str, tmp_path: Path) -> None:
    file = exported(path, kind, "parquet", tmp_path)
    written = pq.ParquetFile(file)
    assert written.schema.column(0).name == "v"
    column = written.read().column("v")
    check_cell(kind, "Parquet", parquet_name(written.schema.column(0)), column.to_pylist())


def parquet_name(column: Any) -> str:
    """The type of a column as the format's specification writes it."""
    logical = json.loads(column.logical_type.to_json())
    name = logical["Type"].upper()
    if name == "NONE":
        return str(column.physical_type)
    if name == "DECIMAL":
        return f"DECIMAL({logical['precision']}, {logical['scale']})"
    if "timeUnit" in logical:
        unit = {"microseconds": "MICROS"}[logical["timeUnit"]]
        utc = str(logical["isAdjustedToUTC"]).lower()
        return f"{name}(isAdjustedToUTC={utc}, unit={unit})"
    return str(name)


@pytest.mark.parametrize("kind", TYPES)
def test_a_parquet_file_is_the_stream_again(path: Path, kind: str, tmp_path: Path) -> None:
    """Types, edges and nulls."""
    file = exported(path, kind, "parquet", tmp_path)
    done = CliRunner().invoke(
        main, ["import", str(tmp_path / "again"), str(file), "--stream", plain(kind)]
    )
    assert done.exit_code == 0, done.output
    with logstore.open(tmp_path / "again", sync="os") as again:
        assert str(again.stream(plain(kind)).schema) == f"v {kind}?, n int"
        found = [same(entry.get("v")) for entry in again.stream(plain(kind)).range()]
    assert found == [*[same(in_utc(value)) for value in values(kind)], same(None), same(None)]
