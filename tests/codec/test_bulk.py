"""Prevents bulk loading from leaving other nodes, or taking other values, than adds one by one."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.codec import Codec, pure
from logstore.errors import EntryTypeError, InvalidEntryError, TooLargeError
from tests.codec.node_stream import ID, Node, NodeStream
from tests.codec.strategies import entries, limits, next_id, steps

numbers = st.integers(-(2**70), 2**70) | st.floats() | st.integers(-300, 300)
strings = st.text(max_size=10) | st.binary(max_size=10) | st.sampled_from(["12", "-0", "é" * 40])
values = numbers | strings
fields = st.sampled_from(["a", "b", b"a", 7, "7", 1.5, "", "ü"]) | values
dicts = st.dictionaries(fields, values, min_size=1, max_size=5)
shaped = st.fixed_dictionaries({"a": values, "b": values})
pairs = st.lists(st.tuples(fields, values), min_size=1, max_size=4)
batches = st.lists(dicts | shaped | shaped | pairs, max_size=30)


def to_bytes(value: Any) -> bytes:
    """What a value must become."""
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else repr(value).encode()


def to_flat(row: Any) -> list[bytes]:
    """What a row must become."""
    items = row.items() if isinstance(row, dict) else row
    return [to_bytes(part) for pair in items for part in pair]


@given(batch=batches)
def test_rows_become_bytes(codec: Codec, batch: list[Any]) -> None:
    rows = codec.rows(batch)
    assert len(rows) == len(batch)
    for index, row in enumerate(batch):
        assert rows.flat(index) == to_flat(row)
        assert rows.raw_bytes(index) == sum(map(len, to_flat(row)))
    with pytest.raises(IndexError):
        rows.flat(len(batch))


class Colour(enum.IntEnum):
    """An int whose str is not its digits on every Python."""

    RED = 7


class Text(str):
    """A subclass of str."""

    __slots__ = ()


@pytest.mark.parametrize(
    "row",
    [
        lambda: OrderedDict(a=1, b=2),
        lambda: MappingProxyType({"a": 1, "b": 2}),
        lambda: [("a", 1), ("b", 2)],
        lambda: (["a", Text("1")], [Text("b"), "2"]),
        lambda: iter([("a", "1"), ("b", b"2")]),
    ],
    ids=["dict subclass", "mapping", "list", "tuple of lists", "iterator"],
)
def test_all_kinds_of_rows(codec: Codec, row: Callable[[], Any]) -> None:
    assert codec.rows([row()]).flat(0) == [b"a", b"1", b"b", b"2"]


def test_numbers_have_their_shortest_form(codec: Codec) -> None:
    row = {
        "i": Colour.RED,
        "big": 10**25,
        "f": 0.1,
        "n": float("nan"),
        "m": float("-inf"),
        "z": -0.0,
    }
    row |= {"whole": 3.0, "e": 1e300, "min": -(2**63), "over": 2**63}
    texts = codec.rows([row]).flat(0)[1::2]
    assert texts == [
        *(b"7", b"1" + b"0" * 25, b"0.1", b"nan", b"-inf", b"-0.0"),
        *(b"3.0", b"1e+300", b"-9223372036854775808", b"9223372036854775808"),
    ]


@pytest.mark.parametrize("value", [True, False, None, [], {}, object(), bytearray(b"x"), 1j])
def test_other_types_are_refused_by_name_and_row(codec: Codec, value: Any) -> None:
    good = {"speed": 1}
    with pytest.raises(EntryTypeError, match=f"row 1, field 'speed'.*{type(value).__name__}"):
        codec.rows([good, {"speed": value}, good])
    if value.__hash__ is not None:
        with pytest.raises(TypeError, match="row 2, field"):
            codec.rows([good, good, {value: 1}])


@pytest.mark.parametrize("row", ["text", b"bytes", 5, None, [("a", "b", "c")], [1], ["ab"]])
def test_what_is_no_row_is_refused(codec: Codec, row: Any) -> None:
    with pytest.raises(EntryTypeError, match="row 1"):
        codec.rows([{"a": 1}, row])


@pytest.mark.parametrize("row", [{}, [], ()])
def test_an_empty_row_is_refused(codec: Codec, row: Any) -> None:
    with pytest.raises(InvalidEntryError, match="row 0: an entry needs"):
        codec.rows([row])


def test_a_text_without_utf8_form_is_refused(codec: Codec) -> None:
    for row in ({"a": "\ud800"}, {"\ud800": "a"}, {"a": 10**5000}):
        with pytest.raises(InvalidEntryError, match="row 1, field"):
            codec.rows([{"a": "x"}, row])


def test_a_row_over_a_gibibyte_is_refused(codec: Codec) -> None:
    huge = bytes(1 << 30)  # never touched, so it takes no memory
    with pytest.raises(TooLargeError, match="row 1"):
        codec.rows([{"a": 1}, {"a": huge}])
    with pytest.raises(TooLargeError, match="row 2"):
        codec.rows([{"a": 1}, {"a": 1}, [("", "1"), ("", huge)]])


def _one_by_one(codec: Codec, open_lp: bytes | None, flats: list[Any], sizes: Any) -> NodeStream:
    model = NodeStream(codec, *sizes)
    if open_lp is not None:
        model.add((1, 1), [b"x", b"1", b"y", b"2"])
        model.nodes[0].lp = open_lp
    for id, flat in flats:
        model.add(id, flat)
    return model


@settings(max_examples=150)
@given(
    drawn=st.lists(st.tuples(steps, entries), max_size=40),
    sizes=limits,
    opened=st.sampled_from([None, 0, 1, 126, 127]),
    cut=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_pack_gives_the_nodes_of_adds_one_by_one(
    codec: Codec, drawn: list[Any], sizes: tuple[int, int], opened: int | None, cut: tuple[int, int]
) -> None:
    open_lp = None
    if opened is not None:
        open_lp = pure.new_node(1, 1, [b"x", b"1", b"y", b"2"])
        for seq in range(opened):
            open_lp, _ = pure.append(open_lp, 1, 1, 1, 2 + seq, [b"x", b"1", b"y", b"2"])
        if opened:
            open_lp = pure.mark_deleted(open_lp, [0])
    ids: list[ID] = []
    for step, _ in drawn:
        ids.append(next_id(ids[-1] if ids else (1, 500), step))
    flats = [flat for _, flat in drawn]
    first, last = cut[0], max(cut[0], len(flats) - cut[1])
    batch = codec.rows([list(zip(flat[::2], flat[1::2], strict=True)) for flat in flats])
    if first > len(flats) or last > len(flats):
        with pytest.raises(ValueError, match="do not exist"):
            codec.pack(batch, first, last, ids[first:last], open_lp, 1, 1, *sizes)
        return

    packed = codec.pack(batch, first, last, ids[first:last], open_lp, 1, 1, *sizes)
    chosen = list(zip(ids[first:last], flats[first:last], strict=True))
    model = _one_by_one(codec, open_lp, chosen, sizes)

    nodes = model.nodes
    if open_lp is None:
        assert packed[:5] == (b"", 0, 0, None, None)
    else:
        assert packed.open_lp == nodes.pop(0).lp
        assert packed.added_entries + sum(node.count for node in packed.nodes) == len(chosen)
        counts = (packed.added_entries, packed.added_elements)
        assert pure.extend(open_lp, packed.added, *counts) == packed.open_lp
        if packed.added_entries:
            assert packed.last_of_added == chosen[packed.added_entries - 1][0]
        else:
            assert (packed.added, packed.last_of_added) == (b"", None)
    made = [((node.master_ms, node.master_seq), node.lp) for node in packed.nodes]
    assert made == [(node.master, node.lp) for node in nodes]
    for node in packed.nodes:
        codec.validate(node.lp, node.master_ms, node.master_seq)
        assert codec.counts(node.lp) == (node.count, 0)
        last = codec.last_id(node.lp, node.master_ms, node.master_seq)
        assert last == (node.last_ms, node.last_seq)


@pytest.mark.parametrize("opened", [0, 100, 128])
def test_the_byte_limit_is_met_exactly(codec: Codec, opened: int) -> None:
    """Every limit about where the live counter takes a byte more, at 128 entries."""
    flat = [b"f", b"v"]
    ids = [(1, seq) for seq in range(1, 161)]
    full = NodeStream(codec, 0, 0)
    for id in ids[:125]:
        full.add(id, flat)
    start = NodeStream(codec, 0, 0)
    for id in ids[:opened]:
        start.add(id, flat)
    open_lp = start.nodes[0].lp if opened else None
    batch = codec.rows([{"f": "v"}] * (160 - opened))
    sizes = len(full.nodes[0].lp)
    for limit in range(sizes, sizes + 70):
        model = NodeStream(codec, limit, 0, list(start.nodes) if opened else [])
        model.nodes = [Node(node.master, node.lp) for node in model.nodes]
        for id in ids[opened:]:
            model.add(id, flat)
        packed = codec.pack(batch, 0, len(batch), ids[opened:], open_lp, 1, 1, limit, 0)
        made = [packed.open_lp] if opened else []
        made += [node.lp for node in packed.nodes]
        assert made == [node.lp for node in model.nodes], limit


TOP = 2**64 - 1


@pytest.mark.parametrize("first", [(0, 1), (5, 0), (5, TOP - 2), (TOP, TOP - 9)])
def test_consecutive_ids_carry(codec: Codec, first: ID) -> None:
    batch = codec.rows([{"n": i} for i in range(10)])
    ids = [divmod((first[0] << 64) + first[1] + i, 1 << 64) for i in range(10)]
    packed = codec.pack(batch, 0, 10, first, None, 0, 0, 0, 4)
    assert packed == codec.pack(batch, 0, 10, ids, None, 0, 0, 0, 4)
    found = [
        (ms, seq)
        for node in packed.nodes
        for _, ms, seq in codec.ids(node.lp, node.master_ms, node.master_seq)
    ]
    assert found == ids


def test_ids_that_run_out_are_refused(codec: Codec) -> None:
    batch = codec.rows([{"n": i} for i in range(3)])
    with pytest.raises(ValueError, match="no ID is left"):
        codec.pack(batch, 0, 3, (TOP, TOP - 1), None, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="3 rows need as many IDs, not 1"):
        codec.pack(batch, 0, 3, [(1, 1)], None, 0, 0, 0, 0)


@settings(max_examples=50)
@given(batch=batches, sizes=limits)
def test_both_codecs_pack_alike(native: Codec, batch: list[Any], sizes: tuple[int, int]) -> None:
    def packed(codec: Codec) -> Any:
        return codec.pack(codec.rows(batch), 0, len(batch), (9, 0), None, 0, 0, *sizes)

    assert packed(pure) == packed(native)


def test_keys_that_are_gone_are_not_taken_for_others(codec: Codec) -> None:
    """Rows made on the fly: their keys' memory is used again for other names."""

    def stream(name: Callable[[int], str]) -> list[list[bytes]]:
        rows = codec.rows({name(i): i, f"{name(i)}-2": i} for i in range(2000))
        return [rows.flat(i) for i in range(2000)]

    assert stream(str) == [[b"%d" % i, b"%d" % i, b"%d-2" % i, b"%d" % i] for i in range(2000)]
    assert {tuple(flat[::2]) for flat in stream(lambda i: f"k{i % 2}")} == {
        (b"k0", b"k0-2"),
        (b"k1", b"k1-2"),
    }
