"""Prevents a long test that `make torture` does not run, and a table that hides what was lost."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import torture, torture_table
from tests.torture import PARTS, Asked, Part

ROOT = Path(__file__).resolve().parent.parent.parent
# A call of `record`, or of `times`.
CALL = re.compile(
    r"^\s+(?:figures\.)?record\(\s*f?\"|^\s+figures\.record\(|\btimes\(\)", re.MULTILINE
)
REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.test_b" name="test_one"/>
<testcase classname="tests.a.test_b" name="test_two"><failure message="no"/></testcase>
<testcase classname="tests.a.test_b" name="test_three"><skipped message="no root"/></testcase>
</testsuite></testsuites>"""


def test_every_test_that_can_be_longer_or_records_is_a_part() -> None:
    """Nobody would ask for what it can do, or its figure be missing from the table."""
    parts = [ROOT / path for asked in PARTS.values() for path in asked.paths]
    assert not [path for path in parts if not path.exists()]
    recording = [path for path in ROOT.glob("tests/**/test_*.py") if CALL.search(path.read_text())]
    assert len(recording) >= 12
    beside = [
        path for path in recording if not any(path.is_relative_to(part) for part in parts)
    ]  # fmt: skip
    assert not beside


def test_failures_and_skips_are_told(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    part = Part("power", 0, 1.0)
    assert part.whole
    torture.read_report(part, report)
    assert (part.passed, part.failed) == (1, ["a.test_b::test_two"])
    assert part.skipped == {"a.test_b::test_three": "no root"}
    assert not part.whole
    broken = Part("power", 3, 1.0)
    torture.read_report(broken, tmp_path / "none.xml")
    assert broken.failed
    assert not broken.whole


def test_the_table_tells_lost_and_unrecorded_figures() -> None:
    """Nothing recorded is no zero, one lost entry anywhere counts, a new topic has a row."""
    told = dict(torture_table.rows({}))
    assert told["acknowledged entries lost"] == torture_table.NOT_RUN
    for key in (
        "acknowledged_lost",
        "half_there",
        "lost_always_healed",
        "acknowledged_lost_always",
    ):
        assert torture_table.lost({"new": {key: 1, "cuts": 7}}) == 1
    for key in ("lost_everysec_healed", "acknowledged_lost_os"):
        assert torture_table.lost({"new": {key: 1}}) == 0
    found = {"kills": {"kills": 1234, "acknowledged_lost": 2}, "something new": {"inputs": 5}}
    told = dict(torture_table.rows(found))
    assert told["acknowledged entries lost"].startswith("2 (not counted")
    assert told["kills of writers"].startswith("1,234")
    assert told["something new"] == "inputs 5"


def test_the_plain_command_asks_for_the_promised_sizes() -> None:
    """The plain command would print fewer kills, power cuts or states than it is there for."""
    full = {topic: {key: least} for (topic, key), least in torture_table.LEAST.items()}
    assert not torture_table.short(full)
    assert torture_table.short({"power": {"cuts": 499}}) == ["power: 499 cuts, fewer than 500"]
    assert torture_table.short({"power": {}})
    stores = round(PARTS["kills"].times * 0.4)
    assert stores * 300 >= torture_table.LEAST["kills", "kills"]
    assert PARTS["power"].times * 6 * 4 >= torture_table.LEAST["power", "cuts"]


RECORDS = """
import os
from tests.figures import TORTURE, record
def test_it(): record("kills", kills=7 * int(os.environ[TORTURE]), acknowledged_lost=0)
"""


def test_a_run_that_was_interrupted_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Parts that were run one by one have one table; it says what failed and what was not run."""
    for name, body in (("good", RECORDS), ("bad", "def test_it():\n    assert False\n")):
        (tmp_path / f"test_{name}.py").write_text(body)
    parts = {
        "kills": Asked(3, (str(tmp_path / "test_good.py"),)),
        "power": Asked(1, (str(tmp_path / "test_bad.py"),)),
        "fuzz": Asked(1, ("none",)),
    }
    monkeypatch.setattr(torture, "PARTS", parts)
    monkeypatch.setattr(torture, "KEPT", tmp_path / "kept")

    def told(*arguments: str) -> tuple[int, Any]:
        monkeypatch.setattr(sys, "argv", ["torture", "--json", *arguments])
        code = torture.main()
        return code, json.loads(capsys.readouterr().out)

    code, table = told("--only", "kills", "--times", "2")
    assert (code, table["parts"]["kills"]["times"]) == (0, 6)
    assert told("--only", "power", "--each", "2")[0] == 1
    code, table = told("--table")
    assert (code, table["whole"], table["not_run"]) == (1, False, ["fuzz"])
    assert table["figures"]["kills"]["kills"] == 42
    assert table["parts"]["kills"]["passed"] == 1
    assert len(table["parts"]["power"]["failed"]) == 1
    torture_table.show(table)
    shown = capsys.readouterr().out
    assert "not run to the end: fuzz" in shown
    assert "short: kills: 42 kills" in shown
    (tmp_path / "test_bad.py").write_text("def test_it():\n    pass\n")  # mended, and run again
    assert told("--only", "power")[0] == 0
    assert told("--table", "--only", "kills", "power")[0] == 0
    # One that begins is no longer what it was, however it ends.
    monkeypatch.setattr(torture, "read_report", _interrupted)
    assert told("--only", "kills")[0] == 1
    assert told("--table")[1]["not_run"] == ["kills", "fuzz"]


def _interrupted(part: Part, report: Path) -> None:
    raise KeyboardInterrupt
