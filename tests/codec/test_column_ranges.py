"""Prevents a node that is left out though an entry of it matches: ranges that do not hold."""

from __future__ import annotations

from decimal import Decimal
from math import isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.codec import Codec, pure
from logstore.codec.column_keys import (
    COLUMNS_MAX,
    ColumnRange,
    RangedColumn,
    key_of,
    ranged_column,
)
from logstore.errors import CorruptNodeError
from logstore.schema.column_types import ColumnType, Enum, Fixed
from logstore.schema.schema_text import parse
from tests.codec.column_nodes import Pairs, columns_of, node_of, values_of
from tests.schema.drawn_values import TEXTS, VALUES

NAMES = (b"n", b"7", b"", b"gr\xc3\xb6\xc3\x9fe")
KINDS = [kind for kind in VALUES if ranged_column(b"n", kind) is not None]


def check_holds(kind: ColumnType, texts: list[bytes | None], told: ColumnRange | None) -> None:
    """What is told holds for the values."""
    if told is None:
        return
    values = values_of(kind, texts)
    assert told.nulls == sum(value is None for value in values)
    there = [value for value in values if value is not None]
    if told.least is None or told.most is None:
        assert not there
        return
    assert not any(isinstance(value, float) and isnan(value) for value in there)
    assert kind.read(told.least) == min(there)
    assert kind.read(told.most) == max(there)


@given(data=st.data())
def test_ranges_hold_for_what_readers_read(codec: Codec, data: st.DataObject) -> None:
    kinds = {
        name: data.draw(st.sampled_from(KINDS)) for name in NAMES[: data.draw(st.integers(1, 4))]
    }
    rows: list[Pairs] = []
    odd = data.draw(st.booleans())
    for _ in range(data.draw(st.integers(1, 8))):
        names = data.draw(st.lists(st.sampled_from(NAMES), max_size=5))
        row: Pairs = []
        for name in names:
            kind = kinds.get(name) or data.draw(st.sampled_from(KINDS))
            texts = VALUES[kind].map(kind.write)
            row.append((name, data.draw(texts | TEXTS.map(str.encode) if odd else texts)))
        rows.append(row)
    deleted = data.draw(st.lists(st.integers(0, len(rows) - 1), unique=True))
    lp = node_of(codec, rows, deleted)
    count, told = codec.RangeFinder(columns_of(kinds)).of(lp)
    live = [dict(row) for at, row in enumerate(rows) if at not in deleted]
    assert count == len(live)
    for (name, kind), each in zip(kinds.items(), told, strict=True):
        check_holds(kind, [row.get(name) for row in live], each)
    assert (count, told) == pure.RangeFinder(columns_of(kinds)).of(lp)


