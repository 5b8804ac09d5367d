"""Prevents columns that tell less than the entries, or that two fields answer as."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logstore.api.store import Store
from logstore.codec import ARROW_COLUMNS
from logstore.errors import OptionError, UsageError
from logstore.scan import conversion, scan_columns, split_reads
from logstore.scan.record_batches import Gather
from tests import seeds
from tests.scan.scanned_stores import make_plan, make_store
from tests.scan.shapes import REPEATED, SHAPES, random_ids

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store[bytes]]:
    with make_store(tmp_path_factory.mktemp("columns") / "store") as opened:
        yield opened


def test_no_columns_are_still_rows(store: Store[bytes]) -> None:
    stream = store["none"]
    stream.add_many(({"n": n} for n in range(1000)), batch=100)
    batches = list(stream.scan(columns=[], batch_rows=64))
    assert sum(batch.num_rows for batch in batches) == 1000
    assert max(batch.num_rows for batch in batches) <= 64
    assert all(batch.num_columns == 0 for batch in batches)
    assert stream.scan(columns=[]).read_all().num_rows == 1000
    split = make_plan(store, b"none", min_partitions=1).splits[0]
    assert sum(batch.num_rows for batch in split_reads.batches(split, Gather([]))) == 1000


def test_the_last_of_repeated_fields_wins_everywhere(store: Store[bytes]) -> None:
    """In ``entry.fields``, the map and columns; ``pairs`` has them all."""
    stream = store["repeated"]
    for number, pairs in enumerate(REPEATED, 1):
        for seq in range(2):  # the second entry has the fields of its node
            stream.add(pairs, id=(number, seq))
    stream.add([(b"once", b"1")], id=(99, 0))
    entries = list(stream.range())
    for columns in (None, ["fields", "pairs", "tag"], ["fields", "tag"], ["pairs"], ["tag"]):
        found = stream.scan(columns=columns).read_all()
        if "fields" in found.column_names:
            maps = found["fields"].to_pylist()
            for pairs, entry in zip(maps, entries, strict=True):
                wanted = {name.decode("utf-8", "replace"): value.decode() for name, value in
                          entry.fields.items()}  # fmt: skip
                assert pairs == list(wanted.items())
        if "pairs" in found.column_names:
            assert [
                [(pair["field"], pair["value"]) for pair in row]
                for row in found["pairs"].to_pylist()
            ] == [
                [(name.decode("utf-8", "replace"), value.decode()) for name, value in entry.pairs]
                for entry in entries
            ]
        if "tag" in found.column_names:
            assert found["tag"].to_pylist() == [
                entry.fields["tag"].decode() if "tag" in entry.fields else None for entry in entries
            ]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_key_of_an_id_sorts_as_the_id_does(store: Store[bytes], shape: str) -> None:
    seed = seeds.seed()
    print("seed", seed)
    ids = random_ids(shape, seed)
    stream = store.stream(f"keys {next(NUMBERS)}")
    stream.add_many(((id, {"n": n}) for n, id in enumerate(ids)), batch=50)
    types = {"id_key": pa.binary(), "ms": pa.decimal128(20, 0), "seq": pa.uint64(), "id": None}
    found = stream.scan(columns=types).read_all()
    assert found.schema.field("ms").type == pa.decimal128(20, 0)
    keys = found["id_key"].to_pylist()
    assert keys == [id.ms.to_bytes(8) + id.seq.to_bytes(8) for id in ids]
    assert keys == sorted(keys)
    assert found["ms"].to_pylist() == [Decimal(id.ms) for id in ids]
    assert found["seq"].to_pylist() == [id.seq for id in ids]
    assert found["id"].to_pylist() == [str(id) for id in ids]


def test_a_scan_takes_types_as_the_spark_source_does(store: Store[bytes]) -> None:
    stream = store["typed"]
    stream.add({"amount": "1.5", "raw": b"\xff", "when": "2013-01-01"}, id="1-1")
    stream.add({"amount": "many", "raw": b"a"}, id="2-1")
    stream.add({"amount": ""}, id="3-1")
    types: dict[str, Any] = {
        "amount": pa.float64(), "raw": pa.binary(), "when": pa.timestamp("us", "UTC"),
        "id": pa.string(), "fields": pa.map_(pa.string(), pa.binary()), "ms": pa.int64(),
        "pairs": pa.list_(pa.struct([("field", pa.string()), ("value", pa.binary())])),
    }  # fmt: skip
    reader = stream.scan(columns=types)
    assert reader.schema == pa.schema(list(types.items()))
    table = reader.read_all()
    assert table.schema == reader.schema
    found = table.to_pydict()
    assert found["amount"] == [1.5, None, None]
    assert found["raw"] == [b"\xff", b"a", None]
    assert found["when"] == [datetime(2013, 1, 1, tzinfo=UTC), None, None]
    assert found["fields"][1] == [("amount", b"many"), ("raw", b"a")]
    assert found["pairs"][2] == [{"field": "amount", "value": b""}]
    assert stream.scan(columns={"amount": None}).read_all()["amount"].to_pylist() == [
        "1.5", "many", "",
    ]  # fmt: skip
    assert stream.scan(columns={}).read_all().num_rows == 3


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"amount": float}, "'amount'.*pyarrow type"),
        ({"amount": pa.list_(pa.string())}, "'amount'"),
        ({"id": pa.int64()}, "'id'"),
        ({"ms": pa.int32()}, "'ms'"),
        ({"id_key": pa.string()}, "'id_key'"),
        ({"fields": pa.string()}, "'fields'"),
        ("id", "columns"),
        ([1], "columns"),
        (7, "columns"),
    ],
)
def test_types_that_cannot_be_are_refused(store: Store[bytes], columns: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        store["typed"].scan(columns=columns)


def test_gathering_names_a_column_twice_only_once(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store, pytest.raises(OptionError, match="twice"):
        store["x"].scan(columns=["a", "a"])


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        ([b"Name", b"name"], ["Name", "name_2"]),
        ([b"name", b"Name", b"NAME"], ["name", "Name_2", "NAME_3"]),
        ([b"Name", b"name", b"name_2"], ["Name", "name_3", "name_2"]),
        ([b"id", b"ID", b"ts", b"stream"], ["id_2", "ID_3", "ts_2", "stream_2"]),
        ([b"id_2", b"id"], ["id_2", "id_3"]),
        ([b"\xff", b"\\xff", b"a\0b"], ["\\xff", "\\xff_2", "a\\x00b"]),
        ([b"", b"_"], ["_", "__2"]),
        ([b"a.b", b"a b", b"a`b"], ["a.b", "a b", "a`b"]),
        (["\u0131d".encode()], ["\u0131d_2"]),  # a dotless i, which Java takes for an i
        ([b"K", b"k", "\u212a".encode()], ["K", "k_2", "\u212a_3"]),  # the sign of Kelvin
    ],
)
def test_each_field_has_a_column_of_its_own(fields: list[bytes], columns: list[str]) -> None:
    """The right names are written out: a query says them."""
    found = scan_columns.field_columns(fields, ARROW_COLUMNS)
    assert list(found.values()) == columns
    assert list(found) == list(dict.fromkeys(fields))
    every = [scan_columns.folded(each) for each in (*ARROW_COLUMNS, *found.values())]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize(
    ("streams", "tables"),
    [
        ([b"Orders", b"orders", b"race:a"], ["Orders_2", "orders_3", "race:a"]),
        ([b"orders", b"orders_2", b"ORDERS"], ["orders_3", "orders_2", "ORDERS_4"]),
        ([b"Entries", b"x"], ["Entries_2", "x"]),
        ([b"\xff", b"\\xff", b""], ["\\xff_2", "\\xff_3", "_"]),
    ],
)
def test_a_table_has_a_name_that_is_no_other_stream(
    streams: list[bytes], tables: list[str]
) -> None:
    """A query of one stream gave the rows of another one."""
    assert list(scan_columns.stream_tables(streams, ["entries"]).values()) == tables


def test_names_are_folded_as_java_does() -> None:
    """Python's own lower() keeps names apart that Spark takes for one."""
    for one, other in (("\u0130", "i"), ("\u0131", "I"), ("\u017f", "s"), ("\u00c4", "\u00e4")):
        assert scan_columns.folded(one) == scan_columns.folded(other)
    assert scan_columns.folded("stra\u00dfe") != scan_columns.folded("strasse")


