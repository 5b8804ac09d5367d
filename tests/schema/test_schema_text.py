"""Schemas as text: what is written is read again; no schema is refused with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import OptionError
from logstore.schema.column_types import PLAIN_TYPES, ColumnType, Enum, Fixed
from logstore.schema.schema_text import COLUMNS_MAX, TEXT_MAX_BYTES, parse
from logstore.schema.stream_schema import Column, Schema, folded

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
TYPES: st.SearchStrategy[ColumnType] = (
    st.sampled_from(list(PLAIN_TYPES.values()))
    | st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Fixed(p, s)))
    | st.lists(NAMES, min_size=1, max_size=3, unique=True).map(Enum)
)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique_by=folded))
    columns: list[Column] = []
    for name in names:
        kind = draw(TYPES)
        default = None
        if isinstance(kind, Enum) and draw(st.booleans()):
            default = kind.values[-1].encode()
        if kind.name == "string" and draw(st.booleans()):
            default = draw(st.text(st.characters(exclude_categories=["Cs"]))).encode()
        columns.append(Column(name, kind, draw(st.booleans()), default))
    return Schema(columns, is_open=draw(st.booleans()))


@given(schemas())
def test_a_schema_is_its_text(schema: Schema) -> None:
    assert parse(schema.text) == schema
    assert parse(schema.text).text == schema.text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("temp double", "temp double"),
        (" temp\tDOUBLE ,\nat TimestampTZ? ", "temp double, at timestamp?"),
        ("a bigint = 5, *", "a long = '5', *"),
        ("a decimal(10), b numeric( 10 , 2 )=1", "a decimal(10, 0), b decimal(10, 2) = '1.00'"),
        ("a enum('x', y)='x'", "a enum('x', 'y') = 'x'"),
        ("\"a b\" int, `c``d` int, \"e\"\"f\" int", "\"a b\" int, \"c`d\" int, \"e\"\"f\" int"),
        ("a string = 'it''s'", "a string = 'it''s'"),
        ("*", "*"),
    ],
)  # fmt: skip
def test_a_text_has_one_spelling(text: str, written: str) -> None:
    assert parse(text).text == written


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "name of a column at 'the end'"),
        (", a int", "name of a column"),
        ("a", "type of column 'a'"),
        ("a 'int'", "type of column 'a'"),
        ("a colour", "cannot be colour, only bool, int"),
        ("a int, ", "name of a column at 'the end'"),
        ("a int b int", "comma at 'b int'"),
        ("a int?, a long", "named twice: a"),
        ("a int, A int", "upper from lower"),
        ("a int = x", "default of column 'a', 'x', is no whole number"),
        ("a int =", "default of column 'a'"),
        ("a decimal", "decimal(10, 2)"),
        ("a decimal(x)", "decimal(10, 2)"),
        ("a decimal(3, 4)", "decimal(3, 4) is none"),
        ("a decimal(3", "comma, or"),
        ("a enum()", "argument of a type"),
        ("a enum('b', 'b')", "each of them once"),
        ("*, a int", "'*'"),
        ('a int, "', "name of a column at"),
        (",".join(f"c{at} int" for at in range(COLUMNS_MAX + 1)), "at most 1000 columns"),
        ("a string = '" + "x" * TEXT_MAX_BYTES + "'", "bytes"),
        (5, "a schema is a text"),
    ],
)
def test_an_invalid_schema_is_refused(text: str, why: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(text)
    assert why in str(refused.value)


@given(st.text("ab ,'\"`()?=*\\0\n1int", max_size=30))
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    try:
        schema = parse(text)
    except OptionError:
        return
    assert parse(schema.text) == schema


def test_three_hundred_columns_are_read() -> None:
    text = ", ".join(f"column_{at} double?" for at in range(300))
    assert parse(text).text == text
