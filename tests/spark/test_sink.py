"""Prevents a write of Spark that is half there, there twice, or loses or changes a row.

All in one session; the store that was written is opened and compared with the rows, and checked.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.errors import Error, NotAStoreError
from logstore.log import pinfile
from tests.scan.scanned_stores import make_store, rows_of
from tests.tools.commands import ok

Write = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with make_store(tmp_path / "store") as store:
        store["old"].add({"a": "1"}, id="5-0")
    return tmp_path / "store"


def write(frame: Any, path: Path, mode: str = "append", **options: Any) -> None:
    frame.write.format("logstore").mode(mode).options(path=str(path), **options).save()


def entries(path: Path, name: str) -> list[tuple[str, dict[bytes, bytes]]]:
    with logstore.open(path) as store:
        return [(id, dict(pairs)) for id, pairs in rows_of(store.stream(name))]


def leftovers(path: Path) -> list[str]:
    return sorted(each.name for each in (path / "pins").iterdir())


def test_rows_come_back_as_they_were(spark: Any, path: Path) -> None:
    """IDs, types and nulls, from four tasks, behind an entry that was there; then read by Spark."""
    frame = spark.range(1, 4001, 1, 4).selectExpr(
        "concat(id * 10, '-', id % 3) AS id",
        "concat('rider ', id % 7) AS rider",
        "id * 0.5D AS speed",
        "CASE WHEN id % 5 = 0 THEN NULL ELSE id END AS lap",
        "id % 2 = 0 AS even",
    )
    write(frame, path, stream="old")
    found = entries(path, "old")
    assert len(found) == 4001
    assert found[0] == ("5-0", {b"a": b"1"})
    for n, (id, fields) in enumerate(found[1:], 1):
        assert id == f"{n * 10}-{n % 3}"
        assert fields[b"rider"] == b"rider %d" % (n % 7)
        assert float(fields[b"speed"]) == n / 2
        assert fields.get(b"lap") == (None if n % 5 == 0 else b"%d" % n)
        assert fields[b"even"] == (b"false" if n % 2 else b"true")
    assert leftovers(path) == []
    with make_store(path) as store:
        assert store["old"].info().length == 4001
        assert store["old"].info().entries_added == 4001
        store["old"].add({"a": "2"})  # goes on behind the last sealed node
    back = spark.read.format("logstore").option("path", str(path)).option("stream", "old")
    typed = back.schema("id string, speed double, even boolean").load().where("even is not null")
    assert typed.count() == 4000
    assert typed.selectExpr("sum(speed)").first()[0] == sum(n / 2 for n in range(1, 4001))


def test_a_column_says_the_stream(spark: Any, path: Path) -> None:
    """And the store gives the IDs, which ascend in the order of the rows."""
    frame = spark.range(0, 3000, 1, 3).selectExpr(
        "concat('race:', id % 4) AS stream", "id AS n", "map('k', string(id)) AS fields"
    )
    write(frame, path)
    for which in range(4):
        found = entries(path, f"race:{which}")
        assert [int(fields[b"n"]) for _, fields in found] == list(range(which, 3000, 4))
        assert all(fields[b"k"] == fields[b"n"] for _, fields in found)
        ids = [tuple(map(int, id.split("-"))) for id, _ in found]
        assert ids == sorted(set(ids))


def test_standard_columns_can_be_written_back(spark: Any, path: Path) -> None:
    """All standard columns of another stream, with repeated fields."""
    with make_store(path) as store:
        store["twice"].add([("f", "1"), ("f", "2"), ("g", "3")], id="7-7")
    frame = spark.read.format("logstore").options(path=str(path), stream="twice").load()
    write(frame, path, stream="copy")
    with make_store(path) as store:
        assert rows_of(store["copy"]) == rows_of(store["twice"])


def test_a_time_is_an_id(spark: Any, path: Path) -> None:
    frame = spark.sql(
        "SELECT timestamp'2013-07-01 00:00:00.5' + make_interval(0,0,0,0,0,0,int(id / 2)) AS at, "
        "id AS n FROM range(0, 6, 1, 1)"
    )
    write(frame, path, stream="timed", idColumn="at")
    first = 1372636800500
    wanted = [f"{first + 1000 * (n // 2)}-{n % 2}" for n in range(6)]
    assert [id for id, _ in entries(path, "timed")] == wanted


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_moments_come_back_in_any_zone_of_the_session(
    spark: Any, path: Path, tmp_path: Path, zone: str
) -> None:
    """Text in the session's time has no room for the seconds of an offset, and another year."""
    wanted = [-62_135_596_800_000_000, -2_840_140_800_000_000, 1, 253_402_300_799_999_999]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        values = ", ".join(f"({each}L)" for each in wanted)
        frame = spark.sql(f"SELECT timestamp_micros(us) AS t FROM VALUES {values} AS v(us)")
        write(frame.coalesce(1), path, stream=zone)
        frame.coalesce(1).write.parquet(str(tmp_path / "files"))  # INT96, as Spark's default is
        read = spark.read.format("logstore").option("path", str(path)).option("stream", zone)
        rows = read.schema("t timestamp").load().selectExpr("unix_micros(t) AS us").collect()
        assert sorted(row.us for row in rows) == wanted
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    texts = ["0001-01-01 00:00:00.000000", "1880-01-01 00:00:00.000000",
             "1970-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999"]  # fmt: skip
    parquet = pytest.importorskip("pyarrow.parquet")
    (file,) = (tmp_path / "files").glob("*.parquet")
    assert parquet.ParquetFile(file).schema.column(0).physical_type == "INT96"
    ok("import", path, file, "--stream", "imported", "--schema", "none")
    with logstore.open(path, encoding="utf-8") as store:
        assert sorted(entry.fields["t"] for entry in store.stream(zone)) == [
            f"{each}Z" for each in texts
        ]
        assert sorted(entry.fields["t"] for entry in store.stream("imported")) == texts


