"""Prevents a Spark answer that differs from the store's own, or has fewer rows than were planned.

All in one session; every DataFrame reads a store that was written, deleted from and reopened.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.log import pinfile
from logstore.scan import split_reads as read
from tests.scan.scanned_stores import make_store, rows_of

Load = Callable[..., Any]
BIG = 2**63


def make(path: Path) -> None:
    """Nodes in several segments, tombstones, an open node, an ID past 2^63; then a clean close."""
    with make_store(path) as store:
        store["race"].add_many(
            (
                ((1000 * n, n), {"rider": f"rider {n % 7}", "speed": f"{n}.5", "text": "t" * 60})
                for n in range(1, 3001)
            ),
            batch=100,
        )
        store["other,name"].add({"a": "1"}, id=f"{BIG}-{BIG}")
    with make_store(path) as store:
        store["race"].delete(*[(1000 * n, n) for n in range(1, 3001, 3)])
        store["race"].trim(min_id="100000", approximate=False)
        store["race"].add({"rider": "last", "speed": "fast"}, id="4000000-0")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("spark") / "store"
    make(made)
    return made


@pytest.fixture(scope="module")
def load(spark: Any, path: Path) -> Load:
    def load_it(schema: str | None = None, *, at: Path = path, **options: Any) -> Any:
        reader = spark.read.format("logstore").options(path=str(at), **options)
        if "streams" not in options and "stream" not in options:
            reader = reader.option("stream", "race")
        return (reader if schema is None else reader.schema(schema)).load()

    return load_it


def stored(path: Path, name: str = "race") -> list[tuple[str, dict[str, str]]]:
    """ID and fields of every entry, as the store gives them."""
    with make_store(path) as store:
        return [
            (id, {key.decode(): value.decode() for key, value in pairs})
            for id, pairs in rows_of(store.stream(name))
        ]


def test_rows_equal_those_of_the_store(load: Load, path: Path) -> None:
    frame = load()
    wanted = stored(path)
    rows = frame.collect()
    assert [(row.id, row.fields) for row in rows] == wanted
    assert {row.stream for row in rows} == {"race"}
    for row in rows:
        assert f"{row.ms}-{row.seq}" == row.id
        assert row.ts.replace(tzinfo=UTC) == datetime.fromtimestamp(row.ms / 1000, tz=UTC)
    assert frame.schema.simpleString() == (
        "struct<stream:string,id:string,ms:bigint,seq:bigint,ts:timestamp,"
        "fields:map<string,string>,id_key:binary,"
        "pairs:array<struct<field:string,value:string>>>"
    )
    assert frame.count() == frame.count() == len(wanted)


def test_filters_and_ranges(load: Load, path: Path) -> None:
    wanted = [id for id, _ in stored(path)]
    frame = load()
    some = frame.where("ms >= 2000000 and ms < 2500000")
    assert some.count() == len([id for id in wanted if 2000000 <= int(id.split("-")[0]) < 2500000])
    assert frame.count() == len(wanted)  # not what the filter left
    ranged = load(startId="2000000", endId="2500000-0")
    assert [row.id for row in ranged.collect()] == [row.id for row in some.collect()]
    timed = load(startTime="1970-01-01T00:33:20Z", endTime="2499999")
    assert timed.count() == some.count()
    assert load(startId="5000000").count() == 0


def test_the_schema_names_fields(load: Load) -> None:
    frame = load("rider string, ms bigint, speed double, raw binary, text binary, absent int")
    assert frame.columns == ["rider", "ms", "speed", "raw", "text", "absent"]
    first, last = frame.orderBy("ms").first(), frame.orderBy("ms", ascending=False).first()
    assert (first.speed, bytes(first.text)) == (first.ms / 1000 + 0.5, b"t" * 60)
    assert (last.rider, last.speed, last.text, last.absent) == ("last", None, None, None)
    assert frame.groupBy().sum("speed").first()[0] > 0
    pairs = load("id string, fields array<struct<key:string,value:binary>>").first()
    assert pairs.fields[0].key == "rider"
    assert load("fields map<string,binary>").first().fields["text"] == bytearray(b"t" * 60)


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        (None, {"stream": "nobody"}, "StreamNotFoundError"),
        ("id string", {"streams": "race,nobody"}, "StreamNotFoundError"),
        (None, {"startId": "x"}, "option 'startId'"),
        (None, {"minPartition": "3"}, "did you mean 'minPartitions'"),
        (None, {"at": Path("nowhere")}, "NotAStoreError"),
        ("ms int", {}, "column 'ms' of logstore is bigint or decimal(20,0)"),
        ("speed array<int>", {}, "column 'speed'"),
        ("speed double", {"mode": "FAILFAST"}, "field 'speed' is no double: 'fast'"),
    ],
)
def test_invalid_reads_are_refused(
    load: Load, schema: str | None, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(Exception, match="Error") as raised:
        load(schema, **options).collect()
    assert words in str(raised.value)


def test_a_load_without_options_says_what_to_give(spark: Any) -> None:
    for reader in (spark.read, spark.read.schema("id string")):
        with pytest.raises(Exception, match="give at least 'path' and 'stream'"):
            reader.format("logstore").load().collect()


def test_the_number_of_partitions(load: Load) -> None:
    assert load().rdd.getNumPartitions() == 2
    assert load(minPartitions=7).rdd.getNumPartitions() == 7
    assert load(minPartitions=99999, endId="120000").rdd.getNumPartitions() < 20
    assert load(minPartitions=7).count() == load().count()


def test_several_streams(load: Load) -> None:
    frame = load(streams="*")
    assert {row.stream: row["count"] for row in frame.groupBy("stream").count().collect()} == {
        "race": load().count(),
        "other,name": 1,
    }
    row = load(stream="other,name").first()
    assert (row.id, row.ms, row.seq, row.ts) == (f"{BIG}-{BIG}", None, None, None)


def test_a_frame_is_a_snapshot(load: Load, tmp_path: Path) -> None:
    """Of a store that others delete from and add to, and whose index is gone."""
    copy = tmp_path / "store"
    make(copy)
    frame = load(at=copy)
    wanted = frame.count()
    with make_store(copy) as store:
        store["race"].trim(max_entries=5, approximate=False)
        store["race"].add({"rider": "late"})
    shutil.rmtree(copy / "index")
    assert frame.count() == wanted
    assert load(at=copy).count() == 6
    assert frame.count() == wanted


def test_a_lost_pin_is_an_error_and_never_fewer_rows(load: Load, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    make(copy)
    frame = load(at=copy)
    assert frame.count() > 0
    for pin in (copy / "pins").iterdir():
        if pinfile.is_id(pin.name):
            pin.unlink()
    with pytest.raises(Exception, match="SnapshotExpiredError"):
        frame.collect()
    assert load(at=copy).count() > 0


def test_executors_need_neither_lmdb_nor_the_index(spark: Any, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    make(copy)
    from logstore.spark_io.source import LogstoreReader, LogstoreSource

    class Blocking(LogstoreReader):  # made here, so that it is sent whole
        def read(self, partition: Any) -> Iterator[Any]:
            assert "lmdb" not in sys.modules
            sys.modules["lmdb"] = None  # type: ignore[assignment]
            try:
                yield from super().read(partition)
            finally:
                del sys.modules["lmdb"]

    class Source(LogstoreSource):
        @classmethod
        def name(cls) -> str:
            return "logstore-blocked"

        def reader(self, schema: Any) -> LogstoreReader:
            made = super().reader(schema)
            return Blocking(made.options, made.wanted, made.cores)

    spark.dataSource.register(Source)
    frame = spark.read.format("logstore-blocked").options(path=str(copy), stream="race").load()
    assert frame.rdd.getNumPartitions() > 0  # it is planned
    shutil.rmtree(copy / "index")
    assert frame.count() == len(stored(copy))


def test_tables_of_sql(spark: Any, path: Path, load: Load) -> None:
    spark.sql("DROP TABLE IF EXISTS races")
    spark.sql(
        f"CREATE TABLE races USING logstore OPTIONS (path '{path}', stream 'race') "
        "COMMENT 'of France' TBLPROPERTIES ('season' = '1903')"
    )
    try:
        assert spark.sql("SELECT count(*) FROM races").first()[0] == load().count()
        total = spark.sql("SELECT count(DISTINCT fields['rider']) FROM races").first()[0]
        assert total == 8
        assert spark.table("races").count() == load().count()
    finally:
        spark.sql("DROP TABLE races")
    assert (path / "STORE").exists()
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW speeds (speed double, ms bigint) USING logstore "
        f"OPTIONS (path '{path}', stream 'race', endId '300000')"
    )
    assert spark.sql("SELECT max(speed) FROM speeds").first()[0] < 301
    load().createOrReplaceTempView("race_view")
    assert spark.sql("SELECT max(ms) FROM race_view").first()[0] == 4000000


def test_a_store_that_is_only_read(load: Load, path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    before = sorted(each.name for each in copy.rglob("*"))
    frame = load(at=copy, snapshotDir=str(tmp_path / "aside"))
    assert frame.count() == load().count()
    assert sorted(each.name for each in copy.rglob("*")) == before


def test_splits_and_readers_are_small(spark: Any, tmp_path: Path) -> None:
    """The splits and the reader of a stream of 100,000 nodes."""
    from pyspark import cloudpickle

    from logstore.spark_io.source import LogstoreSource
    from logstore.spark_io.split_tasks import SplitPartition

    with logstore.open(tmp_path / "s", sync="os", node_max_entries=1) as store:
        store.stream("x").add_many(({"n": n} for n in range(100_000)), batch=10_000)
    source = LogstoreSource({"path": str(tmp_path / "s"), "stream": "x", "minpartitions": "2"})
    from pyspark.sql.types import LongType, StructField, StructType

    reader = source.reader(StructType([StructField("seq", LongType())]))
    parts = reader.partitions()
    assert len(parts) == 2
    assert sum(part.split.nodes for part in parts) == 100_000
    for each in (reader, *parts):
        assert len(cloudpickle.dumps(each)) < 64 * 1024
    part = cloudpickle.loads(cloudpickle.dumps(parts[0]))
    assert isinstance(part, SplitPartition)
    assert sum(each.num_rows for each in read.read_split(part.split)) == parts[0].split.entries


def test_register_repairs_the_python_of_a_local_session(spark: Any, load: Load) -> None:
    from logstore.spark_io import register

    context = spark.sparkContext
    before = context.pythonExec
    try:
        for wrong in ("python-that-is-not-there", "/bin/false"):
            context.pythonExec = wrong
            register(spark)
            assert context.pythonExec == sys.executable
        assert load().count() > 0
    finally:
        context.pythonExec = before
        register(spark)


def test_an_error_names_the_variable_to_set() -> None:
    from logstore.spark_io import _python_error, _version_in

    assert _version_in("python-that-is-not-there") == ""
    assert _version_in(sys.executable) == logstore.__version__
    assert "PYSPARK_PYTHON" in str(_python_error("python3"))
