"""Prevents options of the Spark source that are taken for something else, and casts that guess."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

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
        ({"startTime": "2013-07-01T00:00:00"}, "time zone"),
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
    rows = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("|")]
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert set(known) <= told


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
