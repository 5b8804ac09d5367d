"""Entries become the rows, and the errors, that the Python source makes of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.codec import codec
from logstore.errors import UsageError
from logstore.ids import MAX_ID, ZERO_ID
from logstore.spark_io import spark_columns, spark_options
from logstore.spark_io.spark_columns import Column
from logstore.spark_io.spark_options import SourceOptions
from tests.spark.jvm.texts import WHOLE_TEXTS, plain
from tests.spark.jvm.texts_process import TextsProcess

STORE = "/data/störe"
MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
NAMES = (
    b"a",
    b"b",
    b"n\xc3\xa9",
    b"it's",
    b"7",
    b"",
    b"\xff",
    b"\xfe",
    b"\xed\xa0\x80",
    b"long" * 5,
)
COLUMNS = [
    *(
        Column(name, kind, nullable=True)
        for name, kinds in spark_columns._STANDARD.items()
        for kind in kinds
    ),
    *(Column("a", kind, nullable=True) for kind in (*spark_columns._FIELD_TYPES, "decimal(9,2)")),
    *(Column(name.decode(), "int", nullable=True) for name in NAMES[1:6]),
    *(Column("again", kind, nullable=True, field="a") for kind in ("string", "double")),
    Column("wide", "decimal(38,10)", nullable=True, field="b"),
    Column("moment", "timestamp", nullable=True, field="b"),
    Column("_corrupt_record", "string", nullable=True),
    Column("store", "string", nullable=True),
]
U64 = st.integers(0, 99) | st.integers(0, 2**64 - 1) | st.just(253_402_300_800_000)
VALUES = (
    st.sampled_from(WHOLE_TEXTS).map(str.encode) | st.binary(max_size=9) | st.text().map(str.encode)
)
ENTRIES = st.tuples(
    U64, U64, st.lists(st.tuples(st.sampled_from(NAMES), VALUES), min_size=1, max_size=6)
)
# A node: its stream, its entries, whether it is found to be damaged, whether a batch ends behind.
NODES = st.tuples(
    st.sampled_from((b"laps", b"\xff\xf0\x9f")), st.lists(ENTRIES, min_size=1, max_size=5),
    st.sampled_from((False, False, True)), st.booleans(),
)  # fmt: skip
SAME = st.lists(ENTRIES, min_size=1, max_size=3).map(lambda entries: entries * 3)
LETTERS = st.tuples(st.binary(min_size=1, max_size=1), VALUES)
WIDE = st.tuples(U64, U64, st.lists(LETTERS, min_size=17, max_size=40))
SOME = st.lists(st.sampled_from(COLUMNS), max_size=6, unique_by=lambda each: each.name)
EVERY = ((0, 0), (2**64 - 1, 2**64 - 1))


def expected(wanted: list[Column], mode: str, nodes: list[Any]) -> tuple[list[Any], str]:
    """The rows of each batch, and the error that ends them."""
    options = SourceOptions(
        (STORE,), (), ZERO_ID, MAX_ID, None, 1, mode, spark_options.CORRUPT_RECORD, ""
    )
    batches: list[Any] = []
    shape, gather = spark_columns.shape_and_gather(wanted, options, STORE)
    for number, (stream, entries, is_damaged, ends) in enumerate(nodes, 1):
        if not is_damaged:
            for ms, seq, pairs in entries:
                flat = [part for pair in pairs for part in pair]
                lp = codec().new_node(ms, seq, flat)
                gather.add(stream, lp, ms, seq, b"", *EVERY)
        if ends or number == len(nodes):
            rows: list[Any] = []
            try:
                for batch in gather.take():
                    rows += shown(shape.batch(batch), wanted)
            except UsageError as error:
                return batches, f"UsageError: {error}"
            batches.append(rows)
    return batches, ""


def shown(batch: Any, wanted: list[Column]) -> list[Any]:
    """Rows as the process writes them."""
    columns = [
        _values(array, column.type) for array, column in zip(batch.columns, wanted, strict=True)
    ]
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[]] * batch.num_rows


def _values(array: Any, kind: str) -> list[Any]:
    if kind == "date" or kind.startswith("timestamp"):
        array = array.cast(pa.int32() if kind == "date" else pa.int64())
    if "<" in kind:
        inner = "binary" if "binary" in kind else "string"
        rows = array.to_pylist()
        if kind.startswith("array"):
            rows = [[list(pair.values()) for pair in row] for row in rows]
        return [[[name, plain(inner, value)] for name, value in row] for row in rows]
    return [None if value is None else plain(kind, value) for value in array.to_pylist()]


def spec(column: Column) -> list[str]:
    """A column as the process takes it."""
    kind = column.standard.upper()
    if column.name in ("_corrupt_record", "store"):
        kind = {"_corrupt_record": "CORRUPT", "store": "STORE"}[column.name]
    field = (column.field or column.name).encode().hex() if not kind else ""
    return [column.name, kind or "FIELD", field, column.type]


def steps(nodes: list[Any]) -> list[Any]:
    """What the process is to do."""
    made: list[Any] = []
    for number, (stream, entries, is_damaged, ends) in enumerate(nodes, 1):
        made += [["stream", stream.hex()], ["node"]]
        for at, (ms, seq, pairs) in enumerate(entries, 1):
            is_half = is_damaged and at == len(entries)
            packed = [[name.hex(), value.hex()] for name, value in pairs]
            made.append(["half" if is_half else "entry", str(ms), str(seq), packed])
        made += [["back"]] if is_damaged else []
        made += [["take"]] if ends or number == len(nodes) else []
    return made


def check(
    process: TextsProcess, wanted: list[Column], kept: int, mode: str, nodes: list[Any]
) -> None:
    """The first columns that are kept are shown, the others are only checked."""
    found = process.rows({
        "columns": [spec(each) for each in wanted[:kept]],
        "checked": [spec(each) for each in wanted[kept:]],
        "mode": mode, "store": STORE, "steps": steps(nodes),
    })  # fmt: skip
    batches, error = expected(wanted, mode, nodes)
    assert found["batches"] == [[row[:kept] for row in rows] for rows in batches]
    assert found.get("error", "") == error


@settings(max_examples=200)
@given(
    wanted=SOME,
    less=st.sampled_from((0, 0, 0, 1, 2)),
    mode=st.sampled_from(MODES),
    nodes=st.lists(NODES, min_size=1, max_size=5),
)
def test_rows_of_random_entries(
    texts_process: TextsProcess, wanted: list[Column], less: int, mode: str, nodes: list[Any]
) -> None:
    check(texts_process, wanted, max(0, len(wanted) - less), mode, nodes)


@settings(max_examples=40)
@given(
    wanted=SOME,
    entries=SAME | st.lists(WIDE, min_size=1, max_size=3),
)
def test_whole_entries(
    texts_process: TextsProcess, wanted: list[Column], entries: list[Any]
) -> None:
    check(texts_process, wanted, len(wanted), "PERMISSIVE", [(b"laps", entries, False, True)])


def test_every_column_of_a_large_batch(texts_process: TextsProcess) -> None:
    """The arrays grow, and become small again for the batches behind."""
    entries = [(n, n % 7, [(b"a", b"%d" % n), (b"b", b"x" * (n % 50))]) for n in range(9_000)]
    nodes = [(b"laps", entries, False, True), (b"pits", entries[:9], False, True)]
    seen = {each.name: each for each in COLUMNS}
    check(texts_process, list(seen.values()), len(seen), "PERMISSIVE", [*nodes, *nodes])