def test_ids_by_their_columns_and_the_first_that_is_refused(path: Path) -> None:
    """Without a session: the sink as Spark's planner and its workers have it."""
    from datetime import UTC, datetime

    from logstore.errors import IDOrderError
    from logstore.spark_io import publishing, spark_options
    from logstore.spark_io.sink import BatchSink

    pa = pytest.importorskip("pyarrow")

    def wrote(stream: str, **columns: Any) -> list[str]:
        options = spark_options.parse_write({"path": str(path), "stream": stream}, streaming=False)
        sink = BatchSink(options, publishing.begin(options, overwrite=False), overwrite=False)
        batch = pa.record_batch(columns | {"f": ["a", "b", "c"]})
        parts = [batch.slice(0, 1), batch.slice(1, 1), batch.slice(2, 1)]
        messages = [sink.write(iter([part])) for part in parts]
        try:
            sink.commit(messages)
        finally:
            sink.abort(messages)
        return [id for id, _ in entries(path, stream)]

    assert wrote("both", ms=[7, 7, 8], seq=[1, 2, 0]) == ["7-1", "7-2", "8-0"]
    assert wrote("alone", ms=[7, 8, 9]) == ["7-0", "8-0", "9-0"]
    times = [datetime(2013, 7, 1, hour, tzinfo=UTC) for hour in range(3)]
    first = int(times[0].timestamp()) * 1000
    at = pa.array(times, pa.timestamp("us", tz="UTC"))
    assert wrote("timed", ts=at) == [f"{first + 3_600_000 * hour}-0" for hour in range(3)]
    assert wrote("own", id=["6-0", "6-1", "7-0"], ts=at, ms=[1, 1, 1]) == ["6-0", "6-1", "7-0"]
    with make_store(path) as store:
        before = store["old"].info()
    with pytest.raises(IDOrderError, match=r"3-0 is not above.*5-0"):
        wrote("old", id=["3-0", "4-0", "9-0"])
    with make_store(path) as store:
        assert [id for id, _ in rows_of(store["old"])] == ["5-0"]
        assert store["old"].info() == before
    assert leftovers(path) == []


def test_modes(spark: Any, path: Path) -> None:
    one = spark.sql("SELECT '1-0' AS id, 'x' AS f")
    with pytest.raises(Exception, match=r"IDOrderError.*1-0 is not above.*5-0"):
        write(one, path, stream="old")
    with pytest.raises(Exception, match="StreamExistsError"):
        write(one, path, stream="old", ifExists="error")
    write(one, path, stream="old", ifExists="ignore")
    assert entries(path, "old") == [("5-0", {b"a": b"1"})]
    write(one, path, "overwrite", stream="old")
    assert entries(path, "old") == [("1-0", {b"f": b"x"})]
    write(one, path, stream="new", ifExists="error")
    write(one.where("f = 'y'"), path, "overwrite", stream="new")
    assert entries(path, "new") == []
    assert leftovers(path) == []


def test_one_stream_that_is_refused_refuses_all(spark: Any, path: Path) -> None:
    frame = spark.sql(
        "SELECT '9-0' AS id, 'fresh' AS stream, 'x' AS f UNION ALL SELECT '5-0', 'old', 'x'"
    ).coalesce(1)
    with pytest.raises(Exception, match="5-0 is not above"):
        write(frame, path)
    with make_store(path) as store:
        assert store.streams() == [b"old"]
    assert leftovers(path) == []


