"""Prevents rows of Arrow that become other entries than the same rows given one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import logstore
import logstore.aio
from logstore.api.store import Store
from logstore.errors import (
    EntryTypeError,
    IDOrderError,
    InvalidEntryError,
    InvalidIDError,
    LastIDConflictError,
    OptionError,
    UsageError,
)

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: install the extra 'arrow'")
pl = pytest.importorskip("polars", reason="polars is not installed: install the extra 'polars'")

TABLE = pa.table(
    {
        "rider": ["Castilla", None, "Norem"],
        "speed": pa.array([30, 28, None], pa.int64()),
        "ratio": [0.5, None, 2.0],
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("us", tz="UTC")),
    }
)
FIELDS = [
    {"rider": "Castilla", "speed": "30", "ratio": "0.5", "at": "2026-01-01 00:00:00.000000Z"},
    {"speed": "28", "at": "2026-01-01 00:00:00.000000Z"},
    {"rider": "Norem", "ratio": "2", "at": "2026-01-01 00:00:00.000000Z"},
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store[str]]:
    path = tmp_path_factory.mktemp("arrow") / "s"
    with logstore.open(path, sync="os", encoding="utf-8") as opened:
        yield opened


def all_fields(store: Store[str], name: str) -> list[dict[str, str]]:
    return [dict(entry.fields) for entry in store.stream(name)]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("table", lambda table: table),
        ("batch", lambda table: table.to_batches()[0]),
        (
            "reader",
            lambda table: pa.RecordBatchReader.from_batches(
                table.schema, table.slice(0, 1).to_batches() + table.slice(1).to_batches()
            ),
        ),
        (
            "dictionary",
            lambda table: table.set_column(0, "rider", table["rider"].dictionary_encode()),
        ),
    ],
)
def test_every_kind_of_arrow_data_is_added(store: Store[str], name: str, form: Any) -> None:
    ids = store.stream(name).add_arrow(form(TABLE), batch=2)
    assert list(ids) == [entry.id for entry in store.stream(name)]
    assert all_fields(store, name) == FIELDS


def test_data_frames_are_added(store: Store[str]) -> None:
    few = TABLE.select(["rider", "speed"])
    wanted = [{key: row[key] for key in ("rider", "speed") if key in row} for row in FIELDS]
    store.stream("polars").add_many(pl.from_arrow(few))
    assert all_fields(store, "polars") == wanted
    store.stream("pandas").add_arrow(few.select(["rider"]).slice(0, 1).to_pandas())
    assert all_fields(store, "pandas") == [{"rider": "Castilla"}]


def test_batches_of_a_scan_can_be_added(store: Store[str]) -> None:
    source = store.stream("source")
    source.add([("a", 1), ("a", 2), ("b", "é")], id="5-1")
    source.add({"c": 1}, id="5-9")
    store.stream("again").add_arrow(source.scan())
    assert list(store.stream("again")) == list(source)
    plain = source.scan(columns=["ms", "seq", "c"], where=[("c", "==", "1")])
    store.stream("plain").add_arrow(plain)
    assert [(str(entry.id), dict(entry.fields)) for entry in store.stream("plain")] == [
        ("5-9", {"c": "1"})
    ]


@pytest.mark.parametrize(
    ("column", "values", "ids"),
    [
        ("id", ["7-1", "7-2", "8-0"], ["7-1", "7-2", "8-0"]),
        ("ms", [7, 7, 8], ["7-0", "7-1", "8-0"]),
        ("when", [1, 2, 2], ["1-0", "2-0", "2-1"]),
        ("ts", pa.array([7000, 7999, 8000], pa.timestamp("us")), ["7-0", "7-1", "8-0"]),
    ],
)
def test_ids_of_a_column(store: Store[str], column: str, values: Any, ids: list[str]) -> None:
    table = pa.table({column: values, "n": [1, 2, 3]})
    stream = store.stream(f"by {column}")
    stream.add_arrow(table, id_column="when" if column == "when" else "", batch=2)
    assert [str(entry.id) for entry in stream] == ids
    assert all_fields(store, stream.name) == [{"n": "1"}, {"n": "2"}, {"n": "3"}]
    with pytest.raises(IDOrderError):
        stream.add_arrow(table, id_column="when" if column == "when" else "")
    stream.add_arrow(pa.table({"ms": [1], "n": [4]}), id_column="*")
    assert all_fields(store, stream.name)[3] == {"ms": "1", "n": "4"}


@pytest.mark.parametrize(
    ("data", "options", "error"),
    [
        ([{"a": 1}], {}, EntryTypeError),
        (pa.table({"a": [[1]]}), {}, OptionError),
        (pa.table({"a": [1], "A": [1]}), {}, OptionError),
        (pa.table({"id": ["1-1"]}), {}, OptionError),
        (pa.table({"a": [1]}), {"id_column": "b"}, OptionError),
        (pa.table({"a": [1]}), {"batch": 0}, OptionError),
        (pa.table({"a": [1]}), {"create": 1}, OptionError),
        (pa.table({"a": [1.5], "id": [1.5]}), {}, OptionError),
        (pa.table({"a": [1, None]}), {}, InvalidEntryError),
        (pa.table({"a": [1], "id": ["x"]}), {}, InvalidIDError),
        (pa.table({"a": [1], "ms": [-1]}), {}, InvalidIDError),
        (pa.table({"a": [1], "ts": pa.array([1 << 60], pa.timestamp("s"))}), {}, InvalidIDError),
        (pa.table({"a": pa.array([1 << 60], pa.timestamp("s"))}), {}, InvalidEntryError),
        (pa.table({"a": pa.array([-(1 << 31)], pa.date32())}), {}, InvalidEntryError),
    ],
    ids=str,
)
def test_invalid_tables_are_refused(
    store: Store[str], data: Any, options: Any, error: type
) -> None:
    with pytest.raises(error):
        store.stream("refused").add_arrow(data, **options)
    assert "refused" not in store


def test_nothing_is_added_without_a_stream_or_rows(store: Store[str]) -> None:
    assert len(store.stream("nobody").add_arrow(TABLE, create=False)) == 0
    assert len(store.stream("nobody").add_arrow(TABLE.slice(0, 0))) == 0
    assert "nobody" not in store


def test_a_stream_is_no_table(store: Store[str]) -> None:
    source = store.stream("source of bytes")
    source.add([(b"\xff", b"\xfe"), (b"\xff", b"1")], id="5-1")
    for add in (store.stream("refused").add_arrow, store.stream("refused").add_many):
        with pytest.raises(EntryTypeError):
            add(source)
    assert "refused" not in store


def test_add_many_of_a_table_keeps_its_options(store: Store[str]) -> None:
    stream = store.stream("options")
    stream.add_many(TABLE, batch=1, max_entries=2, approximate=False, expected_last_id="0-0")
    assert len(stream) == 2
    with pytest.raises(LastIDConflictError):
        stream.add_many(TABLE, expected_last_id="0-0")
    with pytest.raises(OptionError, match="producer"):
        stream.add_many(TABLE, producer="me")
    assert len(stream) == 2


def test_a_stream_with_a_codec_takes_no_rows_of_arrow(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", sync="os") as store, pytest.raises(UsageError):
        store.stream("x", codec="json").add_arrow(TABLE)


def test_the_asyncio_face_adds_arrow(tmp_path: Path) -> None:
    async def main() -> None:
        async with logstore.aio.open(tmp_path / "s") as store:
            assert len(await store.stream("x").add_arrow(TABLE)) == 3
            assert len(await store.stream("y").add_many(TABLE)) == 3

    asyncio.run(main())
