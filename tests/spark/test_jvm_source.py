"""Prevents a reader in the JVM that reads other rows, or takes from the Python source what it does.

Sessions of their own, each in a process, ask both readers: with the jar at their start, with the
jar added later, and without it; of the newest Spark and of the oldest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scan.scanned_stores import make_store
from tests.spark.conftest import SCRATCH
from tests.spark.jars import require_jar
from tests.spark.tables import source_of

ROOT = SCRATCH.parent.parent
NEWEST, OLDEST = "newest", "oldest"
ROWS = 400


def asked(folder: Path, how: str, version: str = NEWEST) -> dict[str, Any]:
    """The answers of a session."""
    paths = [str(ROOT)]
    environment = {**os.environ}
    if version == OLDEST:
        older = os.environ.get("LOGSTORE_OLDER_PYSPARK")
        if not older:
            pytest.skip("LOGSTORE_OLDER_PYSPARK is not set: `make test` installs an older pyspark")
        paths.insert(0, older)
        environment.pop("SPARK_HOME", None)
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.jvm_driver", str(folder), how],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["log"] = done.stderr
    return found


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a session says that was started with the jar."""
    require_jar()
    return asked(tmp_path_factory.mktemp("jvm"), "start", request.param)


def test_the_plan_says_who_reads_and_why(answers: dict[str, Any]) -> None:
    auto, python, table, jvm = answers["names_the_reader"]
    assert "logstore (read by the JVM)" in auto
    assert "logstore (read by the JVM)" in jvm
    assert "logstore (read by Python: option 'reader' is python)" in python
    assert "logstore (read by Python: option 'table' is for it)" in table


def test_both_readers_have_the_same_columns_without_a_schema(answers: dict[str, Any]) -> None:
    assert answers["same_schemas"] == [True, True]


def test_both_readers_give_the_same_rows(answers: dict[str, Any]) -> None:
    assert answers["same_rows"] == [ROWS, ROWS, ROWS, ROWS - 1, ROWS, ROWS]


def test_both_readers_give_the_same_rows_of_what_was_shipped(answers: dict[str, Any]) -> None:
    assert answers["same_rows_of_what_was_shipped"] == [ROWS, ROWS]


def test_shipped_stores_are_read_by_the_file_systems_of_hadoop(answers: dict[str, Any]) -> None:
    """S3's own is in none of Spark's jars: another one of Hadoop takes its place here."""
    assert isinstance(answers["bucket_by_hadoop"], list), answers["bucket_by_hadoop"]
    plan, rows, error = answers["bucket_by_hadoop"]
    assert "(read by Python: Hadoop has no file system here for s3a://)" in plan
    assert rows == ROWS
    assert "at s3://bucket/laps" in error
    assert "secret" not in error


def test_fewer_columns_change_no_row(answers: dict[str, Any]) -> None:
    """A value that is malformed counts, though the query wants another column."""
    permissive, drop = [ROWS, ROWS - 1] * 2, [ROWS - 1, ROWS - 1] * 2
    assert answers["prunes_without_another_row"] == [*permissive, *drop, 1]


def test_a_frame_reads_one_moment(answers: dict[str, Any]) -> None:
    assert answers["one_moment"] == [10, 10, 11]


def test_errors_of_options_are_alike_and_on_top(answers: dict[str, Any]) -> None:
    found = answers["wrong_options"]
    assert isinstance(found, list), found
    *both, (table,) = found
    for jvm, python in both:
        kind, at, text = jvm.removeprefix("IllegalArgumentException: ").partition(": ")
        assert at, jvm
        assert f"{kind}: {text}" in python
        assert jvm.startswith(f"IllegalArgumentException: {kind}: ")
    assert "option 'table' is for the Python source" in table


def test_writes_go_to_the_python_source(answers: dict[str, Any]) -> None:
    *found, as_select = answers["writes"]
    assert found == [10, 3, 4, True, 18]
    assert "created with columns of its own" in as_select


def test_streams_are_written_by_the_python_source(answers: dict[str, Any]) -> None:
    if answers["version"].startswith("4.0."):
        assert "needs pyspark 4." in answers["streams"]
        return
    assert answers["streams"] == [True, ROWS]


def test_a_stream_is_read_by_the_jvm_also_where_spark_is_too_old_for_pythons(
    answers: dict[str, Any],
) -> None:
    assert isinstance(answers["stream_read"], list), answers["stream_read"]
    rows, has_batches, source = answers["stream_read"]
    assert (rows, has_batches) == (ROWS, True)
    assert "LogstoreStream" in source


def test_with_the_jar_at_the_start_every_thread_has_it(answers: dict[str, Any]) -> None:
    assert answers["threads"] == ["jvm"] * 4


def test_pins_are_those_of_the_driver(answers: dict[str, Any]) -> None:
    assert answers["pins"] == [True]


def test_a_planner_that_is_killed_or_stopped_is_started_again(answers: dict[str, Any]) -> None:
    assert isinstance(answers["killed_planner"], list), answers["killed_planner"]
    first, second, error, third, other = answers["killed_planner"]
    assert (first, second, third, other) == (ROWS, ROWS, ROWS, True)
    assert "did not answer within 1 s" in error
    assert "spark.logstore.planTimeoutSeconds" in error


def test_a_planner_that_does_not_fit_is_an_error_that_says_what_to_do(
    answers: dict[str, Any],
) -> None:
    assert isinstance(answers["other_planners"], list), answers["other_planners"]
    version, rubbish, missing, again = answers["other_planners"]
    assert "has logstore 9.9 (format 3)" in version
    assert "spark.jars" in version
    assert "gave an answer that is no JSON object" in rubbish
    assert "and why" in rubbish
    assert "does not start" in missing
    assert "spark.logstore.python" in missing
    assert again == str(ROWS)


def test_a_jar_that_is_added_holds_for_the_thread_that_did(tmp_path: Path) -> None:
    require_jar()
    found = asked(tmp_path, "added")
    assert found["threads"][:2] == ["jvm", "jvm"]  # Spark decides what a new thread has
    assert "holds for this thread" in found["log"]


def test_without_the_jar_the_option_says_how_to_get_it(tmp_path: Path) -> None:
    auto, python, error = asked(tmp_path, "none")["without_the_jar"]
    assert (auto, python) == (str(ROWS), str(ROWS))
    assert "OptionError: option 'reader' is jvm" in error
    assert "spark.jars" in error


def test_a_line_of_the_log_says_that_python_reads_for_want_of_a_jar(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: make test installs it")
    with make_store(tmp_path / "store") as store:
        store["x"].add({"n": 1})
    caplog.set_level("INFO", "logstore.spark")
    for reader, lines in (("auto", 1), ("python", 0)):
        caplog.clear()
        source = source_of(tmp_path / "store", stream="x", reader=reader)
        source.reader(source.schema())
        told = [each for each in caplog.messages if "the reader in the JVM is not there" in each]
        assert len(told) == lines
