"""``python -m tests.torture``: the long tests, one after the other, and one table of it all.

Each part is a run of pytest with LOGSTORE_TORTURE and LOGSTORE_FIGURES set. One that fails does not
stop those behind it; what was skipped is told with its reason. What a part printed is kept in
build/torture/PART.log, its figures in build/torture/PART/, and when it has ended all that the table
tells of it in build/torture/ended/PART.json, for `--table`: a run that was interrupted is not lost,
and a part that was run again takes the place of its last run. Exit code 1: something failed, or was
not run, or something that was acknowledged was lost. Knows of the tests only their paths and what
they record.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from xml.etree import ElementTree as ET

from tests import figures, torture_table
from tests.torture_table import Figures

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "torture"
# For tests that set no limit of their own; a hang must not stop those behind it.
TIMEOUT_S = 2 * 3600


class Asked(NamedTuple):
    """How many times the size in continuous integration a part is run, and its tests."""

    times: int
    paths: tuple[str, ...]


PARTS: dict[str, Asked] = {
    "states": Asked(3, ("tests/crash/states/test_states.py",)),
    "kills": Asked(17, ("tests/crash/kills/test_kills.py",)),  # 7 stores, 300 kills at each
    "syscalls": Asked(  # every call, in every way it may fail
        20, ("tests/crash/kills/test_syscalls.py", "tests/crash/kills/test_given_up.py")
    ),
    # 126 cuts on each of four disks; without xfs there are three.
    "power": Asked(21, ("tests/power/test_power_cuts.py", "tests/power/test_remount.py")),
    "fsync": Asked(2, ("tests/power/test_failing_sync.py",)),
    "recovery": Asked(43, ("tests/power/test_recovery_time.py",)),  # a log of a GiB
    "faults": Asked(8, ("tests/faults",)),
    "corruption": Asked(4, ("tests/corruption",)),
    "interleaving": Asked(1, ("tests/interleaving",)),  # 2: all points, all pairs; that takes hours
    "simulation": Asked(40, ("tests/simulation",)),  # 480 histories, and the planted bugs
    "model": Asked(4, ("tests/model",)),
    "groups": Asked(2, ("tests/groups/test_machine.py", "tests/groups/test_nack_and_claim.py")),
    "wire": Asked(2, ("tests/wire/test_machines.py",)),
    "fuzz": Asked(4, ("tests/fuzz",)),
    "restoring": Asked(2, ("tests/wire/test_dump_and_restore.py",)),  # 10,000 mutated payloads
    "compaction": Asked(4, ("tests/compaction/test_kill.py",)),
    # 3,000 generations of the index under threads that read.
    "threads": Asked(100, ("tests/engine/test_erasure_beside_threads.py",)),
}

# Tests that take the same seed each time unless they are given one; they print it.
SEEDS = {"corruption": "LOGSTORE_CORRUPTION", "interleaving": "LOGSTORE_INTERLEAVINGS"}


@dataclass
class Part:
    """What one part's run came to."""

    name: str
    exit_code: int
    seconds: float
    times: int = 1
    others: float = 0.0  # how many processors other processes kept busy meanwhile
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # test: reason
    figures: Mapping[str, Figures] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Nothing failed, and pytest itself did not either."""
        return not self.exit_code and not self.failed

    def keep(self, kept: Path) -> None:
        """For a table that is printed later."""
        path = _ended(kept, self.name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(asdict(self)))


def _ended(kept: Path, name: str) -> Path:
    return kept / "ended" / f"{name}.json"


def ended(kept: Path, name: str) -> Part | None:
    """What the last run of a part came to; None: it was not run to its end."""
    path = _ended(kept, name)
    return Part(**json.loads(path.read_text())) if path.exists() else None


def _busy_s() -> float:
    """Processor time that all processes of the machine have spent."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    user, nice, system, _, _, irq, softirq = map(int, words)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Processor time of all that was run from here and has ended."""
    its = resource.getrusage(resource.RUSAGE_CHILDREN)
    return its.ru_utime + its.ru_stime


