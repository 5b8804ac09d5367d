"""Prevents a batch read that begins or ends elsewhere than its options say, stream by stream.

Without a session: the reader as Spark's planner has it.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from logstore.errors import OptionError, StreamNotFoundError
from tests.scan.scanned_stores import make_store


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("offsets") / "store"
    with make_store(path) as store:
        for name in ("a", "b"):
            store[name].add_many((((n, 0), {"n": n}) for n in range(1, 21)), batch=7)
            store[name].group("g").create(start="0")
        store["a"].group("g").read("c", count=15)
        store["c"].add({"n": "1"}, id="1-0")
    return path


def source_of(path: Path, **options: Any) -> Any:
    pytest.importorskip("pyspark")
    from logstore.spark_io.source import LogstoreSource

    given = {"path": str(path), "streams": "a,b"} | options
    return LogstoreSource({key.lower(): str(value) for key, value in given.items()})


def read(path: Path, **options: Any) -> dict[str, list[int]]:
    """The numbers of each stream."""
    return numbers_of(source_of(path, **options))


def numbers_of(source: Any) -> dict[str, list[int]]:
    from pyspark.sql.types import StringType, StructField, StructType

    source.schema()
    names = [StructField("stream", StringType()), StructField("n", StringType())]
    reader = source.reader(StructType(names))
    found: dict[str, list[int]] = {}
    for partition in reader.partitions():
        for each in reader.read(partition):
            for row in each.to_pylist():
                found.setdefault(row["stream"], []).append(int(row["n"]))
    return found


def upto(first: int, last: int) -> list[int]:
    return [*range(first, last + 1)]


@pytest.mark.parametrize(
    ("options", "a", "b"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, upto(1, 20), upto(1, 20)),
        ({"startingOffsets": "5-0"}, upto(6, 20), upto(6, 20)),
        ({"startingOffsets": "5-0", "endingOffsets": "7-0"}, upto(6, 7), upto(6, 7)),
        ({"startingOffsets": '{"a": "18-0", "b": "earliest"}'}, upto(19, 20), upto(1, 20)),
        ({"startingOffsets": '{"a": "18-0"}'}, upto(19, 20), upto(1, 20)),
        ({"startingOffsets": '{"a": "20-0"}'}, [], upto(1, 20)),
        ({"endingOffsets": '{"b": "2-0", "a": "latest"}'}, upto(1, 20), upto(1, 2)),
        (
            {"startingOffsets": '{"a": "9-0", "b": "3-0"}', "endingOffsets": '{"a": "3-0"}'},
            [],
            upto(4, 20),
        ),
        ({"startingOffsets": "7-0", "endingOffsets": "7-0"}, [], []),
        ({"startingGroup": "g"}, upto(16, 20), upto(1, 20)),
        ({"startingGroup": "g", "endId": "17"}, upto(16, 17), upto(1, 17)),
        ({"startingTimestamp": "3", "endingTimestamp": "4"}, upto(3, 4), upto(3, 4)),
        ({"startId": "(3-0", "endingOffsets": "5-0"}, upto(4, 5), upto(4, 5)),
    ],
)
def test_where_streams_begin_and_end(
    path: Path, options: dict[str, str], a: list[int], b: list[int]
) -> None:
    assert read(path, **options) == {
        name: numbers for name, numbers in (("a", a), ("b", b)) if numbers
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "earliest"}, "'endingOffsets' would leave nothing to read"),
        ({"startingOffsets": "x"}, "option 'startingOffsets' is earliest, an ID, or JSON"),
        ({"startingOffsets": '{"a": "1-0"'}, "'startingOffsets' is no JSON object"),
        ({"startingOffsets": '{"a": 1}'}, "the offset of 'a' must be text: 1"),
        ({"startingOffsets": '{"a": "1-0", "a": "2-0"}'}, "'a' is there twice"),
        ({"startingOffsets": '{"c": "1-0"}'}, "names 'c', which is not among the streams"),
        ({"startingOffsets": "1-0", "startId": "1"}, "give 'startId' or 'startingOffsets': one"),
        ({"startingGroup": "nobody"}, "stream b'a' has no group 'nobody'"),
        ({"startingGroup": ""}, "'startingGroup' must name a consumer group"),
        ({"endingTimestamp": "yesterday"}, "option 'endingTimestamp' must be milliseconds"),
        ({"startingOffsets": "5-0", "endingOffsets": "4-0"}, "the range is empty"),
    ],
)
def test_options_that_cannot_be(path: Path, options: dict[str, str], words: str) -> None:
    """At load, before a job begins."""
    with pytest.raises(OptionError) as raised:
        source_of(path, **options).schema()
    assert words in str(raised.value)


@pytest.mark.parametrize("offsets", ["latest", '{"b": "latest"}'])
def test_a_batch_read_does_not_begin_at_the_end(path: Path, offsets: str) -> None:
    """At load it may still be a streaming query, for which this is an offset as any other."""
    source = source_of(path, startingOffsets=offsets)
    source.schema()
    with pytest.raises(OptionError, match="'startingOffsets' would leave nothing to read"):
        source.reader(None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stream": "a*"}, "a pattern, and several names, are given as option 'streams'"),
        ({"stream": "a,b"}, "a pattern, and several names, are given as option 'streams'"),
        ({"stream": "gone"}, "see store.streams()"),
    ],
)
def test_a_stream_that_is_not_there(path: Path, options: dict[str, str], words: str) -> None:
    source = source_of(path, **options)
    del source.given["streams"]
    with pytest.raises(StreamNotFoundError) as raised:
        source.schema()
    assert words in str(raised.value)
    with make_store(path) as store:
        store["a?"].add({"n": "1"}, id="1-0")
    try:
        assert read_one(path, "a?") == [1]  # a stream may be called so
    finally:
        with make_store(path) as store:
            store.drop("a?")


def read_one(path: Path, stream: str) -> list[int]:
    """The numbers of one stream."""
    source = source_of(path, stream=stream)
    del source.given["streams"]
    return numbers_of(source)[stream]


def test_a_pattern_that_finds_nothing_is_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once, when the rows are read; the load goes on with what there is."""
    assert read(path, streams="a*,z*,y?") == {"a": upto(1, 20)}
    assert sorted(caplog.messages) == [
        f"option 'streams': no stream of {path} has a name like {pattern!r}"
        for pattern in ("y?", "z*")
    ]


def test_a_plan_is_one_line_in_the_log(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="logstore.spark"):
        read(path, startingOffsets=json.dumps({"a": "18-0"}))
    lines = [each for each in caplog.messages if each.startswith("planned ")]
    assert len(lines) == 2
    words = r"1 streams \('a'\) from 18-1 to \S+: 1 splits, 0\.0 MB, pin [0-9a-f]{32}$"
    assert re.search(words, lines[0])
