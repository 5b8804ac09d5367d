"""Prevents a DataFrame, view or table that shows another moment than docs/scan.md says.

A relation shows the store as of its first action, as long as its pin lives. ``load()``, a DataFrame
of a table, and a temporary view over either, are one relation; a table that is named in a query,
and a view over such a query, are a new one each time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore.clock import SYSTEM_CLOCK
from logstore.engine.runtime import pins
from logstore.engine.shm import process_identity
from logstore.fs import LOCAL
from tests.scan.scanned_stores import make_store
from tests.spark.conftest import SCRATCH

ROOT = Path(__file__).resolve().parent.parent.parent
Count = Callable[[str], int]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with make_store(tmp_path / "store") as store:
        store["x"].add_many(({"n": n} for n in range(100)), batch=10)
    return tmp_path / "store"


def add(path: Path) -> None:
    with make_store(path) as store:
        store["x"].add({"n": "more"})


def load(spark: Any, path: Path, **options: str) -> Any:
    return spark.read.format("logstore").options(path=str(path), stream="x", **options).load()


@pytest.fixture
def count(spark: Any) -> Count:
    def rows(name: str) -> int:
        return int(spark.sql(f"SELECT count(*) FROM {name}").first()[0])

    return rows


@pytest.fixture
def table(spark: Any, path: Path) -> Iterator[str]:
    spark.sql("DROP TABLE IF EXISTS moments")
    spark.sql(f"CREATE TABLE moments USING logstore OPTIONS (path '{path}', stream 'x')")
    yield "moments"
    spark.sql("DROP TABLE moments")


def test_a_frame_is_the_moment_of_its_first_action(spark: Any, path: Path) -> None:
    frame = load(spark, path)
    add(path)
    assert frame.count() == 101
    add(path)
    assert frame.count() == 101
    assert frame.where("ms > 0").select("id").distinct().count() == 101
    assert frame.alias("a").join(frame.alias("b"), "id").count() == 101
    assert load(spark, path).count() == 102


def test_a_table_is_the_moment_of_each_query(
    spark: Any, path: Path, table: str, count: Count
) -> None:
    assert count(table) == 100
    frame = spark.table(table)
    query = spark.sql(f"SELECT id FROM {table}")
    assert (frame.count(), query.count()) == (100, 100)
    add(path)
    assert count(table) == 101
    assert (frame.count(), query.count()) == (100, 100)  # DataFrames, as any other
    assert spark.table(table).count() == 101


def test_a_view_is_the_moment_of_what_it_names(
    spark: Any, path: Path, table: str, count: Count
) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW using_view USING logstore "
        f"OPTIONS (path '{path}', stream 'x')"
    )
    load(spark, path).createOrReplaceTempView("frame_view")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW table_view AS SELECT * FROM {table}")
    views = ("using_view", "frame_view", "table_view")
    assert [count(view) for view in views] == [100, 100, 100]
    add(path)
    assert [count(view) for view in views] == [100, 100, 101]
    for view in views:
        spark.sql(f"REFRESH TABLE {view}")
    assert [count(view) for view in views] == [100, 100, 101]
    load(spark, path).createOrReplaceTempView("frame_view")
    assert count("frame_view") == 101


def test_a_cached_table_is_read_anew_by_a_refresh(
    spark: Any, path: Path, table: str, count: Count
) -> None:
    spark.sql(f"CACHE TABLE {table}")
    assert count(table) == 100
    add(path)
    assert count(table) == 100
    spark.sql(f"REFRESH TABLE {table}")
    assert count(table) == 101
    spark.sql(f"UNCACHE TABLE {table}")


def test_a_dataframe_after_the_end_of_its_pin(
    spark: Any, path: Path, table: str, count: Count
) -> None:
    """What is cached stays, a table goes on, all else says so and what to do."""
    frame = load(spark, path)
    frame.createOrReplaceTempView("ended_view")
    cached = load(spark, path).cache()
    assert (frame.count(), count("ended_view"), cached.count(), count(table)) == (100,) * 4
    with make_store(path) as store:
        assert store.release_pins() > 0
        store["x"].add({"n": "more"})
    assert cached.count() == 100
    cached.unpersist()
    assert count(table) == 101
    for reading in (frame.collect, spark.table("ended_view").collect):  # a count is the plan's
        with pytest.raises(Exception, match="SnapshotExpiredError") as raised:
            reading()
        assert "load again" in str(raised.value)
    assert load(spark, path).count() == 101


def test_loads_of_one_position_share_a_pin_for_the_driver(spark: Any, path: Path) -> None:
    frames = [load(spark, path) for _ in range(5)]
    assert [frame.count() for frame in frames] == [100] * 5
    assert spark.read.format("logstore").options(path=str(path), stream="x").schema(
        "n int"
    ).load().count() == 100  # fmt: skip
    now_ms = SYSTEM_CLOCK.now_ms()
    (pin,) = pins.living(LOCAL, path, now_ms)
    assert pin.purpose == "spark"
    gateway = spark.sparkContext._gateway
    jvm = int(gateway.jvm.java.lang.ProcessHandle.current().pid())
    assert pins.owner(pin) == process_identity.identity(jvm)
    assert 0 < pin.expires_ms - now_ms <= 3_600_000


def test_loads_as_of_one_moment_are_never_torn(spark: Any, path: Path) -> None:
    """What became of the store between two loads, and between `moment` and both, is in neither."""
    with make_store(path) as store:
        with store.transaction() as txn:
            txn.stream("x").add({"n": "both"}, id="9000000000000-1")
            txn.stream("y").add({"n": "both"}, id="9000000000000-1")
        token = store.moment()
    loads = []
    for stream in ("x", "y"):
        with make_store(path) as store, store.transaction() as txn:
            for name in ("x", "y"):
                txn.stream(name).delete("9000000000000-1")
                txn.stream(name).add({"n": "later"}, id="9000000000000-*")
        reader = spark.read.format("logstore").option("asOf", token).option("stream", stream)
        loads.append(reader.load(str(path)))
    x, y = loads
    assert (x.count(), y.count()) == (101, 1)
    assert [row.id for row in x.join(y, "id").select("id").collect()] == ["9000000000000-1"]
    with make_store(path) as store:
        only = store.moment("y")
    with pytest.raises(Exception, match=r"as of that moment; name it in store.moment.*'x'"):
        load(spark, path, asOf=only)
    with make_store(path) as store:
        store.release_pins(token)
    for error, value in (("SnapshotExpiredError", token), ("OptionError", "yesterday")):
        with pytest.raises(Exception, match=error):
            load(spark, path, asOf=value)


DRIVER = """
import sys
from pathlib import Path
from tests.spark.conftest import spark
session = next(spark.__wrapped__())
frame = session.read.format("logstore").options(path=sys.argv[1], stream="x").load()
print("counted", frame.count(), flush=True)
sys.stdin.read()
"""


def test_a_driver_that_was_killed_leaves_no_pin(path: Path) -> None:
    """The script that started Spark, with -9: Java ends behind it, and the pin with Java."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(path)], cwd=ROOT, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert driver.stdout is not None
    line = next((each for each in driver.stdout if each.startswith("counted")), "")
    assert line == "counted 100\n"
    (pin,) = pins.living(LOCAL, path, SYSTEM_CLOCK.now_ms())
    assert pin.pid != driver.pid
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    until = time.monotonic() + 60
    with make_store(path) as store:
        while store.pins() and time.monotonic() < until:
            time.sleep(0.1)
        assert store.pins() == []
    assert list((path / "pins").iterdir()) == []