def run(name: str, times: int, kept: Path, screen: TextIO) -> Part:
    """Run one part, its output shown on the screen and kept."""
    where = kept / name
    shutil.rmtree(where, ignore_errors=True)
    report = kept / f"{name}.xml"
    report.unlink(missing_ok=True)
    _ended(kept, name).unlink(missing_ok=True)
    environment = os.environ | {figures.TORTURE: str(times), figures.DIRECTORY: str(where)}
    if name in SEEDS:
        environment.setdefault(SEEDS[name], str(random.randrange(10**6)))
    command = [
        sys.executable, "-m", "pytest", "-s", "-q",
        "-o", f"timeout={TIMEOUT_S}", "-o", "junit_family=legacy", f"--junitxml={report}",
        *PARTS[name].paths,
    ]  # fmt: skip
    began_s, busy_s, own_s = time.monotonic(), _busy_s(), _own_s()
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
    seconds = time.monotonic() - began_s
    others_s = _busy_s() - busy_s - (_own_s() - own_s)
    part = Part(name, child.returncode, seconds, times, max(others_s / seconds, 0.0))
    read_report(part, report)
    if part.exit_code and not part.failed:
        part.failed.append(f"pytest ended with {part.exit_code}")
    if where.is_dir():
        part.figures = figures.recorded(where)
    part.keep(kept)
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


def table(parts: list[Part], wanted: list[str], kept: Path, seconds: float) -> dict[str, Any]:
    """All that is told of these parts; those that are wanted and not among them were not run."""
    found: dict[str, Figures] = {
        topic: its for part in parts for topic, its in part.figures.items()
    }
    # Figures of what is too long to be a part of this, such as mutants, if they were kept there.
    found |= figures.recorded(kept)
    lost = torture_table.lost(found)
    ran = {part.name for part in parts}
    not_run = [name for name in wanted if name not in ran]
    return {
        "seconds": round(seconds),
        "whole": not not_run and all(part.whole for part in parts) and not lost,
        "not_run": not_run,
        "acknowledged_lost": lost,
        "parts": {
            part.name: {
                "times": part.times, "seconds": round(part.seconds),
                "others": round(part.others, 1), "passed": part.passed,
                "failed": part.failed, "skipped": part.skipped,
            }
            for part in parts
        },
        "figures": found,
    }  # fmt: skip


def _print(told: Mapping[str, Any], *, as_json: bool) -> int:
    if as_json:
        print(json.dumps(told))
    else:
        torture_table.show(told)
    return not told["whole"]


def main() -> int:
    """Run the parts, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--times", type=int, default=1, metavar="N",
                      help="each part N times as long as torture asks for (1)")  # fmt: skip
    size.add_argument("--each", type=int, metavar="N",
                      help="each part N times its size in continuous integration")  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART",
                        help=f"some of: {', '.join(PARTS)}")  # fmt: skip
    parser.add_argument("--table", action="store_true",
                        help="run nothing: the table of each part's last run")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the table as one JSON object")
    given = parser.parse_args()
    wanted = list(dict.fromkeys(given.only))
    if given.table:
        parts = [part for part in (ended(KEPT, name) for name in wanted) if part]
        told = table(parts, wanted, KEPT, sum(part.seconds for part in parts))
        return _print(told, as_json=given.json)
    KEPT.mkdir(parents=True, exist_ok=True)
    screen = sys.stderr if given.json else sys.stdout  # JSON is for another program to read
    parts = []
    began_s = time.monotonic()
    try:
        for name in wanted:
            times = given.each or PARTS[name].times * given.times
            print(f"\n=== {name}: {' '.join(PARTS[name].paths)}, {times} times the size in "
                  "continuous integration", file=screen, flush=True)  # fmt: skip
            parts.append(run(name, times, KEPT, screen))
    except KeyboardInterrupt:
        print("\ninterrupted; what was done so far:", file=screen)
    return _print(table(parts, wanted, KEPT, time.monotonic() - began_s), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
