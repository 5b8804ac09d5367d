"""Prevents conditions that do not fit a schema, and reads of more than a condition needs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import logstore
from logstore.errors import Error, OptionError, SchemaError
from logstore.where.entry_conditions import Pattern
from tests.scan.scanned_stores import make_store

SCHEMA = (
    "temp double, at timestamp?, n int?, tags json?, level enum('low', 'high') = 'low', id uuid?"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[logstore.Store[bytes]]:
    with make_store(tmp_path_factory.mktemp("typed") / "store", node_max_entries=4) as opened:
        typed = opened.stream("typed")
        typed.configure(schema=SCHEMA)
        for n in range(12):
            at = datetime(2026, 11, n + 1, tzinfo=UTC)
            tags = {"room": "ab"[n % 2], "a.b": n}
            typed.add({"temp": 20 + n / 2, "at": at, "n": n, "tags": tags}, f"{100 + n}-{n}")
        yield opened


def ids(entries: Any) -> list[int]:
    return [entry.id.ms - 100 for entry in entries]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("temp > 21 and tags.room = 'a'", [4, 6, 8, 10]),
        ("at >= '2026-11-11'", [10, 11]),
        ("at > timestamp '2026-11-11T01:00+01:00' or n = 0", [0, 11]),
        ("n between 2.5 and 4", [3, 4]),
        ("tags.\"a.b\" in (1, 2)", [1, 2]),
        ("id_2 is null and id >= '110'", [10, 11]),
        ("level like 'h%'", []),
        ("temp = '20.5'", [1]),
    ],
)  # fmt: skip
def test_every_way_takes_the_text(
    store: logstore.Store[bytes], where: str, found: list[int]
) -> None:
    stream = store.stream("typed")
    assert ids(stream.range(where=where)) == found
    assert ids(stream.range(where=where, reverse=True, count=2)) == found[::-1][:2]
    assert ids(stream.follow("0", where=where, timeout=0)) == found
    assert ids(each for _, each in store.follow({"typed": "0"}, where=where, timeout=0)) == found
    assert ids(stream.follow("+", where=where, timeout=0)) == found[-1:]
    for scan in (
        stream.scan(where=where),
        stream.scan(columns=["ms"], where=where),
        store.scan(["typed"], where=where, merge=True),
        store.scan("t*", columns=["ms", "temp"], where=f"stream = 'typed' and ({where})"),
    ):
        assert [ms - 100 for ms in scan.to_arrow()["ms"].to_pylist()] == found


@pytest.mark.parametrize(
    ("where", "why", "place"),
    [
        ("temp > 'warm'", "column 'temp' is double: 'warm' is no number", "'warm'"),
        ("n = 1 and tmp > 3", "no column 'tmp', only 'temp', 'at', 'n'", "tmp"),
        ("n = '1.5'", "column 'n' is int: '1.5' is no whole number", "'1.5'"),
        ("n in (1,\n 'x')", "column 'n' is int: 'x'", "'x'"),
        ("temp like 'x'", "like is of text", "temp"),
        ("at > 5", "column 'at' is timestamp: not the number 5", "5"),
        ("level = 'mid'", "such as 'low'", "'mid'"),
        ("temp.x = 1", "which has no paths", "temp.x"),
        ("a.b = 1", 'is written "a.b"', "a.b"),
        ("n = true", "not the bool true", "true"),
        ("n", "column 'n' is int: not the bool true", "n"),
        ("id > 'x'", "compared with an ID", "'x'"),
        ("id > true", "compared with an ID", "true"),
        ("id like '1%'", "like is of text", "id"),
        ("fields is null", "is not compared", "fields"),
        ("tags.room in (1, 'a')", "of one type", "'a'"),
    ],
)
def test_errors_name_the_column_and_the_place(
    store: logstore.Store[bytes], where: str, why: str, place: str
) -> None:
    stream = store.stream("typed")
    for call in (stream.range, stream.follow, stream.scan, store.scan):
        with pytest.raises(SchemaError) as caught:
            call(where=where)
        said, line, caret = caught.value.message.split("\n")
        assert why in said
        assert line[len(caret) - 1 :].startswith(place)
    with pytest.raises(SchemaError):
        next(store.follow({"typed": "0"}, where=where))


def test_an_open_schema_has_other_fields(store: logstore.Store[bytes]) -> None:
    stream = store.stream("open")
    stream.configure(schema="temp double, *")
    stream.add({"temp": 1, "other": "07"})
    assert len(list(stream.range(where="other = 7 and temp = 1"))) == 1
    assert stream.scan(where="other = 7 and other = '07'").to_arrow().num_rows == 1


def test_a_schema_that_is_given_to_a_scan_counts(store: logstore.Store[bytes]) -> None:
    stream = store.stream("plain")
    stream.add_many([{"n": "5"}, {"n": "300"}, {"n": "x"}, {"n": "-1"}])
    for schema in ("n tinyint", {"n": pa.uint16()}, "n decimal(4, 1)", "n float"):
        found = stream.scan(columns=["n"], schema=schema, where="n > 4.5 and n < 299.5")
        assert found.to_arrow().num_rows == 1, schema
    with pytest.raises(OptionError, match="int8"):
        stream.scan(schema="n tinyint", where="n = 'x'")


def test_a_number_that_no_double_is_needs_a_type(store: logstore.Store[bytes]) -> None:
    for call in (store.stream("none").range, store.stream("none").scan):
        with pytest.raises(OptionError, match="a schema"):
            call(where="n = 9007199254740993")
        call(where="n < 1e300")


def test_other_spellings_from_before_the_schema_are_found(store: logstore.Store[bytes]) -> None:
    stream = store.stream("before")
    ref = "00000000-0000-0000-0000-00000000000A"
    stream.add({"temp": "1E1", "ref": ref, "ok": "TRUE", "day": "2026-11-26"})
    stream.configure(schema="temp double, ref uuid, ok bool, day date")
    where = (
        f"temp = 10 and ref in ('{ref}') and ref <= '{ref.lower()}' and ok and day = '2026-11-26'"
    )
    assert len(list(stream.range(where=where))) == 1
    assert stream.scan(where=where).to_arrow().num_rows == 1


def test_values_of_a_codec_are_compared(store: logstore.Store[bytes]) -> None:
    moment = datetime(2026, 11, 26, 12, tzinfo=UTC)
    for codec in ("json", "msgpack"):
        coded = store.stream(codec, codec=codec)
        coded.add({"level": "error", "n": 5, "tags": {"a": [1, True]}, "at": moment})
        coded.add({"level": 5, "n": "5", "tags": None, "at": "soon"})
        assert len(list(coded.range(where="level = 'error' and n < 6 and tags.a[1]"))) == 1
        assert len(list(coded.range(where="at > '2026'"))) == 1
        assert len(list(coded.range(where="at >= timestamp '2026-11-26 12:00'"))) == 1
        assert len(list(coded.range(where="tags is null and n is not null"))) == 1


def test_conditions_on_ids_and_texts_decide_where_is_read(
    store: logstore.Store[bytes],
) -> None:
    stream = store.stream("typed")
    matching = stream._matching(
        "id > '103' and ts <= timestamp '1970-01-01 00:00:00.105' and level = 'low'"
        " and (ms in (104, 200) or ms = 103)"
    )
    assert matching is not None
    assert matching.interval == ((103, 0), (105, 2**64 - 1))
    assert matching.where == [b"level", b"low"]
    nothing = stream._matching("id < '5' and id > '6' or false")
    assert nothing is not None
    assert nothing.interval[0] > nothing.interval[1]
    assert ids(stream.range(where="ms < 0 or ms > 1e18")) == []
    assert ids(stream.range("105", where="ms <= 106")) == [5, 6]


@pytest.mark.parametrize(
    ("pattern", "text", "answer"),
    [
        ("", "", True), ("", "a", False), ("%", "", True), ("a%", "ab\n", True),
        ("%b", "ab", True), ("%b", "ba", False), ("a%a", "a", False), ("a%a", "aa", True),
        ("_", "é", True), ("_", "", False), ("%_%", "", False), ("%a%b%", "xaxbx", True),
        ("%a%b%", "xbxax", False), ("a.c", "abc", False), ("%ab%ab", "abab", True),
        ("%ab%ab", "ab", False), ("a%_b", "ab", False), ("a%_b", "axb", True),
    ],
)  # fmt: skip
def test_patterns(pattern: str, text: str, answer: bool) -> None:
    assert Pattern(pattern, "").matches(text) is answer


def test_a_hostile_pattern_takes_no_time_that_grows_with_its_signs() -> None:
    """A regular expression would go back and forth for longer than anybody waits."""
    assert not Pattern("%a" * 400 + "b", "").matches("a" * 5000)


def test_the_text_of_a_condition_is_no_mapping(store: logstore.Store[bytes]) -> None:
    for where in (b"n = 1", 5, ["n = 1"]):
        with pytest.raises(Error, match="where is a condition"):
            store.stream("typed").range(where=where)  # type: ignore[arg-type]
