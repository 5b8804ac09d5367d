"""Rows against a schema: each value gets its one text, and what does not fit is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.errors import OptionError, SchemaError
from logstore.features import schema_rows
from logstore.features.schema_rows import StoredSchema
from logstore.format import Kind
from logstore.log import frame as frames
from logstore.schema.schema_inference import infer
from logstore.schema.schema_text import parse
from logstore.schema.stream_schema import TEXT_MAX_BYTES, Schema

SENSOR = parse("temp double, note string?, level enum('low', 'high')? = 'low'")


def test_a_row_is_stored_in_its_order_with_one_text_a_value() -> None:
    row = SENSOR.row([("note", "warm"), (b"temp", "21.50"), ("level", "high")])
    assert row == [(b"note", b"warm"), (b"temp", b"21.5"), (b"level", b"high")]


def test_a_default_stands_where_the_column_is_missing() -> None:
    assert SENSOR.row([("temp", 1)]) == [(b"temp", b"1"), (b"level", b"low")]


def test_none_is_a_field_that_is_not_there() -> None:
    assert SENSOR.row([("temp", 1), ("note", None), ("level", None)]) == [(b"temp", b"1")]


def test_a_repeated_field_is_held_against_its_column_each_time() -> None:
    assert SENSOR.row([("temp", 1), ("temp", 2), ("level", "low")])[1] == (b"temp", b"2")
    with pytest.raises(SchemaError, match="temp"):
        SENSOR.row([("temp", 1), ("temp", "x")])


def test_an_open_schema_takes_other_fields_as_they_are() -> None:
    row: list[Any] = parse("temp double, *").row([("other", 5), ("temp", 5)])
    assert row == [(b"other", 5), (b"temp", b"5")]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({}, "column 'temp' is missing: give it a value such as 21.5"),
        ({"temp": None}, "column 'temp' is not nullable"),
        ({"temp": "warm"}, "column 'temp' is double: 'warm' is no number"),
        ({"temp": 1, "level": "middle"}, "column 'level' is enum('low', 'high'): 'middle'"),
        ({"temp": 1, "hum": 2}, "no column 'hum', only 'temp', 'note', 'level'"),
        ({b"\xff": 2}, "no column"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_by_name(row: dict[Any, Any], why: str) -> None:
    with pytest.raises(SchemaError) as refused:
        SENSOR.row(row.items())
    assert why in str(refused.value)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(SchemaError) as refused:
        SENSOR.row([("temp", "x" * 10_000)])
    assert len(str(refused.value)) < 500


def test_columns_are_found_by_their_fields() -> None:
    schema = parse('"é" int')
    column = schema.column("é".encode())
    assert column is not None
    assert column.name == "é"
    assert schema.column(b"e") is None


def test_a_schema_without_columns_is_open() -> None:
    assert parse("*").row([("a", 1)]) == [(b"a", 1)]
    with pytest.raises(OptionError, match="a column at least"):
        Schema([])


def test_a_schema_that_could_not_be_read_again_is_refused() -> None:
    """Prevents a frame whose text is longer than a replay takes, or no UTF-8."""
    long = "€" * (TEXT_MAX_BYTES // 3)  # fewer letters than the bytes that may be stored
    with pytest.raises(OptionError, match="bytes, not"):
        parse(f'"{long}" int')
    with pytest.raises(OptionError, match="UTF-8"):
        parse('"\udcff" int')
    with pytest.raises(OptionError, match="UTF-8"):
        infer([[b"\xff", b"1"]])
    largest = parse(f'"{long[:-10]}" int')
    body = StoredSchema(1, largest.text)
    assert frames.decode(Kind.SCHEMA, frames.encode(body)) == body
    assert schema_rows.TEXT_MAX_BYTES == TEXT_MAX_BYTES
