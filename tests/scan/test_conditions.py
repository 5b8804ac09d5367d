"""Prevents conditions that one part answers in another way than the others: null, NaN, -0.0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

import logstore
import logstore.duckdb
import logstore.polars
from logstore.api.store import Store
from logstore.codec import native_or_none, pure
from logstore.errors import OptionError
from logstore.tools.commands import main
from tests.scan.conditions import CASES, DAY, NAN, TEXT_CASES, ConditionCase
from tests.scan.scanned_stores import make_store
from tests.scan.shapes import OPERATORS, TEXTS

QUESTIONS = [
    (list(cases), *key[1:])
    for key, cases in groupby(
        sorted(CASES, key=lambda each: (str(each.type), each.sign, repr(each.operand))),
        key=lambda each: (repr(each.operand), each.type, each.sign, each.operand),
    )
]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store[bytes]]:
    """An entry of each text in two streams, one a field of its own, and one without the field."""
    with make_store(tmp_path_factory.mktemp("values") / "store", node_max_entries=4) as store:
        for name in ("v:a", "v:b"):
            rows = [{"n": text, "row_number": at} for at, text in enumerate(TEXTS)]
            store.stream(name).add_many([*rows, {"row_number": -1}, {"other": 1, "row_number": -1}])
        yield store


def scanned(store: Store[bytes], kind: Any, where: Any) -> pa.Table:
    columns = {"row_number": pa.int64(), "n": kind}
    return store.stream("v:a").scan(columns=columns, where=where).to_arrow()


def typed_by_the_schema(store: Store[bytes], kind: Any, where: Any) -> pa.Table:
    types = {"n": kind, "row_number": pa.int64()}
    found = store.scan("v:b", columns=["row_number"], schema=types, where=where)
    return found.to_arrow()


def merged(store: Store[bytes], kind: Any, where: Any) -> pa.Table:
    columns = {"row_number": pa.int64(), "n": kind, "stream": None}
    where = [*where, ("stream", "in", ["v:b"])]
    return store.scan("v:*", columns=columns, where=where, merge=True, batch_rows=7).to_arrow()


def of_duckdb(store: Store[bytes], kind: Any, where: Any) -> pa.Table:
    ((column, sign, operand),) = where
    con = duckdb.default_connection()
    con.execute("set timezone = 'UTC'")
    logstore.duckdb.attach(con, store, "v:a", schema={"row_number": pa.int64(), "n": kind})
    given = operand if isinstance(operand, list) else [operand]
    marks = ", ".join("?" for _ in given)
    right = f"({marks})" if sign.endswith("in") else marks
    try:
        sql = f'select row_number from "v:a" where {column} {sign} {right}'
        return con.sql(sql, params=given).to_arrow_table()
    finally:
        con.unregister("v:a")


def of_polars(store: Store[bytes], kind: Any, where: Any) -> pa.Table:
    ((column, sign, operand),) = where
    frame = logstore.polars.scan(store, "v:a", columns={"row_number": pa.int64(), "n": kind})
    return frame.filter(OPERATORS[sign](pl.col(column), operand)).collect().to_arrow()


@pytest.mark.parametrize(
    "evaluator",
    [scanned, typed_by_the_schema, merged, of_duckdb, of_polars],
    ids=lambda each: each.__name__,
)
def test_every_evaluator_answers_as_the_table(values: Store[bytes], evaluator: Any) -> None:
    wrong = []
    for cases, kind, sign, operand in QUESTIONS:
        found = evaluator(values, kind, [("n", sign, operand)])
        wrong += compared(cases, found["row_number"].to_pylist())
    assert not wrong, "\n".join(wrong)


def compared(cases: list[ConditionCase], found: list[int]) -> list[str]:
    """What is not as in the table."""
    return [
        f"{case} answered {not case.answer}"
        for case in cases
        if ((-1 if case.text is None else TEXTS.index(case.text)) in found) != case.answer
    ]


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
def test_a_set_of_one_value_answers_as_that_value(values: Store[bytes], sign: str) -> None:
    """Also of a field that is no column of the scan, which is read as what it is compared with."""
    stream = values.stream("v:a")
    for operand in (0.0, -0.0, NAN, 2, 1.5, "b", "0.0", True, date(2026, 1, 2), DAY):
        one, among = (
            stream.scan(columns=["id"], where=[("n", each, given)]).to_arrow()
            for each, given in (("==", operand), ("in", [operand]))
        )
        assert one.num_rows
        assert one == among
        other, not_among = (
            stream.scan(columns=["id"], where=[("n", each, given)]).to_arrow()
            for each, given in (("!=", operand), ("not in", {operand}))
        )
        assert other == not_among
        assert not stream.scan(where=[("nobody", sign, operand)]).to_arrow().num_rows


@pytest.mark.parametrize(
    ("kind", "operand"),
    [
        (pa.int64(), 2.5),
        (pa.int64(), NAN),
        (pa.int8(), 300),
        (pa.float32(), 1e300),
        (pa.float64(), (1 << 53) + 1),
        (pa.float64(), True),
        (pa.bool_(), 1),
        (pa.string(), 1),
        (pa.timestamp("s", tz="UTC"), DAY + timedelta(microseconds=1)),
        (pa.timestamp("us", tz="UTC"), 1_700_000_000_000),
        (pa.date32(), DAY),
        (pa.decimal128(5, 2), Decimal("1.255")),
        (pa.decimal128(5, 2), 0.1),
    ],
    ids=str,
)
def test_conditions_that_would_change_the_value_are_refused(
    values: Store[bytes], kind: Any, operand: Any
) -> None:
    """An integer column was compared with 2 where 2.5 was said, and a time with microseconds where
    a number was said."""
    for sign, given in (("==", operand), ("<", operand), ("in", [operand])):
        with pytest.raises(OptionError, match="compared"):
            values.stream("v:a").scan(columns={"n": kind}, where=[("n", sign, given)])


def test_values_of_two_kinds_in_one_set_are_refused(values: Store[bytes]) -> None:
    """True was a number among numbers, and a truth alone."""
    for given in ([1, True], [True, 1], ["a", 1], [DAY, DAY.date()], [DAY.date(), DAY]):
        with pytest.raises(OptionError, match="compared"):
            values.stream("v:a").scan(where=[("n", "in", given)])


def test_a_time_of_any_unit_is_compared_as_it_is(values: Store[bytes]) -> None:
    midnight = ["2026-01-02", "2026-01-02T00:00:00Z"]
    for kind in (pa.timestamp("s", tz="UTC"), pa.timestamp("ns"), pa.timestamp("us")):
        columns = {"n": kind, "row_number": pa.int64()}
        found = values.stream("v:a").scan(columns=columns, where=[("n", "in", [DAY])]).to_arrow()
        told = [TEXTS[each] for each in found["row_number"].to_pylist()]
        # A text with a zone is null where the column has none; a second has no digits behind it.
        late = ["2026-01-02 00:00:00.000001"] if kind.unit == "s" else []
        assert told == sorted((midnight if kind.tz else midnight[:1]) + late)


# -- values as they are stored ---------------------------------------------------------------
STORED = sorted({case.text for case in TEXT_CASES if case.text is not None})


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store[bytes]]:
    """A stream whose entries have fields of their own, and one whose have those of the node."""
    with make_store(tmp_path_factory.mktemp("texts") / "store", node_max_entries=50) as store:
        for text in STORED:
            store.stream("own").add({"n": text, f"f{text}": text})
            store.stream("same").add({"n": text})
        store.stream("own").add({"m": "0"})
        store.stream("gone").add({"m": "0"})
        yield store


def texts_of(entries: Any) -> list[str | None]:
    found = [entry.get(b"n") for entry in entries]
    return [None if each is None else each.decode() for each in found]


def of_a_range(store: Store[bytes], name: str, operand: Any) -> list[str | None]:
    return texts_of(store.stream(name).range(where={"n": operand}))


def of_a_range_from_the_end(store: Store[bytes], name: str, operand: Any) -> list[str | None]:
    return texts_of(store.stream(name).range(where={"n": operand}, reverse=True))


def of_a_follower(store: Store[bytes], name: str, operand: Any) -> list[str | None]:
    followed = store.stream(name).follow("0-0", where={"n": operand}, timeout=0)
    return texts_of(followed)


def of_the_command(store: Store[bytes], name: str, operand: Any) -> list[str | None]:
    text = operand if isinstance(operand, str) else repr(operand)
    args = ["range", str(store.path), name, "--where", f"n={text}", "--json"]
    done = CliRunner().invoke(main, args)
    assert done.exit_code == 0, done.output
    return [json.loads(line)["fields"].get("n") for line in done.output.splitlines()]


def of_each_codec(store: Store[bytes], name: str, operand: Any) -> list[str | None]:
    """`entries` with `where=`, and `may_match` of both twins, over one node."""
    text = operand if isinstance(operand, str) else repr(operand)
    flats = [entry.pairs for entry in store.stream(name).range()]
    found: list[list[str | None]] = []
    for each in filter(None, (pure, native_or_none)):
        node, ids = each.new_node(5, 0, flat_of(flats[0])), [(5, 0)]
        for seq, pairs in enumerate(flats[1:], 1):
            node, _ = each.append(node, 5, 0, 5, seq, flat_of(pairs))
            ids.append((5, seq))
        rows = each.entries(node, 5, 0, where=[b"n", text.encode()])
        found.append([dict(flats[row[2]]).get(b"n", b"").decode() for row in rows])
    assert all(each == found[0] for each in found)
    return found[0]


def flat_of(pairs: Any) -> list[bytes]:
    return [text for pair in pairs for text in pair]


@pytest.mark.parametrize(
    "evaluator",
    [of_a_range, of_a_range_from_the_end, of_a_follower, of_the_command, of_each_codec],
    ids=lambda each: each.__name__,
)
def test_values_that_are_stored_are_compared_as_text(texts: Store[bytes], evaluator: Any) -> None:
    wrong = []
    for operand in {repr(case.operand): case.operand for case in TEXT_CASES}.values():
        for name in ("own", "same"):
            found = evaluator(texts, name, operand)
            wrong += [
                f"{name}: {case} answered {not case.answer}"
                for case in TEXT_CASES
                if repr(case.operand) == repr(operand) and (case.text in found) != case.answer
            ]
        assert not evaluator(texts, "gone", operand)
    assert not wrong, "\n".join(wrong)
