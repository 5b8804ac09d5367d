"""The page of a run: each question with its sides, goal and chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.harness import Curve, Sample, at_most

RESULT = at_most(
    "append one row", "us", Sample("logstore", [30.0, 34.0]), Sample("SQLite", [16.0]), 1.0,
    others=[Sample("Redis", [64.0])],
)  # fmt: skip
CURVE = Curve("one add, by streams", "streams", "us", [(1, 30.0), (10, 31.0)], "flat", lambda _: 1)


def test_a_page_has_every_side_and_says_what_was_missed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="charts need matplotlib: make bench installs it")
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "of-an-older-run.svg").write_text("<svg/>")
    page = report.write(tmp_path, [RESULT], [CURVE], "pure").read_text()
    assert "| SQLite | 16 ±0% | 0.50 x |" in page
    assert "| Redis | 64 ±0% | 2.00 x |" in page
    assert "Goal <= 1 x, measured 2.00: **missed**" in page
    assert "| 10 | 31 |" in page
    charts = sorted(path.name for path in (tmp_path / "charts").iterdir())
    assert charts == ["append-one-row.svg", "one-add-by-streams.svg"]
    assert all(f"charts/{name}" in page for name in charts)
