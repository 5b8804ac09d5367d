"""Prevents filters in statistics that leave out a node with the value, that take more than their
share, or that are there where they leave out nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import logstore
from logstore import format as fmt
from logstore.engine.maintenance import column_statistics
from logstore.log import file_names, filter_choice, statsfile
from logstore.log.filter_choice import BYTES_SHARE
from tests.scan.scanned_stores import make_store, seal_with_statistics
from tests.scan.skipped_nodes import read_by_scan, told


@pytest.fixture(scope="module")
def drawn() -> list[dict[str, Any]]:
    """Rows: a number that ascends, and others that do not."""
    draw = random.Random(11)
    return [
        {
            "n": at,
            "name": f"{draw.getrandbits(40):010x}",
            "user": f"user {draw.randrange(400)}",
            "level": "error" if draw.random() < 0.002 else draw.choice(("debug", "info")),
            "ref": UUID(int=draw.getrandbits(128)),
            "text": "x" * 200 + str(at % 3),
        }
        for at in range(20_000)
    ]


SCHEMA = (
    "n long, name string, user string, level enum('debug', 'info', 'error', 'fatal'), ref uuid, "
    "text string"
)


@pytest.fixture(scope="module")
def filled(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[dict[str, Any]]
) -> Iterator[logstore.Store[bytes]]:
    """A store with a stream of these rows, sealed."""
    path = tmp_path_factory.mktemp("filters") / "store"
    with make_store(
        path, background=False, node_max_entries=40, node_max_bytes=1 << 16, segment_bytes=64 << 20
    ) as store:
        stream = store.stream("s")
        stream.configure(schema=SCHEMA)
        stream.add_many([((at + 1, 0), row) for at, row in enumerate(drawn)], batch=1000)
        seal_with_statistics(store)
        yield store


def filters_of(store: Any) -> dict[str, int]:
    """The bytes of the filters of each column that has any."""
    sizes: dict[str, int] = {}
    for each in told(store).values():
        for stream in each.streams.values():
            for block in stream.blocks:
                for (field, _), found in zip(stream.columns, block.filters, strict=True):
                    if found is not None:
                        name = field.decode()
                        sizes[name] = sizes.get(name, 0) + len(found)
    return sizes


def test_columns_that_have_filters(filled: logstore.Store[bytes]) -> None:
    sizes = filters_of(filled)
    assert "n" not in sizes  # in order: its least and most tell all
    assert {"name", "user", "level"} <= set(sizes)
    log_bytes = file_names.segment(filled.path, 1).stat().st_size
    assert sum(sizes.values()) <= log_bytes * BYTES_SHARE
    assert sizes["level"] < sizes["user"] / 8


@pytest.mark.parametrize(
    ("column", "at", "share"),
    [("name", 7777, 0.05), ("user", 7777, 0.25), ("level", -1, 0.2), ("ref", 123, 1.0),
     ("n", 4444, 0.05), ("text", 5, 1.0)],
)  # fmt: skip
def test_a_value_is_found_in_few_nodes(
    filled: logstore.Store[bytes],
    drawn: list[dict[str, Any]],
    column: str,
    at: int,
    share: float,
) -> None:
    value = "error" if column == "level" else drawn[at][column]
    wanted = [n for n, row in enumerate(drawn) if row[column] == value]
    stream = filled.stream("s")
    where = f"{column} = {value}" if column == "n" else f"{column} = '{value}'"
    rows, asked, skipped = read_by_scan(filled, stream, where)
    assert rows == len(wanted)
    assert (asked - skipped) / asked <= share
    assert [entry["n"] for entry in stream.range(where=where)] == wanted
    assert [entry["n"] for entry in stream.range(where={column: str(value)})] == wanted
    several = f"{column} in ({value}, -5)" if column == "n" else f"{column} in ('{value}', 'info')"
    if column != "ref":
        if column == "level":
            wanted = [n for n, row in enumerate(drawn) if row["level"] != "debug"]
        assert read_by_scan(filled, stream, several)[0] == len(wanted)


@pytest.mark.parametrize(
    ("where", "share"),
    [
        (lambda row: pc.field("name") == row["name"], 0.05),
        (lambda row: pc.field("name").isin([row["name"], "zzz"]), 0.05),
        (lambda row: (pc.field("name") == row["name"]) & (pc.field("n") >= 0), 0.05),
        (lambda row: pc.field("user") == row["user"], 0.25),
        (lambda row: (pc.field("user") == row["user"]) | (pc.field("n") == 5), 1.0),
        (lambda row: pc.field("user") != row["user"], 1.0),
        (lambda _: pc.field("level") == "error", 0.2),
        (lambda row: pc.field("ref") == str(row["ref"]), 1.0),
        (lambda row: pc.field("ref") == str(row["ref"]).upper(), 1.0),
    ],
)
def test_filters_are_asked_for_expressions_that_are_handed_down(
    filled: logstore.Store[bytes], drawn: list[dict[str, Any]], where: Any, share: float
) -> None:
    stream = filled.stream("s")
    expression = where(drawn[4321])
    columns = ["n", "name", "user", "level", "ref"]
    every = stream.scan(columns=columns).to_arrow()
    wanted = every.filter(expression)["n"].to_pylist()
    rows, asked, skipped = read_by_scan(filled, stream, None, pushed=expression)
    assert rows == len(wanted)
    assert (asked - skipped) / asked <= share
    query = stream.scan(columns=columns)._query
    assert query.reader(filter=expression).read_all()["n"].to_pylist() == wanted


def test_a_value_that_is_nowhere_is_looked_for_nearly_nowhere(
    filled: logstore.Store[bytes],
) -> None:
    stream = filled.stream("s")
    for where, share in (("name = 'zzz'", 0.01), ("name = '7777777777'", 0.05),
                         ("level = 'fatal'", 0.1), ("user = 'user 401'", 0.1),
                         ("user = 'user 401' or name = 'x'", 0.15)):  # fmt: skip
        rows, asked, skipped = read_by_scan(filled, stream, where)
        assert rows == 0, where
        assert (asked - skipped) / asked <= share, where


def test_filters_follow_nodes_through_deletes_and_a_compaction(
    tmp_path: Path, drawn: list[dict[str, Any]]
) -> None:
    with make_store(tmp_path / "store", background=False) as store:
        stream = store.stream("s")
        stream.configure(schema=SCHEMA)
        some = drawn[:2000]
        stream.add_many([((at + 1, 0), row) for at, row in enumerate(some)], batch=100)
        seal_with_statistics(store)
        assert "name" in filters_of(store)
        stream.delete(*[f"{n + 1}-0" for n in range(2000) if n % 3])
        for _ in range(2):
            for at in (0, 1, 600, 1999, 1998):
                found = [entry["n"] for entry in stream.range(where=f"name = '{some[at]['name']}'")]
                assert found == ([] if at % 3 else [at])
            store.compact(purge=True)


@pytest.mark.parametrize(
    ("stored", "kind"), [("string", pa.int64()), ("long", pa.string()), ("long", pa.uint8())]
)
def test_columns_that_are_read_as_another_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str, kind: Any
) -> None:
    monkeypatch.setattr(filter_choice, "BYTES_SHARE", 9.0)  # few and small as the entries are
    monkeypatch.setattr(filter_choice, "SMALL_SHARE", 9.0)
    with make_store(tmp_path / "store", background=False) as store:
        stream = store.stream("s")
        stream.configure(schema=f"v {stored}")
        texts = ["5", "05", "5.0", "x", "300"] if stored == "string" else ["5", "300", "7"]
        order = [*texts * 30]
        random.Random(3).shuffle(order)
        for each in order:
            stream.add({"v": each})
        query = stream.scan(columns=["v"], schema={"v": kind})._query
        expressions = [pc.field("v") == pa.scalar(5).cast(kind), pc.field("v").is_null()]

        def rows() -> list[int]:
            return [query.reader(filter=each).read_all().num_rows for each in expressions]

        before = rows()
        seal_with_statistics(store)
        assert "v" in filters_of(store)
        assert rows() == before


def test_an_older_form_counts_as_none_and_is_made_anew(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", background=False) as store:
        stream = store.stream("s")
        stream.configure(schema="n int")
        for n in range(100):
            stream.add({"n": n})
        seal_with_statistics(store)
        engine = store._engine()
        path = file_names.statistics(store.path, 1)
        whole = path.read_bytes()
        for magic, anew in ((b"LGSTSTA\0", 1), (b"LGSTSTA\2", 0)):
            path.write_bytes(magic + whole[8:])
            engine.seen_statistics.clear()
            assert statsfile.read(engine.fs, engine.path, engine.uuid, 1) is None
            assert read_by_scan(store, stream, "n = 5")[::2] == (1, 0)
            assert column_statistics.write_missing(engine, renew=False) == 0
            assert column_statistics.write_missing(engine) == anew
            assert column_statistics.write_missing(engine) == 0
        assert fmt.STATISTICS_MAGIC == b"LGSTSTA\1"
        path.write_bytes(whole)
        assert read_by_scan(store, stream, "n = 5")[2] > 20


def test_filters_go_before_all_is_given_up(
    tmp_path: Path, drawn: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_store(tmp_path / "store", background=False, segment_bytes=64 << 20) as store:
        stream = store.stream("s")
        stream.configure(schema=SCHEMA)
        stream.add_many(drawn[:2000], batch=100)
        seal_with_statistics(store)
        (found,) = told(store).values()
        assert filters_of(store)
        file_names.statistics(store.path, 1).unlink()
        monkeypatch.setattr(statsfile, "MAX_BYTES", found.size_bytes - 1)
        assert column_statistics.write_missing(store._engine()) == 1
        assert told(store)[1].streams
        assert not filters_of(store)
