"""Prevents a read of a URI that differs from one of the store that was shipped there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

import logstore
from logstore.errors import NotAStoreError, OptionError
from logstore.spark_io import planning, spark_options
from logstore.spark_io.split_tasks import SplitPartition
from tests.recovery.shipped import URI, at_once, bucket_server, empty_bucket, filled, ids, ship
from tests.scan.scanned_stores import make_store
from tests.spark.stores import rows

SCHEMA = "id string, a string, n int"


def load(spark: Any, path: object, **options: Any) -> Any:
    reader = spark.read.format("logstore").schema(SCHEMA).options(path=str(path), **options)
    return reader.option("streams", "*").load()


def test_a_store_in_an_object_store_is_read_where_it_is(spark: Any, tmp_path: Path) -> None:
    """Sealed nodes, an open one, tombstones; no file of the plan is needed by the tasks."""
    port = empty_bucket(tmp_path / "s3")
    uri = URI.format(port=port)
    with bucket_server(tmp_path / "s3", port):
        with filled(tmp_path / "store") as store:
            store.stream("open").add({"a": "1", "n": "7"})
            store.stream("x").delete(ids(store)[7])
            ship(store, uri)
        want = load(spark, tmp_path / "store").collect()
        assert load(spark, uri, minPartitions=5).collect() == want
        assert load(spark, uri, startId=want[50].id).count() == len(want) - 49  # and the open one
        groups = spark.read.format("logstore").options(path=uri, table="streams").load()
        assert {row.stream: row.length for row in groups.collect()} == {"open": 1, "x": 15_999}
        with logstore.open(tmp_path / "other", background=False) as other:
            other.stream("x").add({"a": "of another", "n": "1"}, id="1-0")
            ship(other, uri.replace("stores/a", "stores/b"))
        every = uri.replace("stores/a", "stores/*")
        reader = spark.read.format("logstore").schema("store string").option("stream", "x")
        counts = reader.load(every).groupBy("store").count().collect()
        at = "s3://bucket/stores"
        assert dict(map(tuple, counts)) == {f"{at}/a": 15_999, f"{at}/b": 1}
        planned = load(spark, uri)
        assert planned.count() == len(want)
        made = planning.plan(spark_options.parse_read({"path": uri, "streams": "*"}), 2, ()).splits
        assert all(len(cloudpickle.dumps(SplitPartition(each))) < 64 * 1024 for each in made)
    with pytest.raises(Exception, match="reading the manifest at s3://bucket/stores/a") as caught:
        load(spark, uri).count()
    assert "secret" not in str(caught.value)
    with pytest.raises(Exception, match=r"FileSystemError: .*s3://bucket/stores/a") as caught:
        planned.count()  # its tasks find no server
    assert "secret" not in str(caught.value)


def test_a_store_that_is_being_shipped(tmp_path: Path) -> None:
    """Before its first ship ends it is an error, also among others; later what was there before."""
    port = empty_bucket(tmp_path / "s3")
    remote, here = URI.format(port=port), str(tmp_path / "stores" / "a")
    seen: list[str] = []

    def count(at: str) -> int:
        return len(rows("a string", path=at, stream="x"))

    with bucket_server(tmp_path / "s3", port):
        with make_store(tmp_path / "other") as other:
            other.stream("x").add({"a": "1"})
            for uri in (remote, here):
                ship(other, uri.replace("stores/a", "stores/b"))

        def not_yet() -> None:
            for at in (uri, uri.replace("stores/a", "stores/*")):
                with pytest.raises(NotAStoreError, match="its first ship has not ended") as caught:
                    count(at)
                seen.append(str(caught.value))

        with filled(tmp_path / "store") as store:
            for uri in (remote, here):
                with at_once(4, not_yet) as progress:
                    ship(store, uri, progress)
                store.stream("x").add({"a": "late"})
                with at_once(1, lambda uri=uri: seen.append(str(count(uri)))) as progress:
                    ship(store, uri, progress)
                assert seen[-1] == str(count(uri) - 1)
                assert count(uri.replace("stores/a", "stores/*")) == count(uri) + 1
                for again in (str(tmp_path / "store"), uri.replace("stores/a", "stores/*")):
                    with pytest.raises(OptionError, match="its rows would come twice"):
                        rows("a string", paths=json.dumps([uri, again]), stream="x")
    assert len(seen) == 2 * 3
    assert "secret" not in "".join(seen)


def test_a_new_load_reads_the_newest_ship(spark: Any, tmp_path: Path) -> None:
    uri = tmp_path / "away"
    with filled(tmp_path / "store") as store:
        ship(store, uri)
        frame = load(spark, uri)
        count = frame.count()
        store.stream("x").add({"a": "late"})
        ship(store, uri)
        assert (frame.count(), load(spark, uri).count()) == (count, count + 1)
        store.stream("x").trim(max_entries=10, approximate=False)
        store.compact(purge=True)
        store.checkpoint()
        ship(store, uri)
        with pytest.raises(Exception, match="load, again"):
            frame.collect()  # a count is the plan's
        assert load(spark, uri).count() == 10
    (uri / "MANIFEST.json").write_bytes((uri / "MANIFEST.json").read_bytes()[:-9])
    for path in (uri, tmp_path / "nothing", "s3://me:secret@host:99999999/x"):
        with pytest.raises(Exception, match=r"damaged|not a store|no URI") as caught:
            load(spark, path).count()
        assert "secret" not in str(caught.value)
    with logstore.open(tmp_path / "store") as store:
        store.ship(tmp_path / "other")
    reader = spark.readStream.format("logstore").options(path=str(tmp_path / "other"), stream="x")
    with pytest.raises(Exception, match="reads the store itself"):
        reader.option("maxRowsPerTrigger", 5).load()
