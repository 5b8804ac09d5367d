"""Prevents bulk loading, and given IDs, from leaving other nodes than adds one by one."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.codec import Codec, pure
from logstore.codec.given_ids import RUNS_A_BLOCK
from logstore.errors import EntryTypeError, InvalidEntryError, InvalidIDError, TooLargeError
from logstore.ids import U64_MAX, StreamID, parse_id
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
def test_malformed_bulk_rows_are_refused(codec: Codec, row: Any) -> None:
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


as_numbers = st.sampled_from([0, 1, 127, 128, 2**63, U64_MAX - 1, U64_MAX]) | st.integers(0, 500)
ids = st.tuples(as_numbers, as_numbers)
FIELDS: dict[str, str] = {"a": "1"}


class Number(int):
    """A subclass of int."""


@pytest.mark.parametrize(
    ("id", "wanted"),
    [
        ("5-7", (5, 7)), (b"5-7", (5, 7)), ("5", (5, 0)), (b"5", (5, 0)),
        ((5, 7), (5, 7)), (StreamID(5, 7), (5, 7)), (Text("5-7"), (5, 7)),
        ((Number(5), 7), (5, 7)), ("005-07", (5, 7)),
        (f"{U64_MAX}-{U64_MAX}", (U64_MAX, U64_MAX)), ("0" * 60 + "9", (9, 0)),
        ((U64_MAX, U64_MAX), (U64_MAX, U64_MAX)), (f"{10**19 - 1}", (10**19 - 1, 0)),
        (datetime.fromtimestamp(5, UTC), (5000, 0)), ("0-0", (0, 0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("fields", [FIELDS, [("a", "1")]])
def test_every_form_of_a_row_is_packed(
    codec: Codec, id: Any, wanted: tuple[int, int], fields: Any
) -> None:
    found, rest = codec.given([(id, fields), ((7, 7), fields)], 0)
    assert [found[0], found[1]] == [wanted, (7, 7)]
    assert rest == [fields, fields]
    assert len(found) == 2
    with pytest.raises(IndexError):
        found[2]


@pytest.mark.parametrize(
    "id",
    [
        "", "-", "5-", "-5", "x", "5-x", "5--1", "+5", " 5", "5\n", "٣", "5*", "*", "*-*", "5-**",
        f"{U64_MAX + 1}", f"5-{U64_MAX + 1}", "9" * 128, f"{10**19}{0}", b"\xff", -1, U64_MAX + 1,
        (-1, 0), (0, U64_MAX + 1), (True, 0), True, "-*", "x-*",
    ],
)  # fmt: skip
def test_bulk_rows_with_an_invalid_id_are_refused(codec: Codec, id: Any) -> None:
    with pytest.raises(InvalidIDError):
        codec.given([((1, 0), FIELDS), (id, FIELDS)], 0)


@pytest.mark.parametrize(
    "row",
    [
        FIELDS, [("a", "1")], ("a", "1"), (("a", "1"), ("b", "2")), (1.5, FIELDS), ((1,), "x"),
        (None, FIELDS), ((1, 0), FIELDS, 3), ((1, 0), (("a", "1"),)), ("1-1", "a"), 7, None,
        (("1", "2"), FIELDS),
    ],
)  # fmt: skip
def test_a_row_without_an_id_is_named(codec: Codec, row: Any) -> None:
    with pytest.raises(InvalidEntryError, match="row 1001: give every row of one call an ID"):
        codec.given([((1, 0), FIELDS), (row)], 1000)


def model_of_settle(
    last: tuple[int, int], rows: list[tuple[tuple[int, int], bool]]
) -> tuple[int, list[tuple[int, int]]]:
    """What adds one by one would do."""
    settled: list[tuple[int, int]] = []
    for place, ((ms, seq), is_open) in enumerate(rows):
        if is_open and ms == last[0]:
            if last[1] == U64_MAX:
                return place, settled
            seq = last[1] + 1  # noqa: PLW2901
        elif is_open:
            seq = 0  # noqa: PLW2901
        if (ms, seq) <= last:
            return place, settled
        last = (ms, seq)
        settled.append(last)
    return -1, settled


@given(
    last=ids, again=ids, rows=st.lists(st.tuples(ids, st.booleans()), max_size=20),
    ascending=st.booleans(),
)  # fmt: skip
def test_settling_is_adding_one_by_one(
    codec: Codec, last: Any, again: Any, rows: Any, ascending: bool
) -> None:
    rows = sorted(rows) if ascending else rows
    found, _ = codec.given([(f"{id[0]}-*" if is_open else id, FIELDS) for id, is_open in rows], 0)
    for before in (last, (0, 0), again):  # a commit may be decided again
        place, settled = model_of_settle(before, rows)
        assert found.settle(*before) == place
        assert [found[i] for i in range(len(settled))] == settled
    if place < 0:
        for at in range(len(settled) + 1):
            rest = found.since(at)
            assert [rest[i] for i in range(len(rest))] == settled[at:]


@given(rows=st.lists(ids, min_size=1, max_size=30, unique=True))
def test_packing_takes_them(codec: Codec, rows: list[tuple[int, int]]) -> None:
    rows.sort()
    found, fields = codec.given([(id, {"n": n}) for n, id in enumerate(rows)], 0)
    batch = codec.rows(fields)
    packed = codec.pack(batch, 0, len(rows), found, None, 0, 0, 4096, 7)
    assert packed == pure.pack(pure.rows(fields), 0, len(rows), rows, None, 0, 0, 4096, 7)
    with pytest.raises(ValueError, match="need as many IDs"):
        codec.pack(batch, 0, len(rows), found.since(1), None, 0, 0, 4096, 7)


runs = st.tuples(as_numbers, as_numbers, st.integers(1, 3) | st.sampled_from([1000, 2**40]))


def everything(found: Any) -> list[tuple[int, int, int]]:
    """All runs, and a look at the counts."""
    told: list[tuple[int, int, int]] = []
    for block in range(found.block_count):
        assert found.before(block) == sum(run[2] for run in told)
        told += found.block(block)
    return told


@settings(deadline=None)
@given(puts=st.lists(runs | ids, max_size=40), times=st.sampled_from([1, 1, 1, 30]))
def test_runs_are_told_as_they_were_put(codec: Codec, puts: list[Any], times: int) -> None:
    found = codec.RunList()
    model: list[tuple[int, int, int]] = []
    for put in puts * times:
        if len(put) == 2:
            found.put_given(codec.given([(put, FIELDS)], 0)[0])
        else:
            found.put(*put)
        ms, seq, count = (*put, 1)[:3]
        if model and model[-1][0] == ms and model[-1][1] + model[-1][2] == seq:
            model[-1] = (ms, model[-1][1], model[-1][2] + count)
        else:
            model.append((ms, seq, count))
    assert everything(found) == model
    assert len(found) == sum(run[2] for run in model)
    for outside in (-1, found.block_count):
        with pytest.raises(IndexError):
            found.block(outside)
        with pytest.raises(IndexError):
            found.before(outside)


@pytest.mark.parametrize("count", [RUNS_A_BLOCK + extra for extra in (-1, 0, 1, 2, RUNS_A_BLOCK)])
def test_the_ends_of_blocks(codec: Codec, count: int) -> None:
    found = codec.RunList()
    for n in range(count):
        found.put(n, n, 1)
    assert everything(found) == [(n, n, 1) for n in range(count)]
    assert found.block_count == -(-count // RUNS_A_BLOCK)


def test_an_id_costs_a_few_bytes(codec: Codec) -> None:
    rows = [((1_700_000_000_000 + 37 * n, n % 3), FIELDS) for n in range(10_000)]
    found = codec.RunList()
    found.put_given(codec.given(rows, 0)[0])
    assert len(everything(found)) == len(rows)
    assert found.nbytes <= 4 * len(rows)


def test_text_is_parsed_as_everywhere(codec: Codec) -> None:
    for text in ("1-2", "12", "0012-0034", "18446744073709551615-1", "9999999999999999999-3"):
        for id in (text, text.encode()):
            found, _ = codec.given([(id, FIELDS)], 0)
            assert found[0] == parse_id(id)
