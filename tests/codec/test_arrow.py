"""Prevents columns that Arrow or Spark refuse, or that tell other values than the entries."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.codec import ARROW_COLUMNS, EXACT_COLUMNS, MAX_ID, Codec, pure
from logstore.codec.arrow_builder import NameGuard
from logstore.errors import CorruptNodeError, EntryTypeError, InvalidEntryError, OptionError
from tests.codec.strategies import entries, next_id, steps
from tests.support.processes import run_program

TOP = 2**64 - 1
YEAR_10000_MS = 253402300800000


def _node(codec: Codec, *added: tuple[tuple[int, int], list[bytes]]) -> tuple[bytes, int, int]:
    master, flat = added[0]
    lp = codec.new_node(*master, flat)
    for id, flat in added[1:]:
        lp, _ = codec.append(lp, *master, *id, flat)
    return lp, *master


def _drawn(drawn: list[Any]) -> tuple[tuple[bytes, int, int], tuple[int, int]]:
    """A node of entries that were drawn with the steps between their IDs; the last ID."""
    id = (1, 1)
    added = [(id, drawn[0][1])]
    for step, flat in drawn[1:]:
        id = next_id(id, step)
        added.append((id, flat))
    return _node(pure, *added), id


def _batch(codec: Codec, *nodes: tuple[bytes, int, int], **options: Any) -> pa.RecordBatch:
    builder = codec.ArrowBuilder(**options)
    for node in nodes:
        builder.add(b"s", *node)
    batch = builder.finish()
    batch.validate(full=True)
    return batch


def test_the_types_are_those_that_spark_takes(codec: Codec) -> None:
    schema = _batch(codec, _node(codec, ((1, 1), [b"f", b"v"])), field_columns=["f"]).schema
    assert schema.names == [*ARROW_COLUMNS, "f"]
    assert schema.types == [
        *(pa.string(), pa.string(), pa.int64(), pa.int64(), pa.timestamp("us", tz="UTC")),
        *(pa.map_(pa.string(), pa.string()), pa.binary()),
        pa.list_(pa.struct([("field", pa.string()), ("value", pa.string())])),
        pa.string(),
    ]
    kind = schema.field("fields").type
    assert (kind.key_field.name, kind.item_field.name) == ("key", "value")
    assert (kind.key_field.nullable, kind.item_field.nullable) == (False, True)
    assert not kind.keys_sorted
    schema = _batch(codec, field_columns=["f"], binary=True).schema
    assert schema.field("fields").type == pa.map_(pa.string(), pa.binary())
    assert schema.field("f").type == pa.binary()
    assert schema.field("id").type == pa.string()


def test_the_values(codec: Codec) -> None:
    node = _node(
        codec,
        ((1000, 1), [b"a", b"1", b"b", b"x"]),
        ((1001, TOP), [b"a", b"-5", b"b", b""]),
        ((YEAR_10000_MS - 1, 0), [b"c", b"1", b"c", b"2"]),
        ((YEAR_10000_MS, 2**63 - 1), [b"a", b"3"]),
        ((2**63, 2**63), [b"b", b"4"]),
        ((TOP, TOP), [b"a", b"5", b"b", b"6"]),
    )
    columns = _batch(
        codec, node, columns=(*ARROW_COLUMNS, *EXACT_COLUMNS), field_columns=["a", "c", "none"]
    ).to_pydict()
    assert columns["stream"] == ["s"] * 6
    assert columns["id"] == [
        *("1000-1", f"1001-{TOP}", f"{YEAR_10000_MS - 1}-0", f"{YEAR_10000_MS}-{2**63 - 1}"),
        *(f"{2**63}-{2**63}", f"{TOP}-{TOP}"),
    ]
    assert columns["ms"] == [1000, 1001, YEAR_10000_MS - 1, YEAR_10000_MS, None, None]
    assert columns["seq"] == [1, None, 0, 2**63 - 1, None, None]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert columns["ts"] == [
        epoch + dt.timedelta(milliseconds=1000),
        epoch + dt.timedelta(milliseconds=1001),
        epoch + dt.timedelta(milliseconds=YEAR_10000_MS - 1),
        *(None, None, None),
    ]
    assert columns["fields"] == [
        *([("a", "1"), ("b", "x")], [("a", "-5"), ("b", "")], [("c", "2")]),
        *([("a", "3")], [("b", "4")], [("a", "5"), ("b", "6")]),
    ]
    assert [[tuple(pair.values()) for pair in row] for row in columns["pairs"]] == [
        *([("a", "1"), ("b", "x")], [("a", "-5"), ("b", "")], [("c", "1"), ("c", "2")]),
        *([("a", "3")], [("b", "4")], [("a", "5"), ("b", "6")]),
    ]
    ids = list(zip(columns["ms_exact"], columns["seq_exact"], strict=True))
    assert [f"{ms}-{seq}" for ms, seq in ids] == columns["id"]
    assert columns["id_key"] == [ms.to_bytes(8, "big") + seq.to_bytes(8, "big") for ms, seq in ids]
    assert columns["a"] == ["1", "-5", None, "3", None, "5"]
    assert columns["c"] == [None, None, "2", None, None, None]
    assert columns["none"] == [None] * 6


@pytest.mark.parametrize(
    "selection",
    [list(pick) for size in (0, 1, 2) for pick in itertools.permutations(ARROW_COLUMNS, size)],
    ids=lambda pick: "+".join(pick) or "none",
)
def test_any_selection_of_columns(codec: Codec, selection: list[str]) -> None:
    node = _node(codec, ((1, 1), [b"a", b"1"]), ((2, 0), [b"b", b"2"]))
    full = _batch(codec, node, node)
    some = _batch(codec, node, node, columns=selection)
    assert some.schema.names == selection
    assert some.num_rows == 4
    for name in selection:
        assert some.column(name).equals(full.column(name))


INVALID = [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe0\x80\x80"]


INVALID += [b"ok \xf0\x9f\x98 cut", b"\x80" * 9, b"abcdefgh\xc3(", b"\xf8\x88\x80\x80\x80"]


VALID = ["", "plain", "é", "€", "😀", "\ud7ff\ue000", "\U0010ffff", "x" * 7 + "é" * 9, "\x00"]


@pytest.mark.parametrize("text", [*INVALID, *(text.encode() for text in VALID)])
def test_invalid_utf8_is_replaced_in_text_and_kept_in_binary(codec: Codec, text: bytes) -> None:
    node = _node(codec, ((1, 1), [text, text, b"f", text]), ((1, 2), [b"f", text, text, text]))
    builder = codec.ArrowBuilder(("stream", "fields"), ("f",))
    builder.add(text, *node)
    batch = builder.finish()
    batch.validate(full=True)
    shown = text.decode("utf-8", "replace")
    assert batch.to_pydict() == {
        "stream": [shown, shown],
        "fields": [
            list({shown: shown, "f": shown}.items()),
            list({"f": shown, shown: shown}.items()),
        ],
        "f": [shown, shown],
    }
    columns = _batch(codec, node, columns=["fields"], field_columns=["f"], binary=True).to_pydict()
    assert columns["f"] == [text, text]
    assert columns["fields"][0] == [(shown, text), ("f", text)]


REPEATS = {
    "none": [[b"a", b"1", b"b", b"2"]] * 3,
    "in the node": [[b"a", b"1", b"b", b"2", b"a", b"3"]] * 3,
    "in one entry": [[b"a", b"1"], [b"b", b"1", b"b", b"2", b"b", b"3", b"c", b"4"], [b"a", b"5"]],
    "as numbers": [[b"7", b"1", b"07", b"2", b"7", b"3"], [b"-1", b"1", b"-1", b"2"]],
    "as text": [[b"\xff", b"1", b"\xfe", b"2", b"a", b"3"], [b"a", b"1"]],
    "of many": [[b"%d" % (n % 40) for n in range(200)], [b"%d" % n for n in range(200)]],
    "empty names": [[b"", b"1", b"", b"2"], [b"a", b"", b"a", b""]],
}


@pytest.mark.parametrize("columns", [("fields",), ("fields", "pairs"), ("pairs",)])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("rows", REPEATS.values(), ids=REPEATS)
def test_the_last_of_repeated_fields_counts(
    codec: Codec, rows: list[list[bytes]], binary: bool, columns: tuple[str, ...]
) -> None:
    node = _node(codec, *(((1, seq), flat) for seq, flat in enumerate(rows, 1)))
    plain = _node(codec, ((1, 1), [b"x", b"y"]))
    builder = codec.ArrowBuilder(columns, (), binary)
    for each in (plain, node, plain):
        builder.add(b"s", *each)
    with pytest.raises(CorruptNodeError):  # takes back what it added, also a first repetition
        builder.add(b"s", node[0][:-4] + b"\x09" + node[0][-3:], *node[1:])
    builder.add(b"s", *plain)
    batch = builder.finish()
    batch.validate(full=True)
    edge = [[(b"x", b"y")]]
    pairs = [list(zip(flat[::2], flat[1::2], strict=True)) for flat in rows]
    wanted = [
        [(name.decode("utf-8", "replace"), value if binary else value.decode("utf-8", "replace"))
         for name, value in row]
        for row in [*edge, *pairs, *edge, *edge]
    ]  # fmt: skip
    found = batch.to_pydict()
    if "pairs" in columns:
        assert [[tuple(pair.values()) for pair in row] for row in found["pairs"]] == wanted
    if "fields" in columns:
        assert found["fields"] == [list(dict(row).items()) for row in wanted]


def test_a_first_repetition_is_taken_back_with_its_node(codec: Codec) -> None:
    good = _node(codec, ((1, 1), [b"a", b"1"]), ((1, 2), [b"b", b"2"]))
    lp, *master = _node(codec, ((1, 1), [b"r", b"1", b"r", b"2"]), ((1, 2), [b"b", b"2"]))
    builder = codec.ArrowBuilder(("fields", "pairs"))
    builder.add(b"s", *good)
    with pytest.raises(CorruptNodeError):
        builder.add(b"s", lp[:-4] + b"\x09" + lp[-3:], *master)
    for node in (good, (lp, *master), good):
        builder.add(b"s", *node)
    batch = builder.finish()
    batch.validate(full=True)
    wanted = _batch(codec, good, good, (lp, *master), good, columns=("fields", "pairs"))
    assert batch.equals(wanted)


def test_ranges_and_vectors(codec: Codec) -> None:
    node = _node(codec, *(((1, seq), [b"n", b"%d" % seq]) for seq in range(20)))
    builder = codec.ArrowBuilder(["seq"])
    assert builder.add(b"s", *node, b"\x60\x01", (1, 4), (1, 9)) == 3
    assert builder.add(b"s", *node, b"", (2, 0), MAX_ID) == 0
    assert builder.add(b"s", *node, b"\xff\xff\x0f") == 0
    assert builder.rows == 3
    assert builder.finish().to_pydict() == {"seq": [4, 7, 9]}
    assert builder.rows == 0


def test_a_node_that_fails_adds_nothing(codec: Codec) -> None:
    lp, *master = _node(codec, ((1, 1), [b"a", b"1"]), ((2, 0), [b"b", b"2"]))
    builder = codec.ArrowBuilder(field_columns=["a"])
    builder.add(b"s", lp, *master)
    before = builder.nbytes
    with pytest.raises(CorruptNodeError):
        builder.add(b"s", lp[:-4] + b"\x09" + lp[-3:], *master)
    assert (builder.rows, builder.nbytes) == (2, before)
    builder.add(b"s", lp, *master)
    assert builder.nbytes == 2 * before
    batch = builder.finish()
    batch.validate(full=True)
    assert (
        batch.to_pydict()
        == _batch(codec, (lp, *master), (lp, *master), field_columns=["a"]).to_pydict()
    )


def test_finished_batches_outlive_the_builder(codec: Codec) -> None:
    node = _node(codec, *(((1, seq), [b"n", b"%d" % seq * 50]) for seq in range(100)))
    builder = codec.ArrowBuilder()
    batches = []
    for _ in range(5):
        for _ in range(20):
            builder.add(b"s", *node)
        batches.append(builder.finish())
    del builder
    for batch in batches:
        batch.validate(full=True)
        assert batch.equals(batches[0])
        assert batch.num_rows == 2000
    assert batches[0].slice(1990, 5).to_pydict()["seq"] == [90, 91, 92, 93, 94]


@pytest.mark.parametrize(
    "options", [{"columns": ["time"]}, {"columns": ["id", "id"]}, {"field_columns": ["a", "a"]}]
)
def test_columns_that_cannot_be_are_refused(codec: Codec, options: Any) -> None:
    with pytest.raises(OptionError, match="column"):
        codec.ArrowBuilder(**options)


@settings(max_examples=80)
@given(
    drawn=st.lists(st.tuples(steps, entries), min_size=1, max_size=12),
    vector=st.binary(max_size=2),
    binary=st.booleans(),
)
def test_both_codecs_give_the_same_columns(
    native: Codec, drawn: list[Any], vector: bytes, binary: bool
) -> None:
    node, id = _drawn(drawn)
    batches = []
    for codec in (pure, native):
        columns = (*ARROW_COLUMNS, *EXACT_COLUMNS)
        builder = codec.ArrowBuilder(columns, ("a", "x", "", "7"), binary)
        builder.add(b"s\xff", *node, vector)
        builder.add(b"t", *node, b"", (1, 1), id)
        batches.append(builder.finish())
        batches[-1].validate(full=True)
    assert batches[0].schema == batches[1].schema
    assert batches[0].equals(batches[1])


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ([[b"name", b"1"]], None),
        ([[b"NAME", b"1"]], "NAME"),
        ([[b"name", b"1"], [b"x", b"1"], [b"Name", b"2"]], "Name"),  # of an entry's own fields
        ([[b"x", b"1", b"nAme", b"2"], [b"x", b"1", b"nAme", b"2"]], "nAme"),  # of the node's
        ([[b"Other", b"1"], [b"other", b"1"]], None),  # it has a column of its own
        ([[b"OTHER_2", b"1"]], "OTHER_2"),
        ([[b"names", b"1", b"nam", b"2", b"7", b"3"]], None),
        ([["\u00c4".encode(), b"1"]], None),  # DuckDB folds ASCII alone
        ([["\u00e4".encode(), b"1"]], None),
    ],
)
def test_a_field_with_the_name_of_another_ones_column_is_refused(
    codec: Codec, fields: list[list[bytes]], refused: str | None
) -> None:
    node = _node(codec, *(((at + 1, 0), flat) for at, flat in enumerate(fields)))
    guard = NameGuard(["name", "other_2", "7", "\u00e4"], ["name", "Other", "other", "7", "\u00e4"])
    builder = codec.ArrowBuilder(["id"], ["name", "other"], guard=guard)
    for _ in range(2):
        if refused is None:
            builder.add(b"s", *node)
        else:
            with pytest.raises(OptionError, match=f"stream b's' has the field '{refused}'"):
                builder.add(b"s", *node)
            assert builder.rows == 0
    # What is not read is not looked at.
    assert builder.add(b"s", *node, b"", (100, 0)) == 0
    assert builder.finish().num_rows == (0 if refused else 2 * len(fields))


@given(drawn=st.lists(st.tuples(steps, entries), min_size=1, max_size=12))
def test_both_codecs_refuse_the_same_names(native: Codec, drawn: list[Any]) -> None:
    node, _ = _drawn(drawn)
    guard = NameGuard(["A", "b", "X", "7", ""], ["b", "7"])
    told = []
    for codec in (pure, native):
        builder = codec.ArrowBuilder(("id",), ("b",), False, guard)
        try:
            told.append(str(builder.add(b"s", *node)))
        except OptionError as error:
            told.append(str(error))
    assert told[0] == told[1]


def test_pyarrow_is_imported_by_finish_only() -> None:
    code = """
