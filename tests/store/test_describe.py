"""Prevents a description of columns that is not that of the entries, and errors that do not say
what to do."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import logstore
import logstore.aio
from logstore import ColumnDescription
from logstore.errors import InvalidIDError, OptionError, SchemaError, StreamNotFoundError
from tests.scan.scanned_stores import make_store, seal_with_statistics

SCHEMA = (
    "n int, x double?, at timestamp, day date, t time, name string, price decimal(8, 2), "
    "ok bool, ref uuid, level enum('low', 'high'), tags json?, raw binary?"
)


def row(n: int) -> dict[str, Any]:
    """An entry."""
    return {
        "n": n, "at": datetime(2026, 1, 1, 0, n, tzinfo=UTC), "day": date(2026, 1, 1 + n % 20),
        "t": time(n % 24), "name": f"n{n:02}", "price": Decimal(n) / 4, "ok": n % 2 == 0,
        "ref": UUID(int=n), "level": "low", "tags": {"n": n}, **({"x": n / 2} if n % 2 else {}),
    }  # fmt: skip


@pytest.fixture
def stream(tmp_path: Path) -> Any:
    """A stream of 40 entries, most of them in nodes with statistics."""
    with make_store(tmp_path / "store", background=False) as store:
        made = store.stream("s")
        made.configure(schema=SCHEMA)
        made.add_many([((n + 1, 0), row(n)) for n in range(40)], batch=40)
        seal_with_statistics(store)
        yield made


def test_columns_are_described(stream: Any) -> None:
    found = stream.describe()
    assert (found.entries, found.nodes) == (40, 10)
    assert found.nodes_read <= 1
    assert list(found.columns) == [
        "n", "x", "at", "day", "t", "name", "price", "ok", "ref", "level"
    ]  # fmt: skip
    assert found.columns["n"] == ColumnDescription("int", 40, 0, 0, 39)
    assert found.columns["x"] == ColumnDescription("double", 20, 20, 0.5, 19.5)
    assert found.columns["at"].most == datetime(2026, 1, 1, 0, 39, tzinfo=UTC)
    assert found.columns["day"].most == date(2026, 1, 20)
    assert found.columns["price"].most == Decimal("9.75")
    assert (found.columns["ok"].least, found.columns["ok"].most) == (False, True)
    assert found.columns["ref"].most == UUID(int=39)
    told = json.loads(json.dumps(found.as_dict()))
    assert told["columns"]["at"]["least"] == "2026-01-01 00:00:00.000000Z"
    assert told["columns"]["price"]["most"] == "9.75"
    assert told["columns"]["t"]["most"] == "23:00:00.000000"
    assert told["columns"]["x"] == {
        "type": "double", "count": 20, "nulls": 20, "least": 0.5, "most": 19.5
    }  # fmt: skip


def test_an_interval_and_some_columns(stream: Any) -> None:
    found = stream.describe("7-0", "(20-0", columns=["n"])
    assert found.entries == 13
    assert found.columns == {"n": ColumnDescription("int", 13, 0, 6, 18)}
    assert stream.describe("100-0", "200-0").columns["n"] == ColumnDescription(
        "int", 0, 0, None, None
    )
    assert stream.describe(columns=[]).entries == 40


def test_numbers_that_json_lacks(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", sync="os", background=False) as store:
        stream = store.stream("s")
        stream.configure(schema="x double")
        for value in (float("nan"), float("-inf"), 1.0):
            stream.add({"x": value})
        found = stream.describe().as_dict()["columns"]["x"]
        assert (found["least"], found["most"]) == ("-inf", "nan")


def test_it_is_awaited(stream: Any) -> None:
    async def told() -> Any:
        async with logstore.aio.open(stream._opened.path, sync="os", background=False) as store:
            return await store.stream("s").describe(columns=["n"])

    assert asyncio.run(told()) == stream.describe(columns=["n"])


def test_columns_that_cannot_be_described(stream: Any) -> None:
    for columns, error in (
        (["none"], SchemaError), (["tags"], SchemaError), (["raw"], SchemaError),
        ("n", OptionError), (5, OptionError), (["n"] * 300, OptionError), ([5], SchemaError),
    ):  # fmt: skip
        with pytest.raises(error):
            stream.describe(columns=columns)
    with pytest.raises(InvalidIDError):
        stream.describe("x")
    with pytest.raises(OptionError):
        stream.describe("9-0", "5-0")
    other = stream._opened
    with logstore.open(other.path, sync="os", background=False) as store:
        store.stream("plain").add({"a": 1})
        for name in ("plain", "none"):
            with pytest.raises((SchemaError, StreamNotFoundError), match="schema"):
                store.stream(name).describe()
