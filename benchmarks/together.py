"""Threads and processes that add to one store at once: what all of them do, over what one does.

Each adds documents, one by one and as fast as it can, to a stream of its own, or all to one. The
rate is that of all together, from the first add to the last. Under everysec the interpreter's lock
lets one thread add at a time, so threads have no goal there and are told; under always they share a
sync. SQLite does the same with a connection for each thread and process, in WAL mode, under always
with synchronous=FULL.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import logstore
from benchmarks import maintained
from benchmarks.harness import ROOT, Bench, Result, at_least, in_turns
from logstore.api.store import Store
from logstore.options import Sync

NAME = "together"
OURS, SQLITE = "logstore", "SQLite"
THREADS, PROCESSES = (2, 4, 16), (2, 4)
THREADS_ALWAYS = 16
PROCESSES_GOAL, THREADS_ALWAYS_GOAL = 0.9, 6.0
ROUNDS_MAX = 3
SYNCHRONOUS: dict[Sync, str] = {"always": "FULL", "everysec": "NORMAL"}
ENDS_S = 600.0

Add = Callable[[maintained.Document], object]


class Crew(NamedTuple):
    """Who adds at once."""

    side: str
    sync: Sync
    processes: int = 1
    threads: int = 1
    one_stream: bool = False

    @property
    def label(self) -> str:
        """What it is called as a side."""
        count = max(self.processes, self.threads)
        what = "thread" if self.threads > 1 else "process"
        plural = "" if count == 1 else "es" if what == "process" else "s"
        return f"{self.side}, {count} {what}{plural}"


def run(bench: Bench) -> list[Result]:
    """Rates of many over that of one."""
    plain, synced = bench.size(40_000, 8_000), bench.size(3_000, 600)
    results: list[Result] = []
    for threads in THREADS:
        name = f"{threads} threads under everysec"
        results.append(
            _without_goal(_compared(bench, name, Crew(OURS, "everysec", 1, threads), plain))
        )
    for one_stream in (False, True):
        for processes in PROCESSES:
            crew = Crew(OURS, "everysec", processes, one_stream=one_stream)
            where = "to one stream" if one_stream else "to streams of their own"
            name = f"{processes} processes under everysec, {where}"
            results.append(_compared(bench, name, crew, plain, PROCESSES_GOAL))
    threads_always = Crew(OURS, "always", 1, THREADS_ALWAYS, one_stream=True)
    results.append(
        _compared(bench, "threads under always", threads_always, synced, THREADS_ALWAYS_GOAL)
    )
    for processes in PROCESSES:
        name = f"{processes} processes under always"
        crew = Crew(OURS, "always", processes)
        results.append(_compared(bench, name, crew, synced, PROCESSES_GOAL))
    return results


def _compared(bench: Bench, name: str, many: Crew, count: int, goal: float = 0.0) -> Result:
    """So many adds by one, by many, and by as many with SQLite."""
    alone = many._replace(processes=1, threads=1)
    crews = [many, alone, many._replace(side=SQLITE), alone._replace(side=SQLITE)]
    place = bench.folder / "together"
    sides = {
        each.label: partial(lambda _number, crew: _rate(place, crew, count), crew=each)
        for each in crews
    }
    ours, one, *theirs = in_turns(min(bench.rounds, ROUNDS_MAX), sides)
    note = f"SQLite {theirs[0].mean / theirs[1].mean:.2f} x"
    return at_least(name, "k adds/s", ours, one, goal, note, theirs)


def _without_goal(result: Result) -> Result:
    """One without a goal."""
    return Result(
        result.name, result.unit, result.ours, result.peer, result.measured, "told alone", True,
        result.note, result.others,
    )  # fmt: skip


def _rate(place: Path, crew: Crew, count: int) -> float:
    """Thousands of adds a second, of all together, to a store that is made for it."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    _make(place, crew)
    each = count // crew.processes // crew.threads
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.together", str(place), crew.side, crew.sync,
             str(crew.threads), str(each), str(number), str(int(crew.one_stream))],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(crew.processes)
    ]  # fmt: skip
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [json.loads(process.communicate(timeout=ENDS_S)[0]) for process in running]
    passed_s = (max(ended for _, ended in told) - min(began for began, _ in told)) / 1e9
    return each * crew.processes * crew.threads / passed_s / 1e3


def _make(place: Path, crew: Crew) -> None:
    if crew.side == OURS:
        logstore.open(place / OURS, sync=crew.sync).close()
    else:
        maintained.fill_table(place / "table.db", 0)


def _inserting(place: Path, sync: Sync) -> Add:
    """Of a connection of the thread's own."""
    base = maintained.opened_table(place)
    base.execute(f"PRAGMA synchronous = {SYNCHRONOUS[sync]}")
    return partial(base.execute, maintained.INSERT)


def _adding(store: Store[bytes], name: str) -> Add:
    return store.stream(name).add


def _openers(
    place: Path, side: str, sync: Sync, streams: Sequence[str], held: ExitStack
) -> list[Callable[[], Add]]:
    """What gives each thread, called by it, what adds an entry."""
    if side == SQLITE:
        return [partial(_inserting, place / "table.db", sync) for _ in streams]
    store = held.enter_context(logstore.open(place / OURS, sync=sync, create=False))
    return [partial(_adding, store, name) for name in streams]


def _add_all(
    opener: Callable[[], Add], documents: Sequence[maintained.Document], turns: threading.Barrier
) -> None:
    add = opener()
    turns.wait()  # all are ready
    turns.wait()  # and begin
    for each in documents:
        add(each)


def main(
    place: str, side: str, sync: Sync, threads: str, count: str, number: str, one_stream: str
) -> None:
    """Be one process of a crew; when it began, and when its last add was through."""
    seeds = [int(number) * 100 + thread for thread in range(int(threads))]
    streams = ["all" if one_stream == "1" else f"of-{seed}" for seed in seeds]
    turns = threading.Barrier(len(seeds) + 1)
    with ExitStack() as held, ThreadPoolExecutor(len(seeds)) as pool:
        openers = _openers(Path(place), side, sync, streams, held)
        drawn = [list(islice(maintained.documents(seed), int(count))) for seed in seeds]
        running = [
            pool.submit(_add_all, opener, documents, turns)
            for opener, documents in zip(openers, drawn, strict=True)
        ]
        turns.wait()
        print("ready", flush=True)
        sys.stdin.readline()
        began_ns = time.monotonic_ns()
        turns.wait()
        for each in running:
            each.result()
        print(json.dumps([began_ns, time.monotonic_ns()]), flush=True)


if __name__ == "__main__":
    place_, side_, sync_, *counts_ = sys.argv[1:]
    main(place_, side_, "always" if sync_ == "always" else "everysec", *counts_)
