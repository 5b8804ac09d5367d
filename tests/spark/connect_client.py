"""What a session of Spark Connect must do: python -m tests.spark.connect_client URL STORE.

The client has no Java and no SparkContext: the source travels to the server, whose planner and
workers run it. Prints a line for each answer; `test_connect` compares them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def main(url: str, path: str) -> None:
    """Read, write, ask SQL, stream, and fail."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from logstore.spark_io import register

    spark = SparkSession.builder.remote(url).getOrCreate()
    register(spark)

    def load(**options: Any) -> Any:
        return spark.read.format("logstore").options(path=path, **options).load()

    print(type(spark).__module__)
    print(load(stream="x").count())
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
    main(*sys.argv[1:])