@pytest.mark.parametrize(
    ("query", "options", "words"),
    [
        ("SELECT 1 AS a", {}, "Give option 'stream'"),
        ("SELECT '1' AS id, 1 AS a", {"stream": "s"}, "'1' is no ID"),
        ("SELECT 1 AS id, 1 AS a", {"stream": "s"}, "column 'id' of int32 cannot be the ID"),
        ("SELECT '1-0' AS id", {"stream": "s"}, "an entry needs a field"),
        ("SELECT array(1) AS a", {"stream": "s"}, "column 'a' of list"),
        ("SELECT 1 AS a", {"stream": "s", "idColum": "a"}, "did you mean 'idColumn'"),
        ("SELECT 1 AS a", {"stream": "s", "idColumn": "b"}, "there is no column 'b'"),
        ("SELECT 1 AS a", {"stream": "s", "ifExists": "b"}, "option 'ifExists' is append"),
        ("SELECT int(null) AS a", {"stream": "s"}, "an entry needs at least one field"),
        (
            "SELECT concat(10 - id, '-0') AS id, 1 AS a FROM range(0, 5, 1, 1)",
            {"stream": "s"},
            "do not come in the order of their IDs",
        ),
        (
            "SELECT concat(id % 100 + 1, '-0') AS id, 1 AS a FROM range(0, 200, 1, 2)",
            {"stream": "s"},
            "interleave",
        ),
    ],
)
def test_invalid_writes_are_refused(
    spark: Any, path: Path, query: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(Exception, match="Error") as raised:
        write(spark.sql(query), path, **options)
    assert words in str(raised.value)
    with make_store(path) as store:
        assert store.streams() == [b"old"]
    assert leftovers(path) == []


def test_a_job_that_fails_half_way_leaves_nothing(spark: Any, path: Path) -> None:
    """One task has staged its file when another one fails; the driver gives both back."""
    frame = spark.range(0, 40_000, 1, 2).selectExpr(
        "CASE WHEN id = 39999 THEN raise_error('on purpose') ELSE id END AS n"
    )
    with pytest.raises(Exception, match="on purpose"):
        write(frame, path, stream="s")
    with logstore.open(path) as store:
        assert store.streams() == [b"old"]
        while leftovers(path):  # a task that had not heard of it may just have made its file
            time.sleep(0.01)


def test_staged_files_of_a_dead_driver_are_removed_at_the_next_open(path: Path) -> None:
    """A driver that was killed behind its tasks: a pin of a process that is gone, and its file."""
    import subprocess
    import sys

    program = (
        "import sys, pathlib\n"
        "from logstore.engine.shm import process_identity as process\n"
        "from logstore.fs import LOCAL\n"
        "from logstore.log import stagefile\n"
        "import time\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "stage = stagefile.begin(LOCAL, path, *process.identity(), time.time_ns() // 1000000)\n"
        "writer = stagefile.StageWriter(LOCAL, path, stage)\n"
        "writer.add(b's', True, bytearray(b'x'), 1, (1, 0), (1, 0))\n"
        "writer.finish()\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert len(leftovers(path)) == 2
    with logstore.open(path):
        while leftovers(path):
            time.sleep(0.01)


def test_an_erasure_ends_a_write_and_nothing_is_lost_unsaid(path: Path) -> None:
    """Staged files go with an erasure; the commit behind it is refused, as a whole."""
    from logstore.errors import SnapshotExpiredError
    from logstore.spark_io import publishing, spark_options
    from logstore.spark_io.sink import BatchSink

    pa = pytest.importorskip("pyarrow")
    options = spark_options.parse_write({"path": str(path), "stream": "s"}, streaming=False)
    stage = publishing.begin(options, overwrite=False)
    sink = BatchSink(options, stage, overwrite=False)
    message = sink.write(iter([pa.record_batch({"a": ["1", "2"]})]))
    assert [pinfile.is_ours(name) for name in leftovers(path)] == [True, True]
    with make_store(path) as store:
        store["old"].delete("5-0", purge=True)
        assert leftovers(path) == []
    with pytest.raises(SnapshotExpiredError, match="run the job again"):
        sink.commit([message])
    assert entries(path, "s") == []
    with pytest.raises(SnapshotExpiredError, match=r"stage .* is gone"):
        sink.write(iter([pa.record_batch({"a": ["1", "2"]})]))
    sink = BatchSink(options, publishing.begin(options, overwrite=False), overwrite=False)
    sink.commit([sink.write(iter([pa.record_batch({"a": ["1", "2"]})])), None])
    assert [fields for _, fields in entries(path, "s")] == [{b"a": b"1"}, {b"a": b"2"}]
    assert leftovers(path) == []


def test_an_executor_without_the_mount_is_told_so(path: Path) -> None:
    """And nothing is written to a folder that only has the store's name."""
    from logstore.spark_io import publishing, spark_options
    from logstore.spark_io.sink import BatchSink

    pa = pytest.importorskip("pyarrow")
    options = spark_options.parse_write({"path": str(path), "stream": "s"}, streaming=False)
    sink = BatchSink(options, publishing.begin(options, overwrite=False), overwrite=False)
    path.rename(path.with_name("elsewhere"))
    path.mkdir()
    with pytest.raises(NotAStoreError, match="as by a mount"):
        sink.write(iter([pa.record_batch({"a": ["1"]})]))
    assert list(path.iterdir()) == []


def test_published_writes_survive_a_rebuild(path: Path) -> None:
    """Two writes of given and of store-made IDs behind an open node, then the index is lost."""
    from logstore.spark_io import publishing, spark_options
    from logstore.spark_io.sink import BatchSink

    pa = pytest.importorskip("pyarrow")
    for ids in (["6-0", "6-1", "8-0"], None):
        columns = {"a": ["x", "y", "z"]} | ({"id": ids} if ids else {})
        options = spark_options.parse_write({"path": str(path), "stream": "old"}, streaming=False)
        sink = BatchSink(options, publishing.begin(options, overwrite=False), overwrite=False)
        sink.commit([sink.write(iter([pa.record_batch(columns)]))])
    with make_store(path) as store:
        store["old"].add({"a": "last"})
        store["old"].delete("6-1")
        wanted, info = rows_of(store["old"]), store["old"].info()
    assert [fields[0][1] for _, fields in wanted] == [b"1", b"x", b"z", b"x", b"y", b"z", b"last"]
    shutil.rmtree(path / "index")
    with make_store(path) as store:
        assert rows_of(store["old"]) == wanted
        assert store["old"].info() == info


def test_a_damaged_staged_file_is_refused(path: Path) -> None:
    from logstore.errors import CorruptionError
    from logstore.spark_io import publishing, spark_options
    from logstore.spark_io.sink import BatchSink

    pa = pytest.importorskip("pyarrow")
    options = spark_options.parse_write({"path": str(path), "stream": "s"}, streaming=False)
    stage = publishing.begin(options, overwrite=False)
    sink = BatchSink(options, stage, overwrite=False)
    message = sink.write(iter([pa.record_batch({"a": ["abc", "2"]})]))
    file = path / "pins" / message.runs[0].file
    assert b"abc" in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(b"abc", b"abd"))  # a node that is sound
    with pytest.raises(CorruptionError, match="is damaged"):
        sink.commit([message])
    sink.abort([message, None])
    assert leftovers(path) == []


def test_a_store_that_is_not_there_is_made(spark: Any, tmp_path: Path) -> None:
    """With the folders above it, as Parquet's writer makes its directory; or refused."""
    path = tmp_path / "new" / "store"
    one = spark.sql("SELECT '1-0' AS id, 'x' AS f")
    with pytest.raises(Exception, match=r"NotAStoreError.*there is no such directory"):
        write(one, path, stream="s", create="false")
    with pytest.raises(Exception, match="'ifExists' goes with mode 'append' only"):
        write(one, path, "overwrite", stream="s", ifExists="ignore")
    with pytest.raises(Exception, match="an entry needs a field"):
        write(one.drop("f"), path, stream="s")
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        write(one, path, "overwrite", stream="s")
    assert entries(path, "s") == [("1-0", {b"f": b"x"})]
    assert leftovers(path) == []
    write(spark.sql("SELECT '2-0' AS id, 'y' AS f"), path, stream="s", create="false")
    assert [id for id, _ in entries(path, "s")] == ["1-0", "2-0"]


def test_no_store_is_made_of_what_is_something_else(tmp_path: Path) -> None:
    from logstore.spark_io import publishing, spark_options

    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("mine")
    folder.mkdir()
    (folder / "part-0.parquet").write_text("mine")
    damaged = tmp_path / "damaged"
    make_store(damaged).close()
    (damaged / "STORE").write_bytes(b"x" * 40)
    for path, words in (
        (file, "give a directory, not a file"),
        (file / "below", "give a directory, not a file"),
        (folder, "holds other files and no store"),
        (damaged, "is not the marker of a store"),
    ):
        with pytest.raises(Error, match=words):
            publishing.begin(
                spark_options.parse_write({"path": str(path), "stream": "s"}, streaming=False),
                overwrite=True,
            )
    assert (file.read_text(), [each.name for each in folder.iterdir()]) == (
        "mine",
        ["part-0.parquet"],
    )
