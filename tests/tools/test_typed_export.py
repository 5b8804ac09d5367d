"""Prevents exports of typed streams that come back as another schema, or other entries."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import logstore
from logstore.schema import column_types
from logstore.schema.column_types import ColumnType
from logstore.schema.stream_schema import Column, Schema
from tests.schema.drawn_values import VALUES
from tests.tools.commands import invoke, ok, pairs
from tests.tools.tables import parquet

KINDS = list(VALUES)
NAMES = st.sampled_from(["a", "b", "id", "ms", "seq", "ts", "x y", 'q"', "é", "fields"])
COLUMN = st.tuples(NAMES, st.sampled_from(KINDS), st.booleans(), st.booleans())


@st.composite
def typed_rows(draw: st.DrawFn) -> tuple[Schema, list[list[tuple[bytes, Any]]]]:
    """A schema, and rows that it takes."""
    columns: list[Column] = []
    for name, kind, nullable, has_default in draw(
        st.lists(COLUMN, min_size=1, max_size=4, unique_by=lambda column: column[0])
    ):
        default = kind.write(draw(VALUES[kind])) if has_default else None
        if default is not None and not _is_utf8(default):
            default = None  # which the text of a schema cannot have
        columns.append(Column(name, kind, nullable, default))
    schema = Schema(columns, is_open=draw(st.booleans()))
    rows: list[list[tuple[bytes, Any]]] = []
    for _ in range(draw(st.integers(1, 4))):
        row: list[tuple[bytes, Any]] = [(b"more", draw(st.text(max_size=3)))] * schema.is_open
        for column in columns:
            value = draw(VALUES[column.type])
            given = None if column.nullable and draw(st.booleans()) else column.type.write(value)
            row.append((column.field, given))
        if any(value is not None for _, value in row):
            rows.append(row)
    return schema, rows


def stored(store: Path) -> tuple[str, list[tuple[str, dict[bytes, bytes]]]]:
    with logstore.open(store, create=False) as opened:
        schema = str(opened.stream("s").schema)
    return schema, [(id, dict(found)) for id, found in pairs(store)]


def is_told(schema: Schema, rows: list[list[tuple[bytes, Any]]]) -> bool:
    """Whether a CSV tells these rows: null and an empty text are one there, it has no bytes that
    are no UTF-8, and no line with nothing in it."""
    for row in rows:
        for name, value in row:
            column = schema.column(name)
            kind: ColumnType = column_types.STRING if column is None else column.type
            if value == b"" or (kind is column_types.BINARY and not _is_utf8(value)):
                return False
            if column is None and value == "":
                return False
    return True


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("name", ["s.parquet", "s.jsonl", "s.jsonl.gz", "s.csv", "s.tsv"])
@settings(max_examples=12)
@given(found=typed_rows())
@example(
    (
        Schema([Column("a", column_types.JSON, True)], is_open=True),
        [[(b"a", b"null")], [(b"a", b'"null"')], [(b"a", b'"5"')], [(b"a", b"5")]],
    )
)
@example((Schema([Column("a", column_types.INT, True, b"5"), Column("b", column_types.INT)]),
          [[(b"a", None), (b"b", 1)]]))  # fmt: skip
@example((Schema([Column("a", column_types.INT, True, b"5"), Column("b", column_types.BINARY)]),
          [[(b"a", None), (b"b", b"\x80")]]))  # fmt: skip
@example((Schema([Column("a", column_types.INT, True, b"5"), Column("b", column_types.JSON)]),
          [[(b"a", None), (b"b", b"null")]]))  # fmt: skip
def test_exports_are_imported_again(
    name: str, found: tuple[Schema, list[list[tuple[bytes, Any]]]]
) -> None:
    schema, rows = found
    if not rows or (name.startswith(("s.csv", "s.tsv")) and not is_told(schema, rows)):
        return
    with tempfile.TemporaryDirectory() as folder:
        source, target, file = Path(folder) / "a", Path(folder) / "b", Path(folder) / name
        with logstore.open(source, background=False) as store:
            store.stream("s").configure(schema=schema)
            store.stream("s").add_many((f"{at}-7", row) for at, row in enumerate(rows, 1))
        given: list[str] = []
        if not name.endswith("parquet"):  # which has the schema in it
            given = ["--schema", schema.text]
        if name.startswith(("s.csv", "s.tsv")):
            given += ["--id-field", "the id"]
            ok("export", source, "s", file, "--id-field", "the id")
        else:
            ok("export", source, "s", file)
        ok("import", target, file, *given)
        assert stored(target) == stored(source)


MOMENT = datetime(2026, 11, 26, 12, tzinfo=UTC)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with logstore.open(tmp_path / "source") as store:
        stream = store.stream("s")
        stream.configure(
            schema="temp double, at timestamp, price decimal(5, 2), tags json?, on bool, ts long?,"
            " n long? = '5'"
        )
        row = {"temp": 21.5, "at": MOMENT, "price": "1.5", "on": True}
        stream.add(row | {"tags": {"b": [1, None]}, "n": None}, "1-0")
        stream.add(row | {"temp": float("nan"), "tags": "x", "ts": 7, "n": 2**60}, "2-0")
    return tmp_path / "source"


def test_json_lines_have_values_as_the_schema_says(source: Path) -> None:
    first, second = map(json.loads, ok("export", source, "s").splitlines())
    assert first == {"id": "1-0", "fields": {
        "temp": 21.5, "at": "2026-11-26 12:00:00.000000Z", "price": 1.5, "on": True,
        "tags": {"b": [1, None]}, "n": None,
    }}  # fmt: skip
    assert second["fields"]["temp"] == "nan"  # which JSON has not
    assert second["fields"]["tags"] == "x"
    assert second["fields"]["n"] == 2**60


def test_a_csv_has_the_columns_of_the_schema(source: Path, tmp_path: Path) -> None:
    ok("export", source, "s", tmp_path / "a.csv")
    header, first, second = csv.reader(io.StringIO((tmp_path / "a.csv").read_text()))
    assert header == ["id", "temp", "at", "price", "tags", "on", "ts", "n"]
    assert first[3:] == ["1.50", '{"b":[1,null]}', "true", "", ""]
    assert second[4:] == ['"x"', "true", "7", str(2**60)]


def test_parquet_has_typed_columns_first(source: Path, tmp_path: Path) -> None:
    """Also in a folder, if all streams have the same schema."""
    ok("export", source, "s", tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.schema.names == ["temp", "at", "price", "tags", "on", "ts_2", "n", "id", "ts"]
    assert [str(kind) for kind in table.schema.types[:5]] == [
        "double", "timestamp[us, tz=UTC]", "decimal128(5, 2)", "string", "bool",
    ]  # fmt: skip
    ok("export", source, "s", tmp_path / "folder", "--to", "parquet")
    (file,) = (tmp_path / "folder").rglob("*.parquet")
    assert parquet.read_schema(file).names == table.schema.names
    ok("export", source, "s", tmp_path / "b.parquet", "--schema", "temp string")
    assert parquet.read_schema(tmp_path / "b.parquet").names == ["id", "ts", "temp"]
    with logstore.open(source) as store:
        store.stream("other").add({"a": 1})
    ok("export", source, "s", "other", tmp_path / "both", "--to", "parquet")
    names = [parquet.read_schema(file).names for file in (tmp_path / "both").rglob("*.parquet")]
    assert names == [["id", "ts", "fields"]] * 2


def test_a_dead_letter_that_does_not_fit_is_exported(source: Path, tmp_path: Path) -> None:
    with logstore.open(source) as store:
        work = store.stream("work")
        work.add({"temp": "warm", "on": "perhaps", "tags": "{", "more": "x"})
        group = work.group("g", "0")
        group.configure(max_deliveries=1, dead_letter="s")
        (delivery,) = group.read("a")
        delivery.nack()
        group.read("a")
        assert len(store.stream("s")) == 3
    *_, line = ok("export", source, "s").splitlines()
    fields = json.loads(line)["fields"]
    assert {name: fields[name] for name in ("temp", "on", "tags", "more")} == {
        "temp": "warm", "on": "perhaps", "tags": "{", "more": "x",
    }  # fmt: skip
    ok("export", source, "s", tmp_path / "a.csv")
    done = invoke("export", source, "s", tmp_path / "a.parquet", "--json")
    assert json.loads(done.stdout)["null"] == {"temp": 1, "on": 1}
    assert parquet.read_table(tmp_path / "a.parquet").num_rows == 3
