"""Prevents examples of Spark that do not run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.house.pages import OF_SPARK, run

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("page", sorted(OF_SPARK), ids=str)
def test_what_a_page_shows_runs(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, spark=spark)
