"""What a session of Spark Connect must do: python -m tests.spark.connect_client URL STORE READER.

READER is who is to read: ``jvm`` where the server has the jar, else ``python``.

The client has no Java and no SparkContext: the source travels to the server, whose planner and
workers run it. Prints a line for each answer; `test_connect` compares them.
"""

from __future__ import annotations

import sys
import threading
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

ADDED = "added"


def reader_of(frame: Any) -> str:
    """Who reads, by the plan."""
    with redirect_stdout(StringIO()) as told:
        frame.explain()
    return "jvm" if "read by the JVM" in told.getvalue() else "python"


def added(url: str, path: str) -> None:
    """Who reads in a session to which the jar is sent, in a thread of it, and in another session;
    the server has none."""
    from pyspark.sql import SparkSession

    from logstore.spark_io import register

    first, second = (SparkSession.builder.remote(url).create() for _ in range(2))
    found: list[str] = []

    def ask(spark: Any) -> None:
        frame = spark.read.format("logstore").options(path=path, stream="x").load()
        found.append(f"{reader_of(frame)} {frame.where('ms > 0').count()} {len(frame.collect())}")

    register(second)
    register(first, reader="jvm")
    ask(first)
    thread = threading.Thread(target=ask, args=(first,))
    thread.start()
    thread.join()
    ask(second)
    print(*found, sep="\n")
    first.stop()
    second.stop()


def main(url: str, path: str, reader: str) -> None:
    """Read, write, ask SQL, stream, and fail."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from logstore.spark_io import register

    spark = SparkSession.builder.remote(url).getOrCreate()
    register(spark)

    def load(**options: Any) -> Any:
        return spark.read.format("logstore").options(path=path, **options).load()

    print(type(spark).__module__)
    print(reader_of(load(stream="x", reader=reader)), reader_of(load(stream="x")))
    print(load(stream="x", reader=reader).count())
    writer = load(stream="x", endId="9").write.format("logstore").mode("append")
    writer.options(path=path, stream="y").save()
    spark.sql(f"CREATE TABLE connected USING logstore OPTIONS (path '{path}', stream 'y')")
    spark.sql("INSERT INTO connected SELECT 'y', '10-0', 10L, 0L, null, map('n', '10'), null, null")
    print(spark.sql("SELECT count(*), max(ms) FROM connected").first())
    spark.sql("DROP TABLE connected")
    streamed = spark.readStream.format("logstore").options(path=path, stream="x").load()
    query = (
        streamed.writeStream.format("logstore")
        .options(path=path, stream="z", producer="p", idColumn="*")
        .option("checkpointLocation", str(Path(path).with_name("checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    print(query.awaitTermination(120), load(stream="z").count())
    try:
        print(load(stream="nobody").columns)  # `load` itself asks the server nothing
    except PySparkException as error:
        print("StreamNotFoundError" in str(error))
    spark.stop()


if __name__ == "__main__":
    if sys.argv[3] == ADDED:
        added(*sys.argv[1:3])
    else:
        main(*sys.argv[1:])
