"""Prevents options of the Spark source that are taken for something else, and casts that guess."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logstore.clock import SYSTEM_CLOCK
from logstore.errors import Error, FileSystemError, NotAStoreError, OptionError, UsageError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.scan import conversion
from logstore.spark_io import spark_options
from tests.scan.scanned_stores import make_store

U64 = 2**64 - 1
DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    store = tmp_path_factory.mktemp("options") / "store"
    make_store(store).close()
    return str(store)


def parse(store: str, **more: str) -> spark_options.SourceOptions:
    """Parse options as Spark hands them over: keys in lower case, values text."""
    given = {"path": store, "stream": "x", **more}
    return spark_options.parse_read({key.lower(): value for key, value in given.items()})


def test_defaults_of_options(path: str) -> None:
    found = parse(path)
    assert found.streams == ("x",)
    assert (found.start, found.end) == (ZERO_ID, MAX_ID)
    assert found.min_partitions is None
    assert found.pin_ms == 3600 * 1000
    assert found.mode == "PERMISSIVE"


@pytest.mark.parametrize(
    ("given", "start", "end"),
    [
        ({"startId": "5-1", "endId": "7"}, (5, 1), (7, U64)),
        ({"startId": "(5-1", "endId": "(7-0"}, (5, 2), (6, U64)),
        ({"startId": "-", "endId": "+"}, (0, 0), (U64, U64)),
        ({"startTime": "1000", "endTime": "2000"}, (1000, 0), (2000, U64)),
        ({"startTime": "1970-01-01T00:00:01Z"}, (1000, 0), (U64, U64)),
        ({"endTime": "1970-01-01 02:00:01.5+02:00"}, (0, 0), (1500, U64)),
        ({"startTime": "5", "endId": "5-3"}, (5, 0), (5, 3)),
        ({"startTime": "1970-01-01T00:00:01"}, (1000, 0), (U64, U64)),  # of UTC, as in the API
        (
            {"startTime": "1970-01-02", "endTime": "1970-01-02"},
            (86_400_000, 0),
            (2 * 86_400_000 - 1, U64),
        ),
        ({"endTime": "1700000000000"}, (0, 0), (1_700_000_000_000, U64)),
        ({"endId": "1700000000"}, (0, 0), (1_700_000_000, U64)),
    ],
)
def test_ranges(
    path: str, given: dict[str, str], start: tuple[int, int], end: tuple[int, int]
) -> None:
    found = parse(path, **given)
    assert (found.start, found.end) == (StreamID(*start), StreamID(*end))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startId": "abc"}, "startId"),
        ({"endId": "1-2-3"}, "endId"),
        ({"endId": str(2**64)}, "endId"),
        ({"startTime": "yesterday"}, "startTime"),
        ({"startTime": "1969-07-01T00:00:00"}, "must be milliseconds since 1970"),
        ({"endTime": "1700000000"}, "write 1700000000000 or 2023-11-14T22:13:20Z"),
        ({"startingTimestamp": "1700000000"}, "early a time are given as 'startId'"),
        ({"endTime": "1700000000.5"}, "must be milliseconds since 1970"),
        ({"endingTimestamp": "20130701"}, "a day is written as 2013-07-01"),
        ({"startId": "9", "endId": "8"}, "empty"),
        ({"startId": "9", "startTime": "9"}, "one of them"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"minPartitions": "many"}, "minPartitions"),
        ({"pinHours": "-1"}, "pinHours"),
        ({"pinHours": "nan"}, "pinHours"),
        ({"pinHours": "24"}, "renewed while tasks read"),
        ({"mode": "DROPALL"}, "mode"),
        ({"columnNameOfCorruptRecord": ""}, "columnNameOfCorruptRecord"),
        ({"startIds": "1"}, "did you mean 'startId'"),
        ({"header": "true"}, "no option 'header'"),
        ({"streams": "a,b"}, "either option 'stream'"),
        ({"paths": "[]"}, "either option 'path' or paths"),
        ({"path": ""}, "'path' is missing"),
        ({"path": "gopher://bucket/store"}, "give a path, or s3://, gs://"),
        ({"maxRowsPerTrigger": "5"}, "'maxRowsPerTrigger' is for streaming queries"),
        ({"maxRowPerTrigger": "5"}, "did you mean 'maxRowsPerTrigger'"),
        ({"subscribe": "a,b"}, "no option 'subscribe': give 'streams', names with commas"),
        ({"subscribePattern": "a.*"}, "no option 'subscribePattern': give 'streams', with a patt"),
        ({"topic": "a"}, "no option 'topic': give 'stream'"),
        ({"kafka.bootstrap.servers": "a:1"}, "no option 'kafka.bootstrap.servers': give 'path'"),
        ({"maxOffsetsPerTrigger": "5"}, "'maxRowsPerTrigger', which is for streaming queries"),
    ],
)
def test_invalid_options_are_refused(path: str, given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words.replace("(", r"\(")):
        parse(path, **given)


@pytest.mark.parametrize(
    ("page", "known"),
    [
        ("scan.md", spark_options.OF_READ),
        ("spark.md", spark_options.OF_WRITE),
        ("spark.md", ("startingOffsets", *spark_options.OF_STREAM_READ, "failOnDataLoss")),
    ],
)
def test_every_option_has_a_row_in_a_table(page: str, known: tuple[str, ...]) -> None:
    assert set(known) <= options_of(page)


def options_of(page: str) -> set[str]:
    """The options in a page's tables of options."""
    told: set[str] = set()
    inside = False
    for line in (DOCS / page).read_text().splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith("| option"):
            inside = True
        elif inside:
            told.update(re.findall(r"`(\w+)`", line.split("|")[1]))
    return told


