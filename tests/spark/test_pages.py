"""Prevents examples of Spark that do not run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.house.pages import OF_SPARK, PARTLY_OF_SPARK, run

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("page", sorted(OF_SPARK | PARTLY_OF_SPARK), ids=str)
def test_examples_of_pages_run(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, commands=page in OF_SPARK, spark=spark)
