"""``python -m tests.stages STAGE``: one stage of `make test`, as a run of pytest of its own.

With ``--draw SEED`` it runs a draw that fits the budget of the stage, otherwise everything, and
measures what each test takes. Arguments behind ``--`` are for pytest. With LOGSTORE_FORGIVE=<n>, as
`.ci/run` has it, a test that failed is run once more, alone, in a process of its own and with the
same seed. If it passes, a line ``FLAKY <test> seed=<seed>`` is printed, and the stage counts as
passed. Never forgiven are: a file that cannot be collected, a process that dies, a test that runs
out of time, an error of pytest itself, and more than n such tests in all stages together.

``--table`` prints what came of all stages that ran in full, and writes ``durations.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests import draw, seeds
from tests.stage_plugin import Results

ROOT = Path(__file__).resolve().parent.parent
# Where the results go.
KEPT = Path(os.environ.get("LOGSTORE_STAGES") or ROOT / "build" / "stages")
FLAKY = "flaky"  # below KEPT: the lines of all stages
BESIDE = ("--dist", "loadfile", "--no-loadscope-reorder")
# The processor has two cores, and a third of a test's time is waiting.
AT_ONCE = 2.4


class Stage(NamedTuple):
    """Which tests a stage has, and what a draw of them may take by the clock, on two idle cores."""

    marks: str
    budget_s: int
    jobs: bool = False  # several processes beside each other
    only: tuple[str, ...] = ()  # below tests/; otherwise all
    dear_s: float = math.inf  # a file of which one test takes longer is drawn by chance
    pure: bool = False  # without compiled code

    def options(self, jobs: str) -> list[str]:
        """What pytest is told."""
        beside = ["-n", jobs, *BESIDE] if self.jobs else []
        return [*beside, "-m", self.marks]

    def paths(self, given: tuple[str, ...]) -> list[str]:
        """The tests to collect; those that are asked for, where there are any."""
        asked = any(Path(each.partition("::")[0]).exists() for each in given)
        return [] if asked else [f"tests/{name}" for name in self.only]

    def draw_s(self) -> float:
        """What the drawn tests may take one after the other."""
        return self.budget_s * (AT_ONCE if self.jobs else 1)


# What is run without compiled code, too: the rooms in which modules in Python take its place.
PURE = (
    "collections", "compaction", "corruption", "crash/states", "engine", "faults", "groups",
    "index", "jobs", "lifetimes", "log", "model", "recovery", "retention", "scan", "schedules",
    "settings", "store", "waiting", "wire",
)  # fmt: skip
STAGES: dict[str, Stage] = {
    "alone": Stage("alone", 150),
    "beside": Stage("not alone", 270, jobs=True, dear_s=5),
    "pure-alone": Stage("alone", 40, only=PURE, dear_s=2, pure=True),
    "pure": Stage("not alone", 150, jobs=True, only=PURE, dear_s=5, pure=True),
}


class StageRun(NamedTuple):
    """How a stage is run."""

    name: str
    seed: str  # of the draw, and of every test that draws something
    drawn: bool
    options: tuple[str, ...]

    def environment(self) -> Mapping[str, str]:
        """Tests that draw take the seed of the run; what is pure has nothing compiled."""
        codec = {"LOGSTORE_CODEC": "pure"} if STAGES[self.name].pure else {}
        return {**os.environ, seeds.OF_RUN: self.seed, **codec}

    def pytest(self, *more: str) -> int:
        """Run pytest, and return its exit code."""
        command = [sys.executable, "-m", "pytest", "-p", "tests.stage_plugin"]
        command += [f"--hypothesis-seed={self.seed}", *more]
        sys.stdout.flush()
        return subprocess.run(command, env=self.environment(), cwd=ROOT, check=False).returncode


def run(stage: StageRun, jobs: str, forgive: int) -> int:
    """Run a stage, and what failed of it once more; the exit code of the stage."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{stage.name}.json"
    path.unlink(missing_ok=True)
    planned = STAGES[stage.name]
    how = ["--measure"]
    if stage.drawn:
        how = [f"--draw={stage.seed}", f"--budget={planned.draw_s()}", f"--dear={planned.dear_s}"]
    how += [f"--stage={stage.name}", f"--results={path}"]
    paths = planned.paths(stage.options)
    code = stage.pytest(*how, *planned.options(jobs), *stage.options, *paths)
    if code != 1 or not forgive:
        return code
    return 0 if is_forgiven(stage, results_of(path), forgive) else code


def results_of(path: Path) -> Results:
    """What a run of pytest wrote; if it wrote nothing, it died."""
    if not path.exists():
        return Results("", unforgivable=["pytest: it died"])
    return Results(**json.loads(path.read_text()))


def is_forgiven(stage: StageRun, results: Results, forgive: int) -> bool:
    """Run each test that failed once more, alone; true if all pass, and they are few enough."""
    before = flaky_lines()
    if results.unforgivable:
        print("Not run once more:", *results.unforgivable, sep="\n    ")
        return False
    if not results.failed or len(before) + len(results.failed) > forgive:
        print(f"{len(before) + len(results.failed)} failed, at most {forgive} are run once more.")
        return False
    left = []
    for name in results.failed:
        print(f"\nOnce more, alone: {name}")
        path = KEPT / "once-more.json"
        path.unlink(missing_ok=True)
        if stage.pytest(f"--results={path}", name) or not results_of(path).outcomes.get("passed"):
            left.append(name)
            continue
        line = f"FLAKY {name} seed={stage.seed} stage={stage.name}"
        print(line, flush=True)
        with (KEPT / FLAKY).open("a") as out:
            out.write(f"{line}\n")
    if left:
        print("Failed twice:", *left, sep="\n    ")
    return not left


def flaky_lines() -> list[str]:
    """What was forgiven since the run began, in all stages."""
    path = KEPT / FLAKY
    return path.read_text().splitlines() if path.exists() else []


def table() -> str:
    """What came of the stages that ran in full; their rows of ``durations.json`` are written."""
    rows: list[tuple[str, ...]] = []
    rows.append(("stage", "passed", "failed", "skipped", "by the clock", "one after the other"))
    costs: dict[str, draw.Costs] = {}
    for name in STAGES:
        path = KEPT / f"{name}.json"
        if not path.exists():
            rows.append((name, "did not run to its end", "", "", "", ""))
            continue
        found = results_of(path)
        counts = [str(found.outcomes.get(one, 0)) for one in ("passed", "failed", "skipped")]
        total_s = sum(found.takes_s.values())
        rows.append((name, *counts, f"{found.seconds:,.0f} s", f"{total_s:,.0f} s"))
        files: dict[str, list[float]] = {}
        for test, takes_s in found.takes_s.items():
            files.setdefault(draw.file_of(test), []).append(takes_s)
        if files:
            costs[name] = {file: draw.measured(seconds) for file, seconds in files.items()}
    draw.write(costs)
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def main(arguments: Sequence[str]) -> int:
    """Run the stage that is named, or print the table."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m tests.stages")
    parser.add_argument("stage", nargs="?", choices=sorted(STAGES))
    parser.add_argument("--draw", metavar="SEED", default="")
    parser.add_argument("--jobs", default="3")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args(arguments[:split])
    if given.table:
        print(table())
        return 0
    if given.stage is None:
        parser.error("which stage?")
    seed = given.draw or str(seeds.seed())
    stage = StageRun(given.stage, seed, bool(given.draw), tuple(arguments[split + 1 :]))
    return run(stage, given.jobs, int(os.environ.get("LOGSTORE_FORGIVE") or 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
