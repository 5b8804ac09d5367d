"""Prevents a module that Spark finds by itself, and that is no source, or ends other sessions."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.scan.scanned_stores import make_store

ROOT = Path(__file__).resolve().parent.parent.parent
FOUND = """
import io, sys
sys.path.insert(0, sys.argv[1])
if sys.argv[2]:
    sys.modules[sys.argv[2]] = None
import pyspark_logstore
if sys.argv[2]:
    print(hasattr(pyspark_logstore, "DefaultSource"))
else:
    from pyspark.sql.datasource import DataSource
    print(issubclass(pyspark_logstore.DefaultSource, DataSource), end=" ")
    print(pyspark_logstore.DefaultSource.name(), "lmdb" in sys.modules)
"""


def found(without: str) -> str:
    command = [sys.executable, "-c", FOUND, str(ROOT), without]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_spark_finds_the_source_by_the_name_of_a_module(spark: object) -> None:
    """As its planner does: it imports what is called ``pyspark_...`` and takes DefaultSource."""
    assert found("") == "True logstore False"
    modules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert modules["py-modules"] == ["pyspark_logstore"]


def test_a_session_that_registered_nothing_knows_the_format(spark: Any, tmp_path: Path) -> None:
    """In SQL, too; a new session has none of what another one registered."""
    with make_store(tmp_path / "store") as store:
        store["x"].add_many({"n": n} for n in range(7))
    other = spark.newSession()
    reader = other.read.format("logstore").option("stream", "x")
    assert reader.load(str(tmp_path / "store")).count() == 7
    other.sql(
        "CREATE TEMPORARY VIEW unregistered USING logstore "
        f"OPTIONS (path '{tmp_path / 'store'}', stream 'x')"
    )
    assert other.sql("SELECT count(*) FROM unregistered").first()[0] == 7


def test_without_spark_or_pyarrow_the_module_is_empty_and_no_error() -> None:
    assert found("pyspark") == "False"
    assert found("logstore") == "False"
