"""Prevents a row of a stream with a schema that compiled code writes otherwise than the schema."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.codec import Codec, Row
from logstore.errors import Error, SchemaError
from logstore.features.typed_rows import written_columns
from logstore.schema.column_types import ColumnType
from logstore.schema.schema_text import parse
from logstore.schema.stream_schema import COLUMNS_MAX, Column, Schema
from tests.schema.drawn_values import TEXTS, VALUES

NAMES = ("temp", "a b", "größe", "x", "\udcff")
SENSOR = parse("temp double, n int?, level enum('low', 'high')? = 'low', note string?")


def stored(codec: Codec, write: Callable[[], Any]) -> list[bytes] | str:
    """The row that an add stores, or why it is refused."""
    try:
        rows: list[Row] = [write()]
        return codec.rows(rows).flat(0)
    except Error as error:
        return f"{type(error).__name__}: {error}"


def same_as_the_schema(codec: Codec, schema: Schema, row: dict[Any, Any]) -> None:
    """The row is written, or refused, as by the schema."""
    writer = codec.RowWriter(written_columns(schema), schema.is_open, schema.row)
    expected = stored(codec, lambda: schema.row(row.items()))
    before = dict(row)
    assert stored(codec, lambda: writer.fields(row)) == expected
    assert list(row.items()) == list(before.items())
    pairs = [(name, value) for name, value in row.items() if value is not None]
    flat: list[Any] = [part for pair in pairs for part in pair]
    if flat and {bytes}.issuperset(map(type, flat)):

        def again() -> Any:
            found = writer.rewritten(flat)
            return list(zip(flat[::2], flat[1::2], strict=True)) if found is None else found

        assert stored(codec, again) == stored(codec, lambda: schema.row(pairs))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """Up to four columns, nullable or not, some with a default."""
    columns = []
    for name in NAMES[: draw(st.integers(1, 4))]:
        kind = draw(st.sampled_from(list(VALUES)))
        default = None
        if kind.name != "binary":  # whose bytes may be no text
            default = draw(st.none() | VALUES[kind].map(kind.write))
        columns.append(Column(name, kind, draw(st.booleans()), default))
    return Schema(columns, is_open=draw(st.booleans()))


def given_as(kind: ColumnType) -> st.SearchStrategy[Any]:
    """A value of a type in one of its spellings, or near it, or of another type."""
    texts = VALUES[kind].map(kind.write)
    return st.one_of(
        VALUES[kind],
        texts,
        texts.map(lambda text: text.decode("utf-8", "surrogateescape")),
        TEXTS,
        TEXTS.map(str.encode),
        st.decimals(allow_nan=False, places=5).map(float),
        st.integers(),
        st.none() | st.booleans() | st.just(datetime(2026, 1, 1)),  # noqa: DTZ001
    )


@given(data=st.data())
def test_a_row_is_written_or_refused_as_by_the_schema(codec: Codec, data: st.DataObject) -> None:
    schema = data.draw(schemas())
    row: dict[Any, Any] = {}
    kinds = {column.name: column.type for column in schema.columns}
    for name in data.draw(st.permutations(NAMES)):
        if data.draw(st.integers(0, 5)) == 0:
            continue
        kind = kinds.get(name) or data.draw(st.sampled_from(list(VALUES)))
        if name in kinds or data.draw(st.integers(0, 3)) == 0:
            key = name.encode("utf-8", "surrogateescape") if data.draw(st.booleans()) else name
            row[key] = data.draw(given_as(kind))
    same_as_the_schema(codec, schema, row)


@pytest.mark.parametrize(
    "text",
    ["0", "-0", "00", "--5", "-", "", ".", "5.", ".5", "0.5", "-0.5", "0.0001", "0.00012", "0.01",
     "00.5", "1.50", "123456789.123456", "1234567890.5", "999999999", "1e5", "1.2345678", "- 5",
     "+5", "5 ", "5_0", "\N{DIGIT FIVE}", "2147483648", "-2147483648", "9" * 19, "9" * 400,
     "-5.25", "100", "100.5", "0.1234567"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["int", "long", "double", "decimal(10, 2)", "string", "json"])
def test_texts_of_numbers(codec: Codec, kind: str, text: str) -> None:
    for value in (text, text.encode()):
        same_as_the_schema(codec, parse(f"n {kind}"), {b"n": value})
        same_as_the_schema(codec, parse(f"n {kind}"), {"n": value})


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 0.1, -21.53, 1e-4, 9.9e-5, 1e9, 999999999.999999, 1e10, 9999999999.5, 1e16, 1e300,
     0.1 + 0.2, 123456.7890125, 0.000001, 5e-324, float("inf"), -float("inf"), float("nan"), 2**53,
     10**10, 10**10 - 1, -(10**10), 2**63, 10**400, True, 1.0000005, 8.5e8 + 1e-6, 2.675],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["int", "long", "double", "bool", "string"])
def test_numbers(codec: Codec, kind: str, value: float) -> None:
    same_as_the_schema(codec, parse(f"n {kind}"), {"n": value})


@pytest.mark.parametrize(
    "value",
    [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
     datetime(2026, 2, 28, 1, tzinfo=timezone(timedelta(hours=5))),
     datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))), date(1, 1, 1), date(9999, 12, 31),
     time(0), time(23, 59, 59, 999999), time(1, tzinfo=UTC), UUID(int=5),
     "2026-02-30 00:00:00.000000Z", "2026-02-28 00:00:00.000000Z", "2024-02-29 00:00:00.000000Z",
     "0000-01-01 00:00:00.000000Z", "2026-00-01 00:00:00.000000Z", "2026-13-01 00:00:00.000000Z",
     "2026-01-00 00:00:00.000000Z", "2026-01-01 24:00:00.000000Z", "2026-01-01 23:60:00.000000Z",
     "2026-01-01 23:59:60.000000Z", "2026-01-01T00:00:00.000000Z", "2026-01-01 00:00:00.000000"],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("kind", ["timestamp", "date", "time", "uuid", "json"])
def test_times(codec: Codec, kind: str, value: object) -> None:
    same_as_the_schema(codec, parse(f"n {kind}"), {"n": value})


def test_a_name_that_is_given_twice(codec: Codec) -> None:
    same_as_the_schema(codec, SENSOR, {"temp": 1, b"temp": "x"})
    same_as_the_schema(codec, SENSOR, {"temp": 1, b"temp": 2})
    writer = codec.RowWriter(written_columns(SENSOR), SENSOR.is_open, SENSOR.row)
    twice = [b"temp", b"1", b"level", b"low", b"temp", b"2.0"]
    assert writer.rewritten(twice) == [(b"temp", b"1"), (b"level", b"low"), (b"temp", b"2")]


def test_as_many_columns_as_there_can_be(codec: Codec) -> None:
    for count in (255, 256, 257, COLUMNS_MAX):
        schema = parse(", ".join(f"c{number} int? = '{number}'" for number in range(count)))
        same_as_the_schema(codec, schema, {"c0": 5, f"c{count - 1}": None})
        same_as_the_schema(codec, schema, {f"c{number}": number for number in range(count)})


def test_a_type_that_raises_something_else(codec: Codec) -> None:
    class Number:
        def __index__(self) -> int:
            raise KeyboardInterrupt

    writer = codec.RowWriter(written_columns(SENSOR), SENSOR.is_open, SENSOR.row)
    with pytest.raises(KeyboardInterrupt):
        writer.fields({"temp": 1, "n": Number()})
    with pytest.raises(SchemaError):
        writer.fields({"temp": 1, "n": []})


@pytest.mark.parametrize("name", [5, 2.5, None, True, ("temp",)])
def test_names_that_are_no_text(codec: Codec, name: Any) -> None:
    for schema in (SENSOR, parse("temp double, *")):
        same_as_the_schema(codec, schema, {"temp": 1, name: 2})


def test_a_row_that_changes_while_it_is_written(codec: Codec) -> None:
    row: dict[Any, Any] = {"temp": 1}

    class Changes:
        def __index__(self) -> int:
            row.clear()
            row.update({str(number): number for number in range(1000)})
            return 7

    row["n"] = Changes()
    writer = codec.RowWriter(written_columns(SENSOR), SENSOR.is_open, SENSOR.row)
    try:
        written = stored(codec, lambda: writer.fields(row))
    except RuntimeError:  # as Python says of a dictionary that changes under a loop
        return
    assert written == [b"temp", b"1", b"n", b"7", b"level", b"low"]
