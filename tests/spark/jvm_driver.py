"""A session with the reader in the JVM: python -m tests.spark.jvm_driver FOLDER HOW, in a process.

HOW is how the jar gets there: ``start`` (in spark.jars), ``added`` (by `register`) or ``none``.
Prints the answers of `CHECKS` of that name, as JSON; `test_jvm_source` compares them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tests.recovery.shipped import bucket_server, empty_bucket, ship
from tests.scan.scanned_stores import make_store
from tests.spark import conftest

# A file system of Spark's own jars takes s3:// for links, here to the files of the bucket's server.
LINKS = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
LOCAL = "org.apache.hadoop.fs.LocalFileSystem"
TYPED = "n int, v double, d decimal(6,2), name string, bad int, ts timestamp, id string"
FAKE = '#!/bin/sh\necho \'{"version":"9.9","format":3}\'\nexec cat >/dev/null\n'
RUBBISH = "#!/bin/sh\necho 'and why' >&2\necho 'hello there'\nexec cat >/dev/null\n"


def fill(path: Path) -> None:
    """The stores of the checks: some values are no numbers, some entries lack fields."""
    with make_store(path / "store") as store:
        rows = ({"n": n, "v": f"{n}.5", "d": f"{n}.25", "name": f"é{n}"} for n in range(400))
        store["laps"].add_many((row | {"bad": row["n"]} for row in rows), batch=30)
        store["laps"].add({"bad": "no number", "other": ""})
        store["laps"].delete(store["laps"].first.id)  # type: ignore[union-attr]
        store["pits"].add_many(({"n": n} for n in range(10)), batch=3)


class Driver:
    """A session, and the stores that it reads."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder = folder
        self.spark = spark

    def load(self, schema: str = "", spark: Any = None, **options: str) -> Any:
        """The stream of laps."""
        given = {"path": str(self.folder / "store"), "stream": "laps"} | options
        reader = (spark or self.spark).read.format("logstore").options(**given)
        return (reader.schema(schema) if schema else reader).load()

    def plan(self, frame: Any) -> str:
        """The physical plan."""
        with redirect_stdout(StringIO()) as told:
            frame.explain()
        return told.getvalue()

    def rows(self, *, reader: str, schema: str = "", **options: str) -> list[str]:
        """All rows, as text."""
        frame = self.load(schema, reader=reader, **options)
        assert ("read by the JVM" in self.plan(frame)) is (reader == "jvm")
        return sorted(str(row) for row in frame.collect())

    # -- with the jar ------------------------------------------------------------------------
    def names_the_reader(self) -> list[str]:
        """The plans of loads by one and the other."""
        table = self.load(table="groups")
        frames = self.load(), self.load(reader="python"), table, self.load(reader="jvm")
        return [self.plan(frame) for frame in frames]

    def same_schemas(self) -> list[bool]:
        """Whether both have the same columns without a schema."""
        return [
            self.load(reader="jvm", **each).schema == self.load(reader="python", **each).schema
            for each in ({}, {"typedColumns": "false"})
        ]

    def same_rows(self) -> list[int]:
        """How many rows both give, of several schemas and modes; -1 where they differ."""
        cases: list[dict[str, Any]] = [
            {},
            {"schema": TYPED},
            {"schema": "n bigint, _corrupt_record string, bad int"},
            {"schema": "n int, bad int", "mode": "DROPMALFORMED"},
            {"schema": "stream string, store string, n int"},
            {"schema": "fields map<string,binary>, id_key binary", "minPartitions": "5"},
        ]
        found: list[int] = []
        for each in cases:
            here, there = self.rows(reader="jvm", **each), self.rows(reader="python", **each)
            found.append(len(here) if here == there else -1)
        return found

    def same_rows_of_what_was_shipped(self) -> list[int]:
        """The same of a store that was shipped to a directory, by its path and by its URI."""
        place = self.folder / "shipped"
        with make_store(self.folder / "store") as store:
            ship(store, place.as_uri())
        found: list[int] = []
        for path in (str(place), place.as_uri()):
            here, there = (self.rows(reader=each, path=path) for each in ("jvm", "python"))
            found.append(len(here) if here == there else -1)
        return found

    def bucket_by_hadoop(self) -> list[Any]:
        """A store in a bucket: who reads it while Hadoop knows no file system for it, the rows of
        both readers when it does, and the error when Hadoop alone does not find it."""
        bucket, uri = self.folder / "s3", "s3://bucket/laps"
        hadoop = self.spark.sparkContext._jsc.hadoopConfiguration()
        with bucket_server(bucket, int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])):
            with make_store(self.folder / "store") as store:
                ship(store, uri)
            found: list[Any] = [self.plan(self.load(path=uri))]
            hadoop.set("fs.s3.impl", LINKS)
            hadoop.set("fs.viewfs.overload.scheme.target.file.impl", LOCAL)
            hadoop.set("fs.viewfs.mounttable.bucket.link./laps", (bucket / "bucket/laps").as_uri())
            here, there = (self.rows(reader=each, path=uri) for each in ("jvm", "python"))
            found.append(len(here) if here == there else -1)
            hadoop.set("fs.viewfs.mounttable.bucket.link./laps", (bucket / "nowhere").as_uri())
            self.spark.sparkContext._jvm.org.apache.hadoop.fs.FileSystem.closeAll()
            found.append(self.error(self.load(path=uri, reader="jvm", mode="FAILFAST").collect))
        hadoop.unset("fs.s3.impl")
        return found

    def prunes_without_another_row(self) -> list[int]:
        """Counts and sums over a pruned schema, by both readers."""
        found: list[int] = []
        for mode in ("PERMISSIVE", "DROPMALFORMED"):
            for reader in ("jvm", "python"):
                frame = self.load("n int, bad int", reader=reader, mode=mode)
                found += [frame.count(), frame.selectExpr("count(n)").first()[0]]
        frame = self.load("n int, bad int, _corrupt_record string")
        return [*found, frame.selectExpr("count(_corrupt_record)").first()[0]]

    def one_moment(self) -> list[int]:
        """A frame reads one moment; what is loaded later has what was added since."""
        frame = self.load(stream="pits")
        counts = [frame.count()]
        with make_store(self.folder / "store") as store:
            store["pits"].add({"n": 11})
        return [*counts, frame.count(), self.load(stream="pits").count()]

    def wrong_options(self) -> list[list[str]]:
        """The errors of both readers, alike."""
        cases: list[dict[str, str]] = [
            {"foo": "1"},
            {"stream": "nobody"},
            {"path": str(self.folder / "nowhere")},
            {"mode": "x"},
            {"schema": "ts int"},
            {"schema": "n int", "maxRowsPerTrigger": "1"},
            {"reader": "quick"},
        ]
        found: list[list[str]] = []
        for each in cases:
            readers: tuple[dict[str, str], ...] = ({"reader": "jvm"}, {"reader": "python"})
            told = [self.error(lambda o=given | each: self.load(**o).count()) for given in readers]
            found.append(told)
        return [*found, [self.error(lambda: self.load(reader="jvm", table="groups"))]]

    def error(self, work: Callable[[], object]) -> str:
        """The error of something."""
        try:
            return f"none: {work()}"
        except Exception as error:  # noqa: BLE001  (what it says is the answer)
            return f"{type(error).__name__}: {error}"

    def writes(self) -> list[Any]:
        """Writes of all kinds with the jar there."""
        spark, path = self.spark, str(self.folder / "written")
        rows = spark.range(10).selectExpr("cast(id as string) n")
        into = {"path": path, "stream": "to"}
        rows.write.format("logstore").options(**into).mode("append").save()
        found: list[Any] = [self.load(**into).count()]
        rows.limit(3).write.format("logstore").options(**into).mode("overwrite").save()
        found.append(self.load(**into).count())
        using = f"USING logstore OPTIONS (path '{path}', stream 'to')"
        spark.sql(f"CREATE TABLE jvm_to {using}")
        row = "'to', '9999999999999-0', 9999999999999L, 0L, null, map('n', '7'), null, null"
        spark.sql(f"INSERT INTO jvm_to SELECT {row}")
        found.append(spark.sql("SELECT count(*), max(fields['n']) FROM jvm_to").first()[0])
        found.append("read by the JVM" in self.plan(spark.table("jvm_to")))
        spark.sql("DROP TABLE jvm_to")
        spark.sql(f"CREATE TEMPORARY VIEW jvm_view (n int) {using}")
        spark.sql("INSERT INTO jvm_view VALUES (8)")
        found.append(spark.sql("SELECT sum(n) FROM jvm_view").first()[0])
        return [*found, self.error(lambda: spark.sql(f"CREATE TABLE a {using} AS SELECT 1 n"))]

    def streams(self) -> list[Any]:
        """A streaming write, and a streaming read with a batch of the other reader in it."""
        spark, seen = self.spark, []
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        into = {"path": str(self.folder / "streamed"), "stream": "to", "producer": "p"}
        query = source.selectExpr("cast(value as string) v").writeStream.format("logstore")
        query = query.options(**into).option("checkpointLocation", str(self.folder / "c1"))
        query.trigger(availableNow=True).start().awaitTermination()
        del into["producer"]
        stream = spark.readStream.format("logstore").options(**into).load()

        def count(batch: Any, _: int) -> None:
            seen.append([batch.count(), self.load(spark=batch.sparkSession).count()])

        query = stream.writeStream.foreachBatch(count).trigger(availableNow=True)
        query.option("checkpointLocation", str(self.folder / "c2")).start().awaitTermination()
        return [self.load(**into).count() > 0, bool(seen) and seen[0][1]]

    def stream_read(self) -> list[Any]:
        """How many rows a streaming query has, and whether in several batches; who reads."""
        options = {"path": str(self.folder / "store"), "stream": "laps"}
        reader = self.spark.readStream.format("logstore").options(**options)
        stream = reader.option("maxRowsPerTrigger", 150).schema("n int").load()
        seen: list[int] = []
        query = stream.writeStream.foreachBatch(lambda batch, _: seen.append(batch.count()))
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        told = running.lastProgress["sources"][0]["description"]
        return [sum(seen), len(seen) > 1, told]

    def planners(self) -> list[int]:
        """The processes that plan for this JVM."""
        found: list[int] = []
        for each in Path("/proc").glob("[0-9]*"):
            try:
                command = (each / "cmdline").read_bytes()
                parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"logstore.spark_io.plan" in command and parent == self.jvm():
                found.append(int(each.name))
        return found

    def jvm(self) -> int:
        """The process of the driver's JVM."""
        return int(self.spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())

    def killed_planner(self) -> list[Any]:
        """A planner that is killed between two loads, and one that stops in the midst of one."""
        counts: list[Any] = [self.load().count()]
        (before,) = self.planners()
        os.kill(before, signal.SIGKILL)
        counts.append(self.load().count())
        (stopped,) = self.planners()
        os.kill(stopped, signal.SIGSTOP)
        self.spark.conf.set("spark.logstore.planTimeoutSeconds", "1")
        counts.append(self.error(self.load))
        self.spark.conf.unset("spark.logstore.planTimeoutSeconds")
        return [*counts, self.load().count(), self.planners() not in ([before], [stopped])]

    def other_planners(self) -> list[str]:
        """A planner of another version, one that says rubbish, one that is not there."""
        before, found = self.spark.conf.get("spark.logstore.python"), []
        for name, text in (("fake", FAKE), ("rubbish", RUBBISH), ("missing", "")):
            path = self.folder / name
            if text:
                path.write_text(text)
                path.chmod(0o755)
            self.spark.conf.set("spark.logstore.python", str(path))
            found.append(self.error(self.load))
        self.spark.conf.set("spark.logstore.python", before)
        return [*found, str(self.load().count())]

    def pins(self) -> list[bool]:
        """Whose the pins of plans are: they end with the driver's JVM."""
        self.load().count()
        with make_store(self.folder / "store") as store:
            return sorted({pin.pid == self.jvm() for pin in store.pins()})

    def threads(self) -> list[str]:
        """Who reads in this thread, in a new session of it, in a thread that is begun, and in the
        batches of a streaming query."""
        found = [self.reader_of(self.spark), self.reader_of(self.spark.newSession())]
        other = threading.Thread(target=lambda: found.append(self.reader_of(self.spark)))
        other.start()
        other.join()
        source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        query = source.writeStream.foreachBatch(
            lambda batch, _: found.append(self.reader_of(batch.sparkSession))
        )
        query.trigger(availableNow=True).start().awaitTermination()
        return found[:4]

    def reader_of(self, spark: Any) -> str:
        """Who reads a load of a session."""
        plan = self.plan(self.load("n int", spark=spark).agg({"n": "count"}))
        assert self.load("n int", spark=spark).count() == 400
        return "jvm" if "read by the JVM" in plan else "python"

    def without_the_jar(self) -> list[str]:
        """What the options of the reader say where there is none."""
        counts = [str(self.load(reader=each).count()) for each in ("auto", "python")]
        return [*counts, self.error(lambda: self.load(reader="jvm").count())]


