"""Types of columns: a value has one text, and Arrow reads that text as the same value."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logstore.scan.conversion import cast
from logstore.schema import column_types
from logstore.schema.column_types import ColumnType, Enum, Fixed
from tests.schema.drawn_values import JSON_VALUES, NAIVE, TEXTS, VALUES

ARROW: dict[ColumnType, Any] = {
    column_types.BOOL: pa.bool_(),
    column_types.INT: pa.int32(),
    column_types.LONG: pa.int64(),
    column_types.DOUBLE: pa.float64(),
    column_types.DATE: pa.date32(),
    column_types.TIMESTAMP: pa.timestamp("us", "UTC"),
    column_types.TIME: pa.time64("us"),
    Fixed(10, 2): pa.decimal128(10, 2),
    Fixed(38, 0): pa.decimal128(38, 0),
    Fixed(38, 38): pa.decimal128(38, 38),
}


def same(value: Any, other: Any) -> bool:
    """Equality under which a NaN is itself, and a moment of a zone is that of UTC."""
    if isinstance(value, datetime):
        return bool(value.astimezone(UTC) == other.astimezone(UTC))
    if isinstance(value, float) and math.isnan(value):
        return math.isnan(other)
    return bool(value == other)


@pytest.mark.parametrize("kind", VALUES, ids=repr)
@given(data=st.data())
def test_a_value_is_read_as_it_was_written(kind: ColumnType, data: st.DataObject) -> None:
    value = data.draw(VALUES[kind])
    text = kind.write(value)
    found = kind.read(text)
    assert same(found, value), (text, found)
    assert type(found) is type(value) or isinstance(value, int)
    if kind is not column_types.JSON:
        assert kind.write(text) == text  # the text of the text is itself
        assert kind.write(found) == text


@pytest.mark.parametrize("kind", ARROW, ids=repr)
@given(data=st.data())
def test_arrow_reads_and_writes_the_same_text(kind: ColumnType, data: st.DataObject) -> None:
    strategy = VALUES.get(kind)
    assert strategy is not None
    value = data.draw(strategy)
    text = kind.write(value).decode()
    found = cast(pa.array([text]), ARROW[kind], "column", strict=True)
    assert same(found[0].as_py(), kind.read(text.encode()))
    assert found.cast(pa.string())[0].as_py() == text or kind in map_of_other_spellings()


def map_of_other_spellings() -> set[ColumnType]:
    """Decimals of 38 digits behind the point: Arrow writes them with an exponent."""
    return {Fixed(38, 38)}


@pytest.mark.parametrize("kind", ARROW, ids=repr)
@given(text=TEXTS)
@example("-nan")
@example("1e999")
@example("2026-11-26 24:00")
@example("0001-01-01 00:00:00+01:00")
def test_arrow_reads_the_same_value_of_a_text(kind: ColumnType, text: str) -> None:
    try:
        value = kind.read(text.encode())
    except ValueError:
        return
    found = cast(pa.array([text]), ARROW[kind], "column", strict=True)[0].as_py()
    assert same(found, value)
    assert same(kind.read(kind.write(text)), value)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (column_types.BOOL, "TRUE", b"true"),
        (column_types.BOOL, b"0", b"false"),
        (column_types.INT, "007", b"7"),
        (column_types.DOUBLE, 21.0, b"21"),
        (column_types.DOUBLE, "1E3", b"1000"),
        (column_types.DOUBLE, 3, b"3"),
        (column_types.DOUBLE, -0.0, b"-0"),
        (column_types.DOUBLE, 1e16, b"1e+16"),
        (Fixed(10, 2), "1.5", b"1.50"),
        (Fixed(10, 2), 0.1, b"0.10"),
        (Fixed(10, 2), Decimal("-0"), b"0.00"),
        (column_types.TIMESTAMP, "2026-11-26T12:00+02:00", b"2026-11-26 10:00:00.000000Z"),
        (column_types.TIMESTAMP, "2026-11-26 12:00:00", b"2026-11-26 12:00:00.000000Z"),
        (
            column_types.TIMESTAMP,
            datetime(2026, 11, 26, 12, tzinfo=timezone(timedelta(hours=-1))),
            b"2026-11-26 13:00:00.000000Z",
        ),
        (column_types.TIME, "12:30", b"12:30:00.000000"),
        (column_types.UUID_TYPE, "A" * 8 + "-0000-0000-0000-" + "B" * 12, None),
        (column_types.JSON, {"b": [1, None], "a": {"c": 1.5}}, b'{"a":{"c":1.5},"b":[1,null]}'),
        (column_types.JSON, b' {"b": 1, "a": 2}', b'{"a":2,"b":1}'),
        (column_types.JSON, '{"a": 1}', b'"{\\"a\\": 1}"'),
        (column_types.BINARY, bytearray(b"\xff"), b"\xff"),
    ],
)
def test_texts_of_values(kind: ColumnType, value: Any, text: bytes | None) -> None:
    assert kind.write(value) == (text or str(UUID(value)).encode())


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (column_types.BOOL, 1),
        (column_types.BOOL, "yes"),
        (column_types.INT, True),
        (column_types.INT, 2**31),
        (column_types.INT, 1.0),
        (column_types.INT, "1.0"),
        (column_types.INT, "+1"),
        (column_types.INT, "9" * 41),
        (column_types.LONG, -(2**63) - 1),
        (column_types.DOUBLE, True),
        (column_types.DOUBLE, "0x10"),
        (column_types.DOUBLE, "1" * 401),
        (column_types.DOUBLE, 10**400),
        (column_types.DOUBLE, Decimal(1)),
        (Fixed(3, 1), "1.25"),
        (Fixed(3, 1), 100),
        (Fixed(3, 1), float("nan")),
        (Fixed(3, 1), Decimal("Infinity")),
        (Fixed(3, 1), "1e1"),
        (column_types.STRING, 5),
        (column_types.STRING, b"\xff"),
        (column_types.STRING, "\ud800"),
        (column_types.BINARY, "text"),
        (column_types.DATE, NAIVE),
        (column_types.DATE, "2026-02-30"),
        (column_types.DATE, "0000-01-01"),
        (column_types.TIMESTAMP, NAIVE),
        (column_types.TIMESTAMP, date(2026, 1, 1)),
        (column_types.TIMESTAMP, 1.5),
        (column_types.TIMESTAMP, "0001-01-01 00:00:00+01:00"),
        (column_types.TIME, time(1, tzinfo=UTC)),
        (column_types.TIME, "25:00"),
        (column_types.UUID_TYPE, "0" * 32),
        (column_types.JSON, float("nan")),
        (column_types.JSON, b"NaN"),
        (column_types.JSON, b"{"),
        (column_types.JSON, {1j: 1}),
        (Enum(["a"]), "b"),
        (Enum(["a"]), None),
        (column_types.STRING, None),
    ],
)
def test_a_value_of_another_type_is_refused(kind: ColumnType, value: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as refused:
        kind.write(value)
    assert str(refused.value)


def test_json_that_is_nested_too_deep_is_refused() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(ValueError, match="JSON"):
        column_types.JSON.write(deep)
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ValueError, match="JSON"):
        column_types.JSON.write(nested)


def test_numpy_scalars_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    assert column_types.BOOL.write(numpy.bool_(True)) == b"true"
    assert column_types.LONG.write(numpy.int64(5)) == b"5"
    assert column_types.DOUBLE.write(numpy.float32(1.5)) == b"1.5"


@given(JSON_VALUES)
def test_the_text_of_json_is_json(value: Any) -> None:
    assert json.loads(column_types.JSON.write(value)) == value


@pytest.mark.parametrize(("digits", "scale"), [(0, 0), (39, 0), (3, 4), (3, -1)])
def test_a_decimal_that_cannot_be_is_refused(digits: int, scale: int) -> None:
    with pytest.raises(ValueError, match="decimal"):
        Fixed(digits, scale)


@pytest.mark.parametrize("values", [[], ["a", "a"], [str(each) for each in range(1001)]])
def test_an_enum_that_cannot_be_is_refused(values: list[str]) -> None:
    with pytest.raises(ValueError, match="enum"):
        Enum(values)


def test_types_of_one_name_are_equal() -> None:
    assert Fixed(3, 1) == Fixed(3, 1) != Fixed(3, 2)
    assert len({Enum(["a"]), Enum(["a"]), Enum(["b"])}) == 2
