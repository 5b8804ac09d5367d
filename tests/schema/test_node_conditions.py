"""Prevents a node that is left out by its statistics though an entry of it matches; and statistics
that leave out nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.codec import codec
from logstore.codec.column_keys import ColumnRange, key_of, ranged_column
from logstore.codec.node_filter import ALL_NODES
from logstore.log.statsfile import joined
from logstore.schema.schema_text import parse as parse_schema
from logstore.schema.stream_schema import Schema
from logstore.where.condition_binding import Binding, Column
from logstore.where.condition_text import parse
from logstore.where.entry_conditions import EntryCondition
from logstore.where.filter_conditions import bytes_test, filter_test
from logstore.where.node_conditions import node_test
from tests.schema.drawn_conditions import COLUMNS, Said, combined, compared, like


def bound(schema: Schema, where: str) -> Any:
    """The tree of a condition on a stream with this schema."""
    columns = {
        each.name: Column(each.name, each.type, field=each.field, typed=True)
        for each in schema.columns
    }
    return Binding(columns.get, "those", kept=True).bound(where, parse(where))


def finder_of(schema: Schema) -> Any:
    """What finds the ranges and the filters of nodes."""
    columns = [ranged_column(each.field, each.type) for each in schema.columns]
    return codec().RangeFinder([each for each in columns if each is not None], True)


def node_of(rows: list[list[bytes]]) -> bytes:
    """A node with these entries."""
    batch = codec().rows([list(zip(row[::2], row[1::2], strict=True)) for row in rows])
    return codec().pack(batch, 0, len(rows), (5, 0), None, 0, 0, 1 << 20, 1 << 20).nodes[0].lp


def told_of(schema: Schema, rows: list[list[bytes]]) -> list[ColumnRange | None]:
    """The ranges of a node with these entries."""
    found: list[ColumnRange | None] = finder_of(schema).of(node_of(rows))[1]
    return found


def columns_of(schema: Schema) -> list[tuple[bytes, str]]:
    """The columns that have ranges, as statistics name them."""
    return [
        (each.field, each.type.name)
        for each in schema.columns
        if ranged_column(each.field, each.type) is not None
    ]


@st.composite
def asked(draw: st.DrawFn) -> tuple[Schema, list[list[list[bytes]]], str]:
    """A schema, the entries of two nodes, and a condition."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=2, unique=True))
    schema = parse_schema(", ".join(f"{name} {COLUMNS[name].kind}?" for name in names))
    nodes = []
    for _ in range(2):
        rows = []
        for _ in range(draw(st.integers(1, 3))):
            row = {name: draw(st.none() | COLUMNS[name].values) for name in names}
            flat = [(b"other", b""), *schema.row(row.items())]
            rows.append([part for pair in flat for part in pair])
        nodes.append(rows)
    leaves: list[st.SearchStrategy[Said]] = [
        compared(name, name, COLUMNS[name].literals) for name in names
    ]
    leaves += [like(name, name) for name in names if name in ("note", "level")]
    return schema, nodes, draw(combined(st.one_of(leaves))).ours


@given(asked())
def test_no_node_with_an_entry_that_matches_is_left_out(
    case: tuple[Schema, list[list[list[bytes]]], str],
) -> None:
    schema, nodes, where = case
    tree = bound(parse_schema(schema.text), where)
    test = node_test(tree, columns_of(schema))
    if test is None:
        return
    told = [told_of(schema, rows) for rows in nodes]
    condition = EntryCondition(tree, "s")
    any_matches = False
    for rows, ranges in zip(nodes, told, strict=True):
        matches = any(condition.matches(1, 1, row) for row in rows)
        any_matches = any_matches or matches
        assert test(ranges) or not matches
    keys = [
        key_of(found)
        for each in schema.columns
        if (found := ranged_column(each.field, each.type)) is not None
    ]
    block = [joined([ranges[at] for ranges in told], key) for at, key in enumerate(keys)]
    assert test(block) or not any_matches


