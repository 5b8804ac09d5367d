"""Prevents a filter that lacks a node with the value: an entry that is not found."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.codec import Codec, node_filter, pure
from logstore.codec.column_keys import FILTERED_KINDS, kind_of, ranged_column
from logstore.codec.node_filter import ALL_NODES, EMPTY, NODES_MAX
from logstore.errors import CorruptNodeError
from logstore.schema.column_types import ColumnType, Enum
from logstore.schema.schema_text import parse
from tests.codec.column_nodes import Pairs, columns_of, node_of, values_of
from tests.schema.drawn_values import TEXTS, VALUES

KINDS = [kind for kind in VALUES if kind_of(kind) in FILTERED_KINDS]
ODD = TEXTS.map(str.encode) | st.binary(max_size=70) | st.sampled_from(
    [b"05", b"1", b"1.0", b"-0", b"0", b"+1", b"x" * 65, b"\xff"]
)  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(range(40)), st.integers(0, NODES_MAX - 1)), max_size=300),
    st.integers(0, 5),
)
def test_each_node_is_named(codec: Codec, drawn: list[tuple[int, int]], absent: int) -> None:
    pairs = sorted(
        ((codec.filter_hash(str(text).encode()), node) for text, node in drawn),
        key=lambda pair: pair[1],
    )
    made = node_filter.made(pairs)
    for hashed in {hashed for hashed, _ in pairs} | {pure.filter_hash(b"absent %d" % absent)}:
        found = codec.nodes_with(made, hashed)
        assert found == pure.nodes_with(made, hashed)
        for each, node in pairs:
            assert each != hashed or found >> node & 1


def test_a_filter_is_about_a_byte_a_value_and_names_few_nodes_for_nothing(codec: Codec) -> None:
    pairs = [
        (codec.filter_hash(b"value %d" % (node * 65 + n)), node)
        for node in range(64)
        for n in range(65)
    ]
    made = node_filter.made(pairs)
    assert len(made) <= len(pairs) + node_filter._HEAD.size
    asked = [codec.nodes_with(made, codec.filter_hash(b"absent %d" % n)) for n in range(500)]
    assert sum(each.bit_count() for each in asked) < 500 * 1.5
    few = [(codec.filter_hash(b"%d" % (n % 4)), n // 65) for n in range(64 * 65)]
    assert len(node_filter.made(few)) < 64 * 4 * 1.1 + 128


@given(
    st.binary(max_size=40) | st.integers(0, 60).flatmap(
        lambda size: st.tuples(
            st.integers(0, 2 * size).map(lambda n: n.to_bytes(4, "little")),
            st.integers(0, size).map(lambda n: n.to_bytes(4, "little")),
            st.binary(min_size=size, max_size=size),
        ).map(b"".join)
    ),
    st.integers(0, (1 << 32) - 1),
)  # fmt: skip
def test_bytes_that_are_no_filter_name_every_node(codec: Codec, data: bytes, hashed: int) -> None:
    assert codec.nodes_with(data, hashed) == pure.nodes_with(data, hashed)


@pytest.mark.parametrize(
    "data",
    [b"", EMPTY[:7], EMPTY + b"\0", b"\xff" * 8, b"\xff" * 16, b"\1\0\0\0\1\0\0\0\0",
     b"\1\0\0\0\1\0\0\0\3", b"\0\0\0\0\1\0\0\0\1"],
)  # fmt: skip
def test_a_damaged_filter_names_every_node(codec: Codec, data: bytes) -> None:
    assert codec.nodes_with(data, 7) == ALL_NODES
    assert codec.nodes_with(EMPTY, 7) == 0


@given(data=st.data())
def test_damage_is_told_alike(codec: Codec, data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=40))
    made = bytearray(node_filter.made([(pure.filter_hash(b"%d" % n), 3) for n in texts]))
    made[data.draw(st.integers(0, len(made) - 1))] ^= data.draw(st.integers(1, 255))
    for n in range(31):
        hashed = pure.filter_hash(b"%d" % n)
        assert codec.nodes_with(bytes(made), hashed) == pure.nodes_with(bytes(made), hashed)


@given(data=st.data())
def test_filters_have_what_readers_read(codec: Codec, data: st.DataObject) -> None:
    names = (b"n", b"7", b"\xc3\xb6")
    kinds: dict[bytes, ColumnType] = {
        name: data.draw(st.sampled_from(KINDS)) for name in names[: data.draw(st.integers(1, 3))]
    }
    odd = data.draw(st.booleans())
    finder = codec.RangeFinder(columns_of(kinds), True)
    twin = pure.RangeFinder(columns_of(kinds), True)
    nodes: list[list[dict[bytes, bytes]]] = []
    for _ in range(data.draw(st.integers(1, 4))):
        rows: list[Pairs] = []
        for _ in range(data.draw(st.integers(1, 5))):
            row: Pairs = []
            for name in data.draw(st.lists(st.sampled_from(names), max_size=4)):
                kind = kinds.get(name, KINDS[0])
                texts = VALUES[kind].map(kind.write)
                row.append((name, data.draw(texts | ODD if odd else texts)))
            rows.append(row)
        deleted = data.draw(st.lists(st.integers(0, len(rows) - 1), unique=True))
        lp = node_of(codec, rows, deleted)
        assert finder.of(lp) == twin.of(lp)
        nodes.append([dict(row) for at, row in enumerate(rows) if at not in deleted])
    found = finder.filters()
    assert found == twin.filters()
    for (name, kind), each in zip(kinds.items(), found, strict=True):
        for at, live in enumerate(nodes):
            for value in values_of(kind, [row.get(name) for row in live]):
                if value is not None and each is not None:
                    hashed = codec.filter_hash(kind.write(value))
                    assert codec.nodes_with(each, hashed) >> at & 1
        if not odd:
            assert each is not None
    assert finder.filters() == [EMPTY] * len(kinds)  # begun anew


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("string", b"x" * 1000, True),
        ("string", b"", True),
        ("string", b"1", True),
        ("string", b"\xff", False),
        ("int", b"1", True),
        ("int", b"01", False),
        ("int", b"-0", False),
        ("int", b"2147483648", False),
        ("long", b"-9223372036854775808", True),
        ("long", b"9223372036854775808", False),
        ("uuid", b"0000000a-0000-0000-0000-00000000000b", True),
        ("uuid", b"0000000A-0000-0000-0000-00000000000b", False),
        ("uuid", b"0000000a00000000000000000000000b", False),
        ("enum('a', 'b')", b"a", True),
        ("enum('a', 'b')", b"c", False),
        ("double", b"1", False),
        ("decimal(3, 1)", b"1.0", False),
        ("bool", b"true", False),
        ("timestamp", b"2026-11-30 12:00:00.000000Z", False),
    ],
)
def test_texts_that_filters_have(codec: Codec, kind: str, text: bytes, *, told: bool) -> None:
    of = parse(f"n {kind}").columns[0].type
    finder = codec.RangeFinder(columns_of({b"n": of}), True)
    finder.of(node_of(codec, [[(b"n", b"b" if isinstance(of, Enum) else b"0")]], []))
    finder.filters()
    finder.of(node_of(codec, [[(b"n", text)], [(b"other", b"x")]], []))
    (found,) = finder.filters()
    assert (found is not None) == told
    if found is not None:
        assert codec.nodes_with(found, codec.filter_hash(text)) == 1
    assert codec.RangeFinder(columns_of({b"n": of})).filters() == [None]


def test_a_uuid_is_compared_as_its_text_is() -> None:
    of = parse("n uuid").columns[0].type
    assert ranged_column(b"n", of) is not None
    assert of.write(UUID(int=255)) == of.write("00000000-0000-0000-0000-0000000000FF")


def test_no_more_nodes_than_there_are_numbers(codec: Codec) -> None:
    finder = codec.RangeFinder(columns_of({b"n": parse("n int").columns[0].type}), True)
    lp = node_of(codec, [[(b"n", b"5")]], [])
    damaged: Any = lp[:-5] + b"\x00" * 5
    for _ in range(NODES_MAX - 1):
        finder.of(lp)
    with pytest.raises(CorruptNodeError):
        finder.of(damaged)  # it has a number, too
    (found,) = finder.filters()
    assert found is not None
    assert codec.nodes_with(found, codec.filter_hash(b"5")) | 1 << 63 == ALL_NODES
    for _ in range(NODES_MAX + 1):
        finder.of(lp)
    assert finder.filters() == [None]
    for _ in range(300):
        finder.of(lp)
    assert finder.filters() == [None]
    finder.of(lp)
    assert finder.filters() != [None]
