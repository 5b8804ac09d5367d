"""``python -m tests.torture``: the long tests, one after the other, and one table of it all.

Each part is a run of pytest with LOGSTORE_TORTURE and LOGSTORE_FIGURES set. One that fails does not
stop those behind it; what was skipped is told with its reason. What a part printed is kept in
build/torture/PART.log, its figures in build/torture/PART/. Exit code 1: something failed, or
something that was acknowledged was lost. Knows of the tests only their paths and what they record.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO
from xml.etree import ElementTree as ET

from tests import figures, torture_table
from tests.torture_table import Figures

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "torture"
TIMES = 20
# For tests that set no limit of their own; a hang must not stop those behind it.
TIMEOUT_S = 2 * 3600
PARTS: dict[str, tuple[str, ...]] = {
    "states": ("tests/crash/states/test_states.py",),
    "kills": ("tests/crash/kills/test_kills.py",),
    "syscalls": ("tests/crash/kills/test_syscalls.py", "tests/crash/kills/test_given_up.py"),
    "power": ("tests/power/test_power_cuts.py", "tests/power/test_remount.py"),
    "fsync": ("tests/power/test_failing_sync.py",),
    "recovery": ("tests/power/test_recovery_time.py",),
    "faults": ("tests/faults",),
    "corruption": ("tests/corruption",),
    "interleaving": ("tests/interleaving",),
    "model": ("tests/model",),
    "groups": ("tests/groups/test_machine.py", "tests/groups/test_nack_and_claim.py"),
    "wire": ("tests/wire/test_machines.py",),
    "fuzz": ("tests/fuzz",),
    "compaction": ("tests/compaction/test_kill.py",),
}


@dataclass
class Part:
    """What one part's run came to."""

    name: str
    exit_code: int
    seconds: float
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # test: reason
    figures: dict[str, Figures] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Nothing failed, and pytest itself did not either."""
        return not self.exit_code and not self.failed


def run(name: str, times: int, kept: Path, screen: TextIO) -> Part:
    """Run one part, its output shown on the screen and kept."""
    where = kept / name
    shutil.rmtree(where, ignore_errors=True)
    report = kept / f"{name}.xml"
    report.unlink(missing_ok=True)
    environment = os.environ | {figures.TORTURE: str(times), figures.DIRECTORY: str(where)}
    command = [
        sys.executable, "-m", "pytest", "-s", "-q", "-o", f"timeout={TIMEOUT_S}",
        f"--junitxml={report}", *PARTS[name],
    ]  # fmt: skip
    began_s = time.monotonic()
    with (
        (kept / f"{name}.log").open("wb") as log,
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as child,
    ):
        assert child.stdout is not None
        while said := child.stdout.read1():
            log.write(said)
            log.flush()
            screen.buffer.write(said)
            screen.buffer.flush()
    part = Part(name, child.returncode, time.monotonic() - began_s)
    read_report(part, report)
    if part.exit_code and not part.failed:
        part.failed.append(f"pytest ended with {part.exit_code}")
    if where.is_dir():
        part.figures = figures.recorded(where)
    return part


def read_report(part: Part, report: Path) -> None:
    """Which tests passed, failed and were skipped; without a report pytest did not get that far."""
    if not report.exists():
        part.failed.append(f"no report: pytest ended with {part.exit_code}")
        return
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').removeprefix('tests.')}::{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            part.failed.append(name)
        elif skipped is not None:
            part.skipped[name] = skipped.get("message", "")
        else:
            part.passed += 1


def main() -> int:
    """Run the parts, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES, metavar="N",
                        help="times the size in continuous integration (20)")  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="TOPIC",
                        help=f"some of: {', '.join(PARTS)}")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the table as one JSON object")
    given = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    screen = sys.stderr if given.json else sys.stdout  # JSON is for another program to read
    parts: list[Part] = []
    began_s = time.monotonic()
    try:
        for name in dict.fromkeys(given.only):
            head = f"\n=== {name}: {' '.join(PARTS[name])}, {given.times} times"
            print(head, file=screen, flush=True)
            parts.append(run(name, given.times, KEPT, screen))
    except KeyboardInterrupt:
        print("\ninterrupted; what was done so far:", file=screen)
    found = {topic: its for part in parts for topic, its in part.figures.items()}
    # Figures of what is too long to be a part of this, such as mutants, if they were kept there.
    found |= figures.recorded(KEPT)
    lost = torture_table.lost(found)
    ran = {part.name for part in parts}
    not_run = [name for name in dict.fromkeys(given.only) if name not in ran]
    whole = not not_run and all(part.whole for part in parts) and not lost
    told = {
        "times": given.times,
        "seconds": round(time.monotonic() - began_s),
        "whole": whole,
        "not_run": not_run,  # it was interrupted
        "acknowledged_lost": lost,
        "parts": {
            part.name: {
                "seconds": round(part.seconds), "passed": part.passed, "failed": part.failed,
                "skipped": part.skipped,
            }
            for part in parts
        },
        "figures": found,
    }  # fmt: skip
    if given.json:
        print(json.dumps(told))
    else:
        torture_table.show(told)
    return not whole


if __name__ == "__main__":
    sys.exit(main())