def test_every_option_of_a_table_is_known(path: str) -> None:
    """To the parser that it is told of, by any value: what is refused is the value."""
    of_read, of_write = options_of("scan.md"), options_of("spark.md")
    assert of_read == set(spark_options.OF_READ)
    streaming = {"startTime", "startingTimestamp", "startingOffsets", "failOnDataLoss"}
    more = {*spark_options.OF_STREAM_READ, *streaming}
    assert of_write == {*spark_options.OF_WRITE, *more}
    given = {"path": path, "streams": "*"}
    # The option `table` has a parser of its own, in `tables`.
    for name in of_read - {"table"}:
        assert "no option" not in told(spark_options.parse_read, given | {name.lower(): "?"})
    for name in more:
        words = told(spark_options.parse_stream_read, given | {name.lower(): "?"})
        assert not re.search("no option|for batch reads", words)
    write = partial(spark_options.parse_write, streaming=True)
    for name in spark_options.OF_WRITE:
        assert "no option" not in told(write, {"path": path, name.lower(): "?"})


def told(parser: Callable[[dict[str, str]], object], given: dict[str, str]) -> str:
    """The error of a parser; empty if it takes what is given."""
    try:
        parser(given)
    except Error as error:
        return str(error)
    return ""


def test_a_time_ago_is_told_from_now(path: str) -> None:
    """As `range(since=)` takes it; a range that has nothing to do with the clock stays so."""
    before = SYSTEM_CLOCK.now_ms()
    found = parse(path, startTime="-1h30m")
    assert before - 5_400_000 <= found.start.ms <= SYSTEM_CLOCK.now_ms() - 5_400_000
    assert (found.start.seq, found.end) == (0, MAX_ID)


WRITES: list[tuple[dict[str, str], str]] = [
    ({"topic": "a"}, "no option 'topic': give 'stream'"),
    ({"streams": "a"}, "no option 'streams': give 'stream'"),
    ({"kafka.bootstrap.servers": "a:1"}, "give 'path'"),
    ({"create": "no"}, "'create' is true or false"),
    ({"idColum": "a"}, "did you mean 'idColumn'"),
    ({"mode": "append"}, r"as in .mode\('append'\)"),
    ({"compression": "gzip"}, "no option 'compression' of a write; there are path"),
]


@pytest.mark.parametrize(("given", "words"), WRITES)
def test_a_write_that_cannot_be(path: str, given: dict[str, str], words: str) -> None:
    options = {"path": path} | {key.lower(): value for key, value in given.items()}
    with pytest.raises(OptionError, match=words):
        spark_options.parse_write(options, streaming=False)


def test_the_directory_must_be_a_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        parse(str(tmp_path))


def test_an_error_of_hdfs_without_java_is_one_line() -> None:
    """Its library tells each place where it looked for Java, in as many lines."""
    with pytest.raises(FileSystemError, match="HDFS needs a Java") as raised:
        parse("hdfs://127.0.0.1:1/store")
    assert "\n" not in str(raised.value)


def test_lists_of_streams(path: str) -> None:
    def streams(text: str) -> tuple[str, ...]:
        return spark_options.parse_read({"path": path, "streams": text}).streams

    assert streams("a, b,c") == ("a", "b", "c")
    assert streams("*") == ()
    for text in ("", "a,,b", "a,a"):
        with pytest.raises(OptionError, match="streams"):
            streams(text)