CHECKS: dict[str, tuple[Callable[[Driver], Any], ...]] = {
    "start": (
        Driver.names_the_reader,
        Driver.same_schemas,
        Driver.same_rows,
        Driver.same_rows_of_what_was_shipped,
        Driver.bucket_by_hadoop,
        Driver.prunes_without_another_row,
        Driver.one_moment,
        Driver.wrong_options,
        Driver.writes,
        Driver.streams,
        Driver.stream_read,
        Driver.threads,
        Driver.pins,
        Driver.killed_planner,
        Driver.other_planners,
    ),
    "added": (Driver.threads,),
    "none": (Driver.without_the_jar,),
}


def main(folder: str, how: str) -> None:
    """Make the stores, and ask."""
    from logstore.spark_io import jar, register

    path = Path(folder)
    fill(path)
    if how == "start":
        of_bucket = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{empty_bucket(path / 's3')}",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        os.environ.update(of_bucket)  # for the planner, and the workers of Python
    spark = conftest.session(jar() if how == "start" else "")
    if how == "added":
        register(spark, reader="jvm")
    driver = Driver(path, spark)
    found: dict[str, Any] = {"version": spark.version}
    for check in CHECKS[how]:
        try:
            found[check.__name__] = check(driver)
        except Exception as error:  # noqa: BLE001  (the other checks are made)
            found[check.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
