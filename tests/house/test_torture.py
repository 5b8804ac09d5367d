"""Prevents a long test that `make torture` does not run, and a table that hides what was lost."""

from __future__ import annotations

import re
from pathlib import Path

from tests import torture, torture_table
from tests.torture import PARTS, Part

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
    parts = [ROOT / path for paths in PARTS.values() for path in paths]
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


def test_what_is_lost_or_not_known_is_told() -> None:
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
