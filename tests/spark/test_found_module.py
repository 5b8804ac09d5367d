"""Prevents a module that Spark finds by itself, and that is no source, or ends other sessions."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

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


def test_without_spark_or_pyarrow_the_module_is_empty_and_no_error() -> None:
    assert found("pyspark") == "False"
    assert found("logstore") == "False"
