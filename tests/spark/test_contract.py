"""Prevents a source that breaks what Spark asks of one where Spark itself does not look.

Spark compares the first batch of a task with the schema and no other, sends readers pickled, takes
nothing but a list of partitions, and makes the data source anew from its options for a write. Most
of it without a session: the parts as Spark's planner and workers have them.
"""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.corruption import frames
from tests.scan.scanned_stores import make_store
from tests.spark.tables import source_of

SCHEMA = (
    "stream string, id string, ms bigint, seq decimal(20,0), ts timestamp, "
    "fields map<string,binary>, id_key binary, pairs array<struct<field:string,value:string>>, "
    "n int, v double, w float, raw binary, flag boolean, day date, at timestamp_ntz, "
    "cost decimal(9,2), _corrupt_record string, store string"
)
BATCH_ROWS = 50


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Values that fit their types, that do not, and that are not there, in turns."""
    pytest.importorskip("pyspark")
    path = tmp_path_factory.mktemp("contract") / "store"
    with make_store(path) as store:
        for n in range(1, 401):
            odd = {"n": "x", "day": "y"} if n % 90 == 0 else {"n": n, "day": "2013-07-01"}
            more = {"v": n / 2, "w": n / 4, "raw": b"\xff", "flag": "true"} if n % 100 < 50 else {}
            store["x"].add(
                {**odd, **more, "cost": "1.25", "at": "2013-07-01 00:00:00"}, id=f"{n}-1"
            )
    return path


def parsed(schema: str) -> Any:
    """A schema as Spark makes it of its text, without a session."""
    from pyspark.sql import types

    kinds: dict[str, Any] = {
        "bigint": types.LongType(), "double": types.DoubleType(), "float": types.FloatType(),
        "binary": types.BinaryType(), "boolean": types.BooleanType(), "date": types.DateType(),
        "int": types.IntegerType(), "string": types.StringType(),
        "timestamp": types.TimestampType(), "timestamp_ntz": types.TimestampNTZType(),
        "decimal(9,2)": types.DecimalType(9, 2),
        "decimal(20,0)": types.DecimalType(20, 0),
        "map<string,binary>": types.MapType(types.StringType(), types.BinaryType()),
        "array<struct<field:string,value:string>>": types.ArrayType(
            types.StructType(
                [types.StructField(name, types.StringType()) for name in ("field", "value")]
            )
        ),
    }  # fmt: skip
    parts = (each.split(" ", 1) for each in schema.split(", "))
    return types.StructType([types.StructField(name, kinds[kind]) for name, kind in parts])


def asked(schema: Any) -> Any:
    """The Arrow schema that Spark compares the first batch with."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def pickled(what: Any) -> Any:
    """As it comes to a worker."""
    from pyspark import cloudpickle

    return cloudpickle.loads(cloudpickle.dumps(what))


def batches(reader: Any, *between: Any) -> list[Any]:
    """All batches, read by what came to a worker, of a list of partitions."""
    partitions = reader.partitions(*between)
    assert type(partitions) is list
    there = pickled(reader)  # behind the plan, with whatever it left on the reader
    return [batch for each in partitions for batch in there.read(pickled(each))]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_every_batch_has_the_schema_and_not_the_first_alone(
    path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logstore.spark_io import spark_columns

    monkeypatch.setattr(spark_columns, "BATCH_ROWS", BATCH_ROWS)
    schema = parsed(SCHEMA)
    found = batches(source_of(path, stream="x", mode=mode, minPartitions="2").reader(schema))
    assert len(found) >= 8
    for batch in found:
        assert batch.schema.equals(asked(schema))
        batch.validate(full=True)
    assert sum(each.num_rows for each in found) == (396 if mode == "DROPMALFORMED" else 400)
    assert sum(each.column("_corrupt_record").null_count for each in found) == 396
    streaming = source_of(path, stream="x", mode=mode).streamReader(schema)
    start = streaming.initialOffset()
    end = streaming.latestOffset(start, streaming.getDefaultReadLimit())
    again = batches(streaming, start, end)
    assert len(again) >= 8
    assert all(batch.schema.equals(asked(schema)) for batch in again)
    streaming.stop()


def test_tables_have_their_schema(path: Path, tmp_path: Path) -> None:

    from logstore.spark_io import tables

    copy = Path(shutil.copytree(path, tmp_path / "store"))
    frames.spoil(copy, frames.of(copy, 1)[-1])
    for table in tables.TABLES:
        schema = parsed(source_of(copy, table=table).schema())
        for batch in batches(source_of(copy, table=table).reader(schema)):
            assert batch.schema.equals(asked(schema))


def test_a_sink_is_made_of_its_options_alone(path: Path) -> None:
    """In another process than the one that checked it; tasks without rows tell something, too."""
    import pyarrow as pa

    schema = parsed("id string, f string")
    options = {"path": str(path), "stream": "written", "idcolumn": "id"}
    rows = pa.record_batch({"id": ["1-0", "2-0"], "f": ["a", "b"]})
    for overwrite in (False, True):
        source = type(source_of(path))(dict(options))
        sink = source.writer(schema, overwrite)
        messages = [pickled(sink).write(iter(each)) for each in ([rows], [], [rows.slice(0, 0)])]
        assert messages[1].runs == messages[2].runs == []
        tried_again = pickled(sink).write(iter([rows]))
        files = {run.file for each in (messages[0], tried_again) for run in each.runs}
        assert len(files) == 2  # so the one that nobody tells of is not published
        pickled(sink).commit([None, *pickled(messages)])
        with make_store(path) as store:
            assert [str(entry.id) for entry in store["written"].range()] == ["1-0", "2-0"]
    streaming = type(source_of(path))({**options, "producer": "p", "stream": "streamed"})
    sink = streaming.streamWriter(schema, False)
    pickled(sink).commit([pickled(sink).write(iter([])), None], 0)
    pickled(sink).abort([None], 1)


def test_the_hooks_of_spark_that_are_met_and_left_out(path: Path) -> None:
    """A hook that a newer Spark has, and this does not know, fails here: see docs/spark.md."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

    from logstore.spark_io import source, stream_source
    from logstore.spark_io.tables import DamageReader, TableReader

    def public(of: type) -> set[str]:
        return {name for name in vars(of) if not name.startswith("_")}

    assert public(DataSourceReader) == {"pushFilters", "partitions", "read"}
    for reader in (source.LogstoreReader, TableReader, DamageReader):
        assert reader.pushFilters is DataSourceReader.pushFilters
    streaming = stream_source.LogstoreStreamReader
    assert issubclass(streaming, DataSourceStreamReader)
    # By the number of its parameters Spark knows whether it may hand over a limit.
    assert list(inspect.signature(streaming.latestOffset).parameters) == ["self", "start", "limit"]
    assert source.LogstoreSource.simpleStreamReader is DataSource.simpleStreamReader


PLAN = """
import sys
from pyspark.worker_util import setup_memory_limits
from logstore.spark_io.source import LogstoreSource
setup_memory_limits(int(sys.argv[2]))
LogstoreSource({"path": sys.argv[1], "stream": "x"}).schema()
"""


def test_a_planner_whose_memory_is_limited_is_told_why(path: Path) -> None:
    command = [sys.executable, "-c", PLAN, str(path), "4096"]
    root = Path(__file__).resolve().parent.parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert "1 TiB of addresses, and no memory by that" in done.stderr
    assert "PYSPARK_PLANNER_MEMORY_MB" in done.stderr