import sys
from logstore.codec import codec, pure
for c in (codec(), pure):
    c.ArrowBuilder(field_columns=["a"]).add(b"s", c.new_node(1, 1, [b"a", b"1"]), 1, 1)
assert "pyarrow" not in sys.modules
c.ArrowBuilder().finish()
assert "pyarrow" in sys.modules
"""
    run_program(code)


NAMES = [b"a", b"speed", b"", "é".encode()]
VALUES = st.one_of(
    st.none(), st.binary(max_size=5), st.text(max_size=5), st.integers(-(2**70), 2**70), st.floats()
)


@settings(max_examples=60)
@given(st.data())
def test_rows_of_columns_are_the_rows(codec: Codec, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 4))
    rows = data.draw(st.lists(st.tuples(*[VALUES] * width), max_size=12))
    names = NAMES[:width]
    columns = [[row[place] for row in rows] for place in range(width)]
    pairs = [[pair for pair in zip(names, row, strict=True) if pair[1] is not None] for row in rows]
    try:
        wanted = codec.rows(pairs)
    except InvalidEntryError:
        with pytest.raises(InvalidEntryError):
            codec.columns(names, columns)
        return
    found = codec.columns(names, columns)
    assert len(found) == len(rows)
    for place in range(len(rows)):
        assert found.flat(place) == wanted.flat(place)
        assert found.raw_bytes(place) == wanted.raw_bytes(place)
    ids, nodes = (1, 1), []
    for batch in (found, wanted):
        packed = codec.pack(batch, 0, len(rows), ids, None, 0, 0, 4096, 5)
        nodes.append([node.lp for node in packed.nodes])
    assert nodes[0] == nodes[1]


@pytest.mark.parametrize(
    ("names", "columns", "error"),
    [
        ([b"a"], [], ValueError),
        ([b"a", b"b"], [[1], []], ValueError),
        ([b"a"], [[1, None]], InvalidEntryError),
        ([b"a"], [[True]], EntryTypeError),
        ([b"a"], [["\ud800"]], InvalidEntryError),
    ],
)
def test_columns_that_cannot_be(codec: Codec, names: Any, columns: Any, error: type) -> None:
    with pytest.raises(error):
        codec.columns(names, columns)
    assert len(codec.columns([], [])) == 0


def test_ids_of_numbers(codec: Codec) -> None:
    top = 2**64 - 1
    given_ids = codec.given_numbers([1, top], [5, top])
    assert [given_ids[0], given_ids[1]] == [(1, 5), (top, top)]
    assert given_ids.settle(1, 4) == -1
    assert given_ids.settle(1, 5) == 0
    left_open = codec.given_numbers([7, 7, 9], None)
    assert left_open.settle(7, 2) == -1
    assert [left_open[place] for place in range(3)] == [(7, 3), (7, 4), (9, 0)]
    with pytest.raises(ValueError, match="two numbers"):
        codec.given_numbers([1], [])
    for bad in ([-1], [2**64]):
        with pytest.raises(OverflowError):
            codec.given_numbers(bad, None)
        with pytest.raises(OverflowError):
            codec.given_numbers([1], bad)
