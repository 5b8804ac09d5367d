"""Prevents columns of Arrow that become other texts than the same values given one by one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import logstore
from logstore import SchemaError
from logstore.errors import InvalidEntryError, OptionError
from logstore.scan import column_texts
from logstore.scan.scan_columns import arrow_type_of
from logstore.schema import column_types
from logstore.schema.column_types import ColumnType, Fixed
from logstore.schema.schema_text import parse
from logstore.schema.stream_schema import Column
from tests.schema.drawn_values import TEXTS, VALUES

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: install the extra 'arrow'")


def texts_of(column: Any, kind: ColumnType, row: int = 0) -> list[bytes | None]:
    """The texts of a column, as they are stored."""
    found = column_texts.typed_values(column, Column("c", kind, nullable=True), row)
    if not isinstance(found, list):
        found = found.to_pylist()
    return [
        None if each is None else each if isinstance(each, bytes) else str(each).encode()
        for each in found
    ]


@pytest.mark.parametrize("kind", VALUES, ids=repr)
@given(data=st.data())
def test_a_column_of_its_own_type_has_the_texts_of_its_values(
    kind: ColumnType, data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(VALUES[kind] | st.none(), max_size=5))
    wanted = [None if value is None else kind.write(value) for value in drawn]
    arrow = arrow_type_of(kind)
    given: list[Any] = drawn
    if arrow == pa.string() and kind is not column_types.STRING:  # as a scan gives them
        given = [None if text is None else text.decode() for text in wanted]
    assert texts_of(pa.array(given, arrow), kind) == wanted
    # and as text
    if kind is not column_types.BINARY:
        spelt = [None if text is None else text.decode() for text in wanted]
        for text_type in (pa.string(), pa.large_string()):
            assert texts_of(pa.array(spelt, text_type), kind) == wanted
        assert texts_of(pa.array(spelt, pa.string()).dictionary_encode(), kind) == wanted


@pytest.mark.parametrize("kind", VALUES, ids=repr)
@given(texts=st.lists(TEXTS, min_size=1, max_size=3))
@example(["-nan"])
@example(["0x1F"])
@example(["0000-01-01"])
@example(["1.50", "2"])
@example(["1e999", "1"])
@example([""])
def test_a_column_of_text_is_what_its_texts_are(kind: ColumnType, texts: list[str]) -> None:
    """Whatever Arrow takes beside that, or takes for another value."""
    try:
        wanted = [kind.write(text.encode()) for text in texts]
    except (ValueError, TypeError):
        with pytest.raises(SchemaError, match=r"row [5-7]: column 'c' is"):
            texts_of(pa.array(texts), kind, 5)
    else:
        assert texts_of(pa.array(texts), kind) == wanted


NAIVE = datetime(2026, 11, 26, 12)  # noqa: DTZ001  a moment without a zone
OTHERS: list[tuple[Any, str, list[bytes]]] = [
    (pa.array([1, -7], pa.int8()), "double", [b"1", b"-7"]),
    (pa.array([2**53 + 1]), "double", [b"9.007199254740992e+15"]),
    (pa.array([1.5, 0.1], pa.float32()), "double", [b"1.5", b"0.10000000149011612"]),
    (pa.array([12, -1]), "decimal(10, 2)", [b"12.00", b"-1.00"]),
    (pa.array([2**64 - 1], pa.uint64()), "decimal(20, 0)", [b"18446744073709551615"]),
    (pa.array([0.25, 1e16]), "decimal(20, 2)", [b"0.25", b"10000000000000000.00"]),
    (pa.array([Decimal("1.50")], pa.decimal256(50, 10)), "decimal(3, 1)", [b"1.5"]),
    (pa.array([Decimal(0), Decimal("1E-8")], pa.decimal128(9, 8)), "decimal(9, 8)",
     [b"0.00000000", b"0.00000001"]),
    (pa.array([5, 7]), "string", [b"5", b"7"]),
    (pa.array([1, 0]), "bool", [b"true", b"false"]),
    (pa.array([1.0]), "long", [b"1"]),
    (pa.array([b"x"]), "string", [b"x"]),
    (pa.array(["x"]), "binary", [b"x"]),
    (pa.array([b"\xff"], pa.binary(1)), "binary", [b"\xff"]),
    (pa.array([date(2026, 1, 2)], pa.date64()), "date", [b"2026-01-02"]),
    (pa.array([NAIVE]), "timestamp", [b"2026-11-26 12:00:00.000000Z"]),
    (pa.array([1], pa.timestamp("s")), "timestamp", [b"1970-01-01 00:00:01.000000Z"]),
    (pa.array([1, -1], pa.timestamp("ns", "Asia/Tokyo")), "timestamp",
     [b"1970-01-01 00:00:00.000000Z", b"1969-12-31 23:59:59.999999Z"]),
    (pa.array([NAIVE.replace(tzinfo=timezone(timedelta(hours=2)))], pa.timestamp("ms", "+02:00")),
     "timestamp", [b"2026-11-26 10:00:00.000000Z"]),
    (pa.array([datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]), "timestamp",
     [b"0001-01-01 00:00:00.000000Z", b"9999-12-31 00:00:00.000000Z"]),
    (pa.array([61], pa.time32("s")), "time", [b"00:01:01.000000"]),
    (pa.array([1000], pa.time64("ns")), "time", [b"00:00:00.000001"]),
    (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([uuid.UUID(int=5).bytes], pa.binary(16))),
     "uuid", [str(uuid.UUID(int=5)).encode()]),
    (pa.array([[1, None], []]), "json", [b"[1,null]", b"[]"]),
    (pa.array([{"b": 1, "a": {"c": [date(2026, 1, 2)]}}]), "json",
     [b'{"a":{"c":["2026-01-02"]},"b":1}']),
    (pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int8())), "json", [b'{"x":1}']),
    (pa.array([5]), "json", [b"5"]),
    (pa.array(['{"b": 1, "a": 2}']), "json", [b'{"a":2,"b":1}']),
    (pa.ExtensionArray.from_storage(pa.json_(), pa.array(["[ 1 ]"])), "json", [b"[1]"]),
    (pa.array(["a", "b"]).dictionary_encode(), "enum('a', 'b')", [b"a", b"b"]),
    (pa.nulls(2), "double", [None, None]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "kind", "wanted"), OTHERS, ids=lambda each: str(getattr(each, "type", each))[:40]
)
def test_columns_of_other_types(column: Any, kind: str, wanted: list[bytes | None]) -> None:
    (of,) = parse(f"c {kind}").columns
    assert texts_of(column, of.type) == wanted


REFUSED: list[tuple[Any, str, str]] = [
    (pa.array([1, 2**31]), "int", "row 1: column 'c' is int"),
    (pa.array([1.0, 1.5]), "long", "row 1: column 'c' is long"),
    (pa.array([True]), "int", "row 0: column 'c' is int"),
    (pa.array([Decimal("1.5"), Decimal("1.55")]), "decimal(3, 1)", "row 1: .*more digits"),
    (pa.array([0.5, float("nan")]), "decimal(3, 1)", "row 1: .*finite"),
    (pa.array(["a", "c"]), "enum('a', 'b')", "row 1: .*none of enum"),
    (pa.array([0, 1 << 60], pa.timestamp("s")), "timestamp", "row 1: .*years 1 to 9999"),
    (pa.array([1000, 1001], pa.time64("ns")), "time", "row 1: column 'c' is time"),
    (pa.array([b"x", b"\xff"]), "string", "row 1: .*no UTF-8"),
    (pa.array(["{}", "x"]), "json", "row 1: .*no JSON text"),
]


@pytest.mark.parametrize(("column", "kind", "why"), REFUSED, ids=str)
def test_a_value_that_does_not_fit_names_its_row(column: Any, kind: str, why: str) -> None:
    (of,) = parse(f"c {kind}").columns
    with pytest.raises((SchemaError, InvalidEntryError), match=why):
        texts_of(column, of.type)


def test_a_null_is_refused_with_its_row() -> None:
    column = Column("c", column_types.LONG)
    with pytest.raises(SchemaError, match="row 8: column 'c' is not nullable"):
        column_texts.typed_values(pa.array([1, None]), column, 7)


# -- through a stream -------------------------------------------------------------------------
@pytest.fixture
def store(tmp_path: Path) -> Iterator[logstore.Store[str]]:
    with logstore.open(tmp_path / "s", sync="os", encoding="utf-8", background=False) as opened:
        yield opened


def test_a_stream_takes_columns_of_its_types(store: logstore.Store[str]) -> None:
    stream = store.stream("s")
    stream.configure(
        schema="at timestamp, temp double, tags json?, level enum('lo') = 'lo', n int?"
    )
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table({"temp": [1.0, 2.5], "at": [moment] * 2, "tags": [["a"], None]})
    ids = stream.add_arrow(table)
    assert list(ids) == [entry.id for entry in stream]
    assert [dict(entry) for entry in stream] == [
        {"temp": 1.0, "at": moment, "tags": ["a"], "level": "lo"},
        {"temp": 2.5, "at": moment, "level": "lo"},
    ]
    stream.add_many(table.slice(0, 1))
    assert len(stream) == 3
    # a handle that was there before the schema
    old = store.stream("t")
    old.add({"temp": "1"})
    store.stream("t").configure(schema="temp double")
    old.add_arrow(pa.table({"temp": [2]}))
    assert [entry["temp"] for entry in store.stream("t")] == [1.0, 2.0]


def test_rows_of_a_scan_of_typed_columns_can_be_added(store: logstore.Store[str]) -> None:
    """Also what is called as a standard column; and to a stream without a schema."""
    source = store.stream("source")
    source.configure(schema="temp double, id long, tags json?, raw binary?, *")
    source.add({"temp": 1, "id": 5, "tags": {"b": 1}, "raw": b"\xff", "more": "x"})
    source.add([("temp", 1.5), ("id", 6), ("temp", 2.5)])
    store.stream("typed").configure(schema=str(source.schema))
    store.stream("typed").add_arrow(source.scan())
    assert list(store.stream("typed")) == list(source)
    few = source.scan(columns=["id", "temp", "id_2"])
    store.stream("few").configure(schema="temp double, id long")
    store.stream("few").add_arrow(few)
    assert [dict(entry) for entry in store.stream("few")] == [
        {"temp": 1.0, "id": 5}, {"temp": 2.5, "id": 6},
    ]  # fmt: skip
    store.stream("plain").add_arrow(source.scan(columns=["id", "temp", "tags", "raw", "pairs"]))
    assert [list(entry.pairs) for entry in store.stream("plain")] == [
        [("temp", "1"), ("id", "5"), ("tags", '{"b":1}'), ("raw", "\udcff"), ("more", "x")],
        [("temp", "1.5"), ("id", "6"), ("temp", "2.5")],
    ]


MAP = pa.map_(pa.string(), pa.string())


@pytest.mark.parametrize(
    ("columns", "error", "why"),
    [
        ({"temp": ["1", "warm"]}, SchemaError, "row 1: column 'temp' is double"),
        ({"temp": [1.0, None]}, SchemaError, "row 1: column 'temp' is not nullable"),
        ({"n": [1]}, SchemaError, "column 'temp' is missing"),
        ({"temp": [1.0], "hum": [1]}, SchemaError, "no column 'hum'"),
        ({"temp": [[1.0]]}, OptionError, "cannot be a field"),
        ({"fields": pa.array([[("temp", "1")], [("temp", "x")]], MAP)},
         SchemaError, "row 1: column 'temp' is double"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit_adds_nothing(
    store: logstore.Store[str], columns: Any, error: type, why: str
) -> None:
    stream = store.stream("s")
    stream.configure(schema="temp double, n int?")
    with pytest.raises(error, match=why):
        stream.add_arrow(pa.table(columns))
    assert len(stream) == 0


def test_a_schema_that_another_set_meanwhile_holds(store: logstore.Store[str]) -> None:
    """It writes the rows again, in the commit."""
    stream = store.stream("s")
    stream.configure(schema="n int")

    def batches() -> Iterator[Any]:
        yield pa.record_batch({"n": [1]})
        store.stream("s").configure(schema="n double")
        yield pa.record_batch({"n": [2]})
        store.stream("s").configure(schema="n double, more string?, on bool? = 'true'")
        yield pa.record_batch({"n": [3]})

    reader = pa.RecordBatchReader.from_batches(pa.schema({"n": pa.int64()}), batches())
    stream.add_arrow(reader, batch=1)
    assert [dict(entry) for entry in store.stream("s")] == [
        {"n": 1.0}, {"n": 2.0}, {"n": 3.0, "on": True},
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [column_types.DOUBLE, Fixed(10, 2)], ids=repr)
def test_text_of_another_spelling_beside_a_bad_one(kind: ColumnType) -> None:
    texts = ["1.50", "2", "x", "7"]
    with pytest.raises(SchemaError, match="row 2: "):
        texts_of(pa.array(texts), kind)
    assert texts_of(pa.array(texts[:2]), kind) == [kind.write(text) for text in texts[:2]]