@given(asked())
def test_filters_name_each_node_with_an_entry_that_matches(
    case: tuple[Schema, list[list[list[bytes]]], str],
) -> None:
    schema, nodes, where = case
    tree = bound(parse_schema(schema.text), where)
    finder = finder_of(schema)
    for rows in nodes:
        finder.of(node_of(rows))
    filters = finder.filters()
    condition = EntryCondition(tree, "s")
    test = filter_test(tree, columns_of(schema))
    for at, rows in enumerate(nodes):
        for row in rows:
            flat = row[: 2 * (len(row) // 2)]
            same = bytes_test(flat, columns_of(schema))
            assert same is None or same(filters) >> at & 1
            if test is not None and condition.matches(1, 1, row):
                assert test(filters) >> at & 1


@pytest.mark.parametrize(
    ("column", "values", "where", "named"),
    [
        ("n int?", ["3", "5"], ["n = 3", "n = 3.0", "n in (3, 9)", "n = 3 or n = 8",
         "n = 3 and n > 1"], 0b01),
        ("n int?", ["3", "5"], ["n = 4", "n in (1, 2)", "n = 4 and n != 9", "n = 1 or n = 2"], 0),
        ("n int?", ["3", "5"], ["n != 3", "n > 3", "n not in (3)", "n is null", "not n = 3",
         "n = 4 or n > 9"], None),
        ("n string", ["x", "1"], ["n = 'x'"], 0b01),
        ("n string", ["x", "1"], ["n = '1'"], 0b10),
        ("n string", ["x", "1"], ["n like 'x%'"], None),
        ("n enum('a', 'b', 'c')", ["a", "b"], ["n = 'c'"], 0),
        ("n uuid", ["0000000a-0000-0000-0000-00000000000b"],
         ["n = '0000000A-0000-0000-0000-00000000000B'"], 0b1),
        ("n uuid", ["0000000a-0000-0000-0000-00000000000b"],
         ["n = '0000000A-0000-0000-0000-00000000000C'"], 0),
        ("n double", ["1", "2"], ["n = 1"], None),
        ("n timestamp", ["2026-01-02 00:00:00.000000Z"], ["n = '2026-01-02'"], None),
    ],
)  # fmt: skip
def test_nodes_that_filters_name(
    column: str, values: list[str], where: list[str], named: int | None
) -> None:
    schema = parse_schema(column)
    finder = finder_of(schema)
    for each in values:
        finder.of(node_of([[b"other", b"", b"n", each.encode()]]))
    filters = finder.filters()
    for text in where:
        test = filter_test(bound(schema, text), columns_of(schema))
        assert (test is None) == (named is None), text
        if test is not None:
            assert test(filters) == named, text
            assert test([None] * len(filters)) == ALL_NODES


@pytest.mark.parametrize(
    ("column", "values", "where", "may"),
    [
        ("n int?", ["3", "7"], ["n = 5", "n != 5", "n < 4", "n <= 3", "n > 6", "n >= 7",
         "n in (1, 3)", "n not in (3)", "n is not null", "n = 5 or n = 99", "not n > 3"], True),
        ("n int?", ["3", "7"], ["n = 8", "n < 3", "n <= 2.5", "n > 7", "n >= 8", "n in (1, 2)",
         "n is null", "n > 1 and n > 8", "n = 1 or n = 99", "not n > 2", "false"], False),
        ("n int?", ["5", "5"], ["n != 5", "n not in (5, 6)", "n > 5"], False),
        ("n long", ["-9223372036854775808", "0"], ["n > 0", "n = 1"], False),
        ("n double", ["-0.5", "1e3"], ["n > 1000", "n < -0.5"], False),
        ("n double", ["9", "10"], ["n = 9.5", "n > 9"], True),
        ("n decimal(6, 2)", ["9.50", "10.00"], ["n > 10", "n < 9.5", "n = 11"], False),
        ("n string", ["b", "d"], ["n < 'b'", "n = 'a'", "n >= 'e'"], False),
        ("n string", ["b", "d"], ["n = 'c'", "n like 'z%'", "n < 'c'"], True),
        ("n bool", ["true", "true"], ["n = false", "not n"], False),
        ("n date", ["2026-01-02", "2026-01-03"], ["n > date '2026-01-03'"], False),
        ("n timestamp", ["2026-01-02 00:00:00.000000Z"], ["n > timestamp '2026-01-02'",
         "n < '2026-01-02'"], False),
        ("n time", ["12:00:00.000000"], ["n > time '12:00'"], False),
        ("n enum('low', 'high')", ["low"], ["n = 'high'"], False),
        ("n int?", [None, None], ["n = 1", "n is not null", "n != 1"], False),
        ("n int?", [None, None], ["n is null"], True),
        ("n int?", [None, "5"], ["n is null", "n = 5"], True),
    ],
)  # fmt: skip
def test_nodes_that_may_match(
    column: str, values: list[str | None], where: list[str], may: bool
) -> None:
    schema = parse_schema(column)
    rows = [
        [b"other", b"", *([b"n", each.encode()] if each is not None else [])] for each in values
    ]
    for text in where:
        test = node_test(bound(schema, text), columns_of(schema))
        assert test is not None
        assert test(told_of(schema, rows)) == may, text


def test_nothing_is_told_of_a_column_that_was_another_type() -> None:
    schema = parse_schema("n int, note string")
    tree = bound(schema, "n = 5")
    assert node_test(tree, []) is None
    assert node_test(tree, [(b"n", "string")]) is None
    assert node_test(tree, [(b"m", "int")]) is None
    assert node_test(tree, [(b"n", "long")]) is None  # to an int, some of these are null
    assert node_test(tree, [(b"m", "long"), (b"n", "int")]) is not None
    wide = bound(parse_schema("n long, note string"), "n = 5")
    assert node_test(wide, [(b"m", "int"), (b"n", "int")]) is not None
    assert node_test(bound(schema, "note like 'a%' or n = 5"), [(b"n", "int")]) is None


def test_a_block_knows_what_all_of_its_nodes_know() -> None:
    column = ranged_column(b"n", parse_schema("n int").columns[0].type)
    assert column is not None
    key = key_of(column)
    ranges = [ColumnRange(1, b"9", b"10"), ColumnRange(0, b"-3", b"2"), ColumnRange(2, None, None)]
    assert joined(ranges, key) == ColumnRange(3, b"-3", b"10")
    assert joined([*ranges, None], key) is None
    assert joined(ranges[2:], key) == ColumnRange(2, None, None)
