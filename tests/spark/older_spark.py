"""What an older Spark must do without the jar: python -m tests.spark.older_spark STORE TOKEN.

Spark is on the path. Prints the version, then a line for each answer, which `test_older_spark`
compares.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.spark import conftest

STREAMED = "streamed"


def main(path: str, token: str) -> None:
    """Ask a store of 100 rows, in a session of its own."""
    from pyspark.errors import StreamingQueryException

    spark = conftest.session(jars="")
    print(spark.version)

    def load(schema: str = "", **options: str) -> Any:
        reader = spark.read.format("logstore").options(stream="x", **options)
        return (reader.schema(schema) if schema else reader).load(path)

    print(load().count())
    frame = load("n int, v double, ts timestamp")
    print(frame.selectExpr("sum(n)", "sum(v)", "count(ts)").first())
    frame = load(asOf=token)
    print(frame.selectExpr("count(fields['n'])", "count(pairs)", "max(id_key) is null").first())
    writer = load().write.format("logstore").mode("append")
    writer.options(path=path, stream="y").save()
    spark.sql(f"CREATE TABLE older USING logstore OPTIONS (path '{path}', stream 'y')")
    print(spark.sql("SELECT count(*) FROM older").first())
    print([row.col_name for row in spark.sql("DESCRIBE older").collect()])
    spark.sql("DROP TABLE older")
    query = spark.readStream.format("logstore").options(path=path, stream="x").load()
    while True:
        try:
            query.writeStream.format("memory").queryName("q").start().processAllAvailable()
            print(STREAMED)
            return
        except StreamingQueryException as error:
            print(error, file=sys.stderr)
            if conftest.SLOW_WORKER in str(error):
                continue
            lines = str(error).splitlines()
            print(next((each for each in lines if "OptionError" in each), lines))
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
