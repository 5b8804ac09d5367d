"""The page of some runs: each question with its sides, goal and chart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import headline, job_table, report
from benchmarks.__main__ import _modules, busy_cores, run_facts
from benchmarks.harness import Curve, Sample, at_most

RESULT = at_most(
    "append one row", "us", Sample("logstore", [30.0, 34.0]), Sample("SQLite", [16.0]), 1.0,
    others=[Sample("Redis", [64.0])],
)  # fmt: skip
CURVE = Curve("one add, by streams", "streams", "us", [(1, 30.0), (10, 31.0)], "flat", lambda _: 1)


def test_a_page_has_every_side_and_says_what_was_missed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="charts need matplotlib: make bench installs it")
    (tmp_path / report.CHARTS).mkdir(parents=True)
    (tmp_path / report.CHARTS / "of-an-older-run.svg").write_text("<svg/>")
    run = run_facts() | {"results": [RESULT.as_dict()], "curves": [CURVE.as_dict()]}
    more = run | {"results": [], "curves": [CURVE.as_dict() | {"points": [(100, 33.0)]}]}
    page = report.write(tmp_path, [run, json.loads(json.dumps(more))]).read_text()
    row = "| append one row | 32 ±6% us | SQLite 16 | <= 1 x | 2 | **missed** |"
    assert row in page
    charts = sorted(path.name for path in (tmp_path / report.CHARTS).iterdir())
    assert charts == ["append-one-row.svg", "one-add-by-streams.svg"]
    assert all(f"(images/benchmarks/{name})" in page for name in charts)
    assert "Redis" in (tmp_path / report.CHARTS / charts[0]).read_text()
    assert "[one add, by streams: 1: 30, 10: 31, 100: 33]" in page


@pytest.mark.parametrize(
    ("busy_cores", "told"), [(0.1, report.IDLE), (1.8, "(up to 1.8 of them as a run began)")]
)
def test_a_page_says_what_else_ran(tmp_path: Path, busy_cores: float, told: str) -> None:
    run = run_facts() | {"cores": 2, "busy_cores": busy_cores, "results": [], "curves": []}
    assert told in report.write(tmp_path, [run]).read_text()


def test_cores_that_other_work_keeps_busy_are_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        try:
            assert 0.3 < busy_cores() < (os.cpu_count() or 1) + 0.5
        finally:
            spinning.kill()


def test_the_readme_has_the_table_of_the_runs() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "README.md").read_text()
    runs = [json.loads(each.read_text()) for each in (root / "benchmarks" / "runs").glob("*.json")]
    assert job_table.put(page, headline.table(runs), "headline") == page


@pytest.mark.parametrize(
    ("value", "short"),
    [(3.915, "3.9"), (1.242, "1.24"), (122_205.9, "122,000"), (70_459.1, "70,000"),
     (26.53, "27"), (15.55, "15.6"), (4_477.0, "4,500"), (0.0123, "0.0123")],
)  # fmt: skip
def test_figures_for_people_are_short(value: float, short: str) -> None:
    assert headline._short(value) == short


def test_a_question_that_was_not_measured_is_left_out_and_told() -> None:
    asked, other = headline.QUESTIONS[:2]
    runs = [{"results": [RESULT.as_dict() | {"name": asked.name}]}]
    assert headline.table(runs).splitlines()[2:] == [f"| {asked.label} | 32 us | SQLite 16 |"]
    assert other.name in headline.missing(runs)
    assert asked.name not in headline.missing(runs)


def test_a_row_can_have_other_sides_beside_it_and_sizes() -> None:
    asked = next(each for each in headline.QUESTIONS if len(each.beside) == 2)
    sides = [Sample(label, [2.0]).as_dict() for label in asked.beside]
    found = RESULT.as_dict() | {"name": asked.name, "peer": sides[0], "others": sides[1:]}
    found["note"] = f"{headline.SIZES}logstore 1.8"
    row = headline.table([{"results": [found]}]).splitlines()[2]
    assert all(label in row for label in asked.beside)
    assert row.endswith("(MB: logstore 1.8) |")


def test_workloads_stands_for_all_that_users_do() -> None:
    assert _modules(["workloads", "live", "calls"]) == [
        "works", "tails", "sizes", "served", "live", "together", "maintenance", "floors",
        "calls",
    ]  # fmt: skip
    assert set(_modules([])) > set(_modules(["workloads"]))


def test_the_page_of_jobs_has_the_table_of_its_run() -> None:
    """Nothing of it is written by hand."""
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "jobs.md").read_text()
    run = json.loads((root / "benchmarks" / "runs" / "jobs.json").read_text())
    assert job_table.put(page, job_table.table(run)) == page
    assert {side["label"] for result in run["results"] for side in result["others"]} >= {
        "rq, Redis"
    }