EXACT: list[tuple[str, int, int, str | None]] = [
    ("1e2", 5, 2, "100.00"),
    ("1.2300000000000000000000000000000000000000", 5, 2, "1.23"),
    ("-.5E+1", 5, 2, "-5.00"),
    ("0e-2147483647", 5, 2, "0.00"),
    ("1e-2147483647", 5, 2, None),  # Arrow ends the process
    ("1e9999999999999999", 5, 2, None),
    ("340282366920938463463374607431768211457", 5, 2, None),  # 2**128 + 1, which is 1 to Arrow
    ("4e38", 38, 0, None),
    ("12345678901234567890123456789", 38, 10, None),
    ("1e0x2", 5, 2, None),
    ("1e", 5, 2, None),
    (".", 5, 2, None),
]


@pytest.mark.parametrize(("text", "precision", "scale", "wanted"), EXACT)
def test_a_decimal_is_what_its_text_says_or_null(
    text: str, precision: int, scale: int, wanted: str | None
) -> None:
    kind = pa.decimal128(precision, scale)
    found = conversion.cast(pa.array(["7", text, None, ""]), kind, "x", strict=False)
    made = None if wanted is None else Decimal(wanted)
    assert found.to_pylist() == [Decimal(7).quantize(Decimal(1).scaleb(-scale)), made, None, None]
    with pytest.raises(UsageError, match="a value of field 'x' is no decimal"):
        conversion.cast(pa.array(["7", "!"]), kind, "x", strict=True)
