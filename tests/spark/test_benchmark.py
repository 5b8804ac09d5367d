"""The benchmark of Spark works: a tiny run in the session of these tests. No time is judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from tests.spark.jars import require_jar

pytestmark = pytest.mark.spark
ONE_READER = "the benchmark says which reader reads"


def test_a_tiny_run(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_jar()
    assert main(["spark", "--tiny", "--json", "--folder", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    names = " ".join(result["name"] for result in document["results"])
    for part in (
        "typed columns",
        "one of",
        "group",
        "map",
        "hundredth",
        "count",
        "streaming",
        "write",
    ):
        assert part in names
    assert spark.range(3).count() == 3, "the session of others was stopped"
