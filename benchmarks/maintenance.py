"""An add beside maintenance of another process: nobody who adds should notice it.

One process adds documents, one by one and as fast as it can, under everysec, to a store with a
history. Another one compacts it, erases, copies, trims, .. meanwhile. What counts is the longest
add, and what 999 of 1,000 stay below, while that was under way; what the same adds took before it
began is told beside it, and so is what they take beside a process that only computes, for that is
the machine's. SQLite does the same with a table of as many rows, in WAL mode.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import maintained
from benchmarks.harness import ROOT, Bench, Result, Sample
from benchmarks.maintained import Took

NAME = "maintenance"
# Of adds beside nothing; and looked at beside the work at least: in less there are too few adds to
# tell one of 1,000.
WINDOW_S, WINDOW_TINY_S = 1.0, 0.1
ENDS_S = 120.0
ROUNDS_MAX = 3
P999_GOAL_MS, MOST_GOAL_MS = 5.0, 50.0


class MaintenanceCase(NamedTuple):
    """A work, and who adds beside it."""

    told: str
    work: str
    adders: int = 1
    together: bool = False  # in the process that adds


CASES = (
    MaintenanceCase("a loop of another process", "spin"),
    MaintenanceCase("compact(full=True)", "compact"),
    MaintenanceCase("compact(purge=True)", "purge"),
    MaintenanceCase("a copy of a stream of {entries:,}", "copy"),
    MaintenanceCase("configure(max_entries=), which drops 9 of 10", "configure"),
    MaintenanceCase("configure(compact_by=), which keeps 8", "keep-newest"),
    MaintenanceCase("checkpoint(), two threads that add", "checkpoint", adders=2),
    MaintenanceCase(
        "checkpoint() of the same process, two threads", "checkpoint", adders=2, together=True
    ),
    MaintenanceCase("a trim of {part:,} entries", "trim"),
    MaintenanceCase("the drop of a stream of {entries:,}", "drop"),
    MaintenanceCase("a backup", "backup"),
    MaintenanceCase("a ship into a folder", "ship"),
)
PEER = {"compact": ("VACUUM of SQLite", "vacuum"),
        "checkpoint": ("wal_checkpoint of SQLite", "wal")}  # fmt: skip


class CaseRound(NamedTuple):
    """One round of a case."""

    alone: Took
    beside: Took
    work_s: float


def run(bench: Bench) -> list[Result]:
    """The longest add and the 999th of 1,000, beside each work."""
    entries = bench.size(250_000, 50_000)
    made = bench.folder / "maintained"
    maintained.history(made, entries)
    table = bench.folder / "table.db"
    maintained.fill_table(table, entries)
    window_s = WINDOW_TINY_S if bench.tiny else WINDOW_S
    results: list[Result] = []
    for case in CASES:
        rounds = range(min(bench.rounds, ROUNDS_MAX))
        ours = [
            _round(bench.folder / f"{case.work}-{n}", made, case, entries, window_s) for n in rounds
        ]
        theirs: list[CaseRound] = []
        if case.work in PEER and not case.together:
            beside = MaintenanceCase(*PEER[case.work])
            theirs = [
                _round(bench.folder / f"{n}.db", table, beside, entries, window_s) for n in rounds
            ]
        results += _judged(case, entries, ours, theirs)
    return results


def _judged(
    case: MaintenanceCase, entries: int, ours: Sequence[CaseRound], theirs: Sequence[CaseRound]
) -> list[Result]:
    name = "add beside " + case.told.format(entries=entries, part=entries * 2 // 5)
    alone_p999 = Sample("alone, before", [each.alone.p999_ms for each in ours])
    alone_most = Sample("alone, before", [each.alone.most_ms for each in ours])
    p999 = Sample("logstore", [each.beside.p999_ms for each in ours])
    most = Sample("logstore", [each.beside.most_ms for each in ours])
    peer = PEER[case.work][0] if theirs else ""
    others = [
        [Sample(peer, [each.beside.p999_ms for each in theirs])] if theirs else [],
        [Sample(peer, [each.beside.most_ms for each in theirs])] if theirs else [],
    ]
    adds = sum(each.beside.adds for each in ours) // len(ours)
    note = f"{adds:,} adds in {sum(each.work_s for each in ours) / len(ours):.2f} s"
    longest = max(most.values)
    return [
        Result(f"{name}: 999 of 1,000", "ms", p999, alone_p999, p999.mean,
               f"<= {P999_GOAL_MS:g} ms", p999.mean <= P999_GOAL_MS, note, others[0]),
        Result(f"{name}: the longest", "ms", most, alone_most, longest,
               f"none over {MOST_GOAL_MS:g} ms", longest <= MOST_GOAL_MS, note, others[1]),
    ]  # fmt: skip


def _round(
    place: Path, made: Path, case: MaintenanceCase, entries: int, window_s: float
) -> CaseRound:
    """Copy the store or the table, add to it, maintain it beside that."""
    copied = shutil.copytree if made.is_dir() else shutil.copyfile
    copied(made, place)
    adds = _process(place, case.adders, case.work if case.together else "nothing", entries)
    works = adds if case.together else _process(place, 0, case.work, entries)
    time.sleep(window_s)
    began_ns, ended_ns = _answer(works, "go")
    if works is not adds:
        _answer(adds, "go")
    until_ns = max(ended_ns, began_ns + int(window_s * 1e9))
    time.sleep(max(0.0, (until_ns - time.monotonic_ns()) / 1e9))
    windows = [(began_ns - int(window_s * 1e9), began_ns), (began_ns, until_ns)]
    alone, beside = (Took(int(count), *ms) for count, *ms in _answer(adds, json.dumps(windows)))
    adds.communicate(timeout=ENDS_S)
    if works is not adds:
        works.communicate("[]\n", timeout=ENDS_S)
    _remove(place)
    return CaseRound(alone, beside, (ended_ns - began_ns) / 1e9)


def _remove(place: Path) -> None:
    """The store or table, and what was made beside it."""
    for left in place.parent.glob(f"{place.stem}*"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def _process(place: Path, adders: int, work: str, entries: int) -> subprocess.Popen[str]:
    """One of them, when it is ready."""
    command = [sys.executable, "-m", "benchmarks.maintained", str(place), str(adders), work]
    made = subprocess.Popen(
        [*command, str(entries)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert made.stdout is not None
    assert made.stdout.readline() == "ready\n"
    return made


def _answer(process: subprocess.Popen[str], line: str) -> Any:
    """What it prints for a line."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())