def test_a_table_has_more_than_options(path: str) -> None:
    """As Spark 4.3 hands over CREATE TABLE ... USING logstore OPTIONS (...) TBLPROPERTIES (...)."""
    table = {
        "location": f"file:{path}", "path": f"file:{path}", "provider": "logstore", "owner": "me",
        "comment": "c", "mine": "1", "option.stream": "race", "stream": "race",
    }  # fmt: skip
    found = spark_options.parse_read(table)
    assert (found.path, found.streams) == (path, ("race",))
    with pytest.raises(OptionError, match="did you mean 'mode'"):
        spark_options.parse_read({**table, "option.modes": "x"})


def test_a_path_may_be_a_file_address(path: str) -> None:
    assert parse(f"file:{path}").path == path
    assert parse(f"file://{path}").path == path
    assert parse(f"file://localhost{path}").path == path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file://host/data/store", "a directory of this host from the root on"),
        ("file:data/store", "a directory of this host from the root on"),
        ("file:", "a directory of this host from the root on"),
        ("s3:/bucket/store", "lacks a slash behind its scheme: write s3://"),
        ("s3://", "names no bucket|must be a local directory"),
        ("http://[::1", "is no URI"),
        ("a\0b", "has a null byte"),
    ],
)
def test_no_place_is_made_up_for_what_is_none(text: str, words: str) -> None:
    """By reads, by streaming ones, and by writes, which make a store where there is none."""
    given = {"path": text, "stream": "x"}
    for parser in (
        spark_options.parse_read,
        spark_options.parse_stream_read,
        partial(spark_options.parse_write, streaming=False),
    ):
        with pytest.raises(OptionError, match=words):
            parser(given)


def test_numbers_that_no_64_bits_hold(path: str) -> None:
    """Python reads no number of so many digits."""
    digits = "9" * 5000
    given = {"path": path, "stream": "x"}
    with pytest.raises(OptionError, match="'endTime' must be milliseconds"):
        parse(path, endTime=digits)
    with pytest.raises(OptionError, match="'maxRowsPerTrigger' must be a number"):
        spark_options.parse_stream_read({**given, "maxrowspertrigger": digits})
    for text in ("[" * 100_000, '{"x":' * 100_000):
        with pytest.raises(OptionError, match="no list of directories"):
            spark_options.parse_read({"paths": text, "stream": "x"})
        with pytest.raises(OptionError):
            spark_options.parse_read({**given, "startingoffsets": text})


def test_from_where_another_read_ended_there_may_be_nothing(path: str) -> None:
    found = parse(path, startingOffsets="5-0", endingOffsets="5-0")
    assert (found.start, found.end) == (StreamID(5, 1), StreamID(5, 0))
    with pytest.raises(OptionError, match="empty"):
        parse(path, startingOffsets="5-1", endingOffsets="5-0")


CASTS: list[tuple[Any, list[str | None], list[Any]]] = [
    (pa.int64(), ["1", "-7", "", "x", None, "9" * 30, "1.5"], [1, -7] + [None] * 5),
    (pa.int8(), ["127", "128"], [127, None]),
    (pa.float64(), ["30.2", "1e3", "x", "5"], [30.2, 1000.0, None, 5.0]),
    (pa.bool_(), ["true", "0", "no"], [True, False, None]),
    (pa.decimal128(6, 2), ["30.25", "1", "123456"], [Decimal("30.25"), Decimal("1.00"), None]),
    (pa.date32(), ["2013-02-28", "2013-02-30"], [date(2013, 2, 28), None]),
    (
        pa.timestamp("us", tz="UTC"),
        ["2013-01-01T05:00:00+02:00", "2013-01-01 05:00:00", "now", "1970-01-01"],
        [
            datetime(2013, 1, 1, 3, tzinfo=UTC), datetime(2013, 1, 1, 5, tzinfo=UTC), None,
            datetime(1970, 1, 1, tzinfo=UTC),
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("target", "texts", "wanted"), CASTS, ids=lambda each: str(each)[:20])
def test_casts(target: Any, texts: list[str | None], wanted: list[Any]) -> None:
    array = pa.array(texts, pa.string())
    found = conversion.cast(array, target, "f", strict=False)
    assert found.type == target
    assert found.to_pylist() == wanted
    for at, text in enumerate(texts):  # whatever the neighbours are
        alone = conversion.cast(array.slice(at, 1), target, "f", strict=False)
        assert alone.to_pylist() == [wanted[at]]
        if wanted[at] is None and text:
            with pytest.raises(UsageError, match="field 'f'") as raised:
                conversion.cast(array, target, "f", strict=True)
            assert isinstance(raised.value, Error)


def test_empty_text_is_null_also_when_strict() -> None:
    found = conversion.cast(pa.array(["1", "", None]), pa.int32(), "f", strict=True)
    assert found.to_pylist() == [1, None, None]