@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        ("int", ["5", "-7", "12"], ("-7", "12")),
        ("int", ["5", "05"], None),
        ("int", ["2147483648"], None),
        ("long", ["9223372036854775807", "-9223372036854775808"],
         ("-9223372036854775808", "9223372036854775807")),
        ("double", ["21.53", "3", "1e-7", "-0.5"], ("-0.5", "21.53")),
        ("double", ["9", "10"], ("9", "10")),
        ("double", ["0.1234567890123", "12345678901.5"], ("0.1234567890123", "12345678901.5")),
        ("double", ["1", "nan"], None),
        ("double", ["1", "inf"], None),
        ("double", ["1e999"], None),
        ("double", ["12345678901234567890", "9007199254740993"],
         ("9007199254740993", "12345678901234567890")),
        ("decimal(10, 2)", ["9.50", "10.00", "-0.25"], ("-0.25", "10.00")),
        ("decimal(10, 2)", ["9.5"], None),
        ("decimal(10, 2)", ["-0.00"], None),
        ("decimal(38, 0)", ["9" * 18, "7"], ("7", "9" * 18)),
        ("decimal(38, 0)", ["9" * 19], None),
        ("bool", ["true", "false"], ("false", "true")),
        ("bool", ["1"], None),
        ("string", ["b", "", "\xe4", "10", "9"], ("", "\xe4")),
        ("string", ["x" * 64], ("x" * 64, "x" * 64)),
        ("string", ["a", "x" * 65], None),
        ("enum('low', 'high')", ["low", "high"], ("high", "low")),
        ("enum('low', 'high')", ["mid"], None),
        ("date", ["2024-02-29", "2023-12-31"], ("2023-12-31", "2024-02-29")),
        ("date", ["2023-02-29"], None),
        ("date", ["0000-01-01"], None),
        ("time", ["23:59:59.999999", "00:00:00.000000"], ("00:00:00.000000", "23:59:59.999999")),
        ("time", ["24:00:00.000000"], None),
        ("time", ["12:00:00"], None),
        ("timestamp", ["2026-11-30 12:00:00.000000Z", "0001-01-01 00:00:00.000000Z"],
         ("0001-01-01 00:00:00.000000Z", "2026-11-30 12:00:00.000000Z")),
        ("timestamp", ["2026-11-31 12:00:00.000000Z"], None),
        ("timestamp", ["2026-11-30T12:00:00.000000Z"], None),
    ],
)  # fmt: skip
def test_the_least_and_the_most(
    codec: Codec, kind: str, texts: list[str], expected: tuple[str, str] | None
) -> None:
    column = parse(f"n {kind}").columns[0]
    lp = node_of(codec, [[(b"n", text.encode())] for text in texts] + [[]], [])
    found = codec.RangeFinder(columns_of({b"n": column.type})).of(lp)
    wanted = None if expected is None else ColumnRange(1, *(each.encode() for each in expected))
    assert found == (len(texts) + 1, [wanted])


def test_a_text_that_is_no_utf8_has_no_range(codec: Codec) -> None:
    lp = node_of(codec, [[(b"n", b"\xff")]], [])
    assert codec.RangeFinder(columns_of({b"n": parse("n string").columns[0].type})).of(lp) == (
        1,
        [None],
    )


def test_a_damaged_node_is_an_error(codec: Codec) -> None:
    lp = node_of(codec, [[(b"n", b"1"), (b"m", b"text")], [(b"n", b"2")]], [])
    finder = codec.RangeFinder(columns_of({b"n": parse("n int").columns[0].type}))
    for at in range(6, len(lp)):
        for byte in (0, 0x7F, 0xFF, lp[at] ^ 1):
            damaged = lp[:at] + bytes([byte]) + lp[at + 1 :]
            found: Any
            expected: Any
            try:
                found = finder.of(damaged)
            except CorruptNodeError:
                found = None
            try:
                expected = pure.RangeFinder(columns_of({b"n": parse("n int").columns[0].type})).of(
                    damaged
                )
            except CorruptNodeError:
                expected = None
            assert found == expected
    assert finder.of(lp) == (2, [ColumnRange(0, b"1", b"2")])


def test_too_many_columns_are_refused(codec: Codec) -> None:
    column = RangedColumn(b"n", "int")
    with pytest.raises(ValueError, match="at most"):
        codec.RangeFinder([column] * (COLUMNS_MAX + 1))


@given(data=st.data())
def test_keys_have_the_order_of_the_values(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*KINDS, Fixed(18, 3), Enum(["x", "a"])]))
    column = ranged_column(b"n", kind)
    assert column is not None
    values = VALUES.get(kind)
    if values is None:
        values = (
            st.sampled_from(["x", "a"])
            if isinstance(kind, Enum)
            else st.integers(-(10**17), 10**17).map(lambda units: Decimal(units) / 1000)
        )
    one, other = kind.write(data.draw(values)), kind.write(data.draw(values))
    keys: list[Any] = [key_of(column)(one), key_of(column)(other)]
    if None not in keys:
        first, second = kind.read(one), kind.read(other)
        assert (keys[0] < keys[1]) == (first < second)
        assert (keys[0] == keys[1]) == (first == second)
