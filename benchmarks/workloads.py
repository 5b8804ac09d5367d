"""What users do, by the processor time of all threads and processes that take part.

Nothing is repeated: names, IDs, shapes, sizes and the order of streams are drawn at random, and the
seed is told. Each side does each work in the same run, on what the works before left, and the sides
take turns at going first. A work's goal is a ratio to SQLite's processor time. The label says what
was done. ``works`` names this alone; the set ``workloads`` is more.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.harness import Bench, Result, Sample, at_most, below, process_ms
from benchmarks.workload_sides import Fields, Ours, RocksDB, SQLite

NAME = "works"
SEED = "LOGSTORE_BENCH_SEED"
WAITS_S = 1.0
BATCH = 100
OPENED = 3  # processes in one measurement
ROWS_MIN = 1_000  # as many as all works on jobs take
CLOSE = "close, after all of these"
CLOSE_GOAL_US = 100_000.0
OPENS = {
    "logstore": "import sys, logstore; logstore.open(sys.argv[1]).stream('s').add({'a': '1'})",
    "SQLite": "import sys, sqlite3; base = sqlite3.connect(sys.argv[1], isolation_level=None); "
    "base.execute('PRAGMA journal_mode = WAL'); "
    "base.execute('CREATE TABLE IF NOT EXISTS s (a)'); base.execute('INSERT INTO s VALUES (1)')",
}


@dataclass(frozen=True, slots=True)
class Work:
    """One thing that users do."""

    name: str
    goal: float  # at most so many times SQLite's processor time; CLOSE_GOAL_US of a close
    count: int  # of operations in one measurement
    method: str  # of the sides
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Spent:
    """What one operation took, on average."""

    processor_us: float
    clock_us: float


def run(bench: Bench) -> list[Result]:
    """A line a work."""
    seed = int(os.environ.get(SEED, random.randrange(10**6)))
    print(f"workloads: {SEED}={seed}", file=sys.stderr, flush=True)
    found: dict[str, dict[str, list[Spent]]] = {}
    goals: dict[str, float] = {}
    for number in range(-1, bench.rounds):  # the first one does not count
        folder = bench.folder / f"workloads-{number}"
        folder.mkdir()
        for work, label, spent in one_round(bench, random.Random(seed), folder, number):
            goals[work.name] = work.goal
            if number >= 0:
                found.setdefault(work.name, {}).setdefault(label, []).append(spent)
        shutil.rmtree(folder)
    return [judged(name, goals[name], sides) for name, sides in found.items()]


def judged(name: str, goal: float, sides: dict[str, list[Spent]]) -> Result:
    """The result of a work: ours against SQLite, RocksDB beside."""
    ours, judge, *others = (
        Sample(label, [spent.processor_us for spent in each]) for label, each in sides.items()
    )
    clock = ", ".join(
        f"{label} {sum(spent.clock_us for spent in each) / len(each):,.1f}"
        for label, each in sides.items()
    )
    unit, note = "us of processor time", f"by the clock: {clock}"
    if name == CLOSE:
        return below(name, unit, ours, goal, judge, note)
    return at_most(name, unit, ours, judge, goal, note, others)


def one_round(
    bench: Bench, drawn: random.Random, folder: Path, number: int
) -> list[tuple[Work, str, Spent]]:
    """All works on new stores."""
    sides: list[Any] = [Ours(folder), SQLite(folder)]
    if peers.is_there("rocksdict"):
        sides.append(RocksDB(folder))
    rows = [_reading(drawn) for _ in range(max(ROWS_MIN, bench.size(1_000_000, 20_000)))]
    jobs = rows[: max(ROWS_MIN, bench.size(100_000, 20_000))]
    for side in sides:
        side.load(rows, jobs)
    done: list[tuple[Work, str, Spent]] = []
    pending = bench.size(5000, 1000)
    works = _adds(bench, drawn) + _reads(bench, drawn, len(rows)) + _jobs(bench)
    works += _leases(bench, drawn, pending)
    holes = drawn.sample(range(len(jobs)), len(jobs) * 3 // 200)
    for side in sides[:2]:
        side.punch(holes)
        side.lend(pending, drawn.sample(range(pending), pending // 50))
    close = Work(CLOSE, CLOSE_GOAL_US, 1, "close", ())
    # What this module holds, a million IDs and documents, is no work of either side: a
    # garbage collection that walks over them takes 40 ms, in whatever work it falls.
    gc.collect()
    gc.freeze()
    for at, work in enumerate([*works, close]):
        calls = {
            side.label: partial(getattr(side, work.method), *work.arguments)
            for side in sides
            if hasattr(side, work.method)
        }
        done += [(work, label, spent) for label, spent in in_turn(calls, work.count, at + number)]
    opens = Work("a process that opens, adds one and ends", 2.5, OPENED, "", ())
    calls = {
        label: partial(_processes, code, folder / f"o-{label}") for label, code in OPENS.items()
    }
    gc.unfreeze()
    return done + [(opens, label, spent) for label, spent in in_turn(calls, opens.count, number)]


def in_turn(
    calls: dict[str, Callable[[], object]], count: int, turn: int
) -> list[tuple[str, Spent]]:
    """Time each side once, another one first each time; in the order of the sides."""
    labels = list(calls)
    first = turn % len(labels)
    found: dict[str, Spent] = {}
    for label in labels[first:] + labels[:first]:
        clock_s, processor_s = time.perf_counter(), processor_time_s()
        calls[label]()
        found[label] = Spent(
            (processor_time_s() - processor_s) / count * 1e6,
            (time.perf_counter() - clock_s) / count * 1e6,
        )
    return [(label, found[label]) for label in labels]


def processor_time_s() -> float:
    """Of this process, its threads, and the processes that it waited for."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def _processes(code: str, path: Path) -> None:
    """Run it some times."""
    for _ in range(OPENED):
        process_ms(path.parent.parent / "bytecode", code, path)


def _docs(drawn: random.Random, count: int) -> list[Fields]:
    """Three shapes in turn, their values drawn; each has names of its own, as a decoder makes
    them."""
    shapes = (
        _reading,
        lambda drawn: {
            "lat": f"{drawn.uniform(-90, 90):.4f}", "lon": f"{drawn.uniform(-180, 180):.4f}",
            "alt": str(drawn.randrange(4_000)),
        },
        lambda drawn: {
            "event": drawn.choice(("login", "logout", "größer")), "user": str(drawn.random()),
        },
    )  # fmt: skip
    return [json.loads(json.dumps(shapes[at % len(shapes)](drawn))) for at in range(count)]


def _reading(drawn: random.Random) -> Fields:
    return {"temp": f"{drawn.uniform(-20, 40):.1f}", "hum": str(drawn.randrange(100))}


def _adds(bench: Bench, drawn: random.Random) -> list[Work]:
    count = bench.size(6000, 1000)
    docs = _docs(drawn, count)
    half, quarter = docs[: count // 2], docs[: count // 4]
    words = [{"who": f"José {at}", "temp": drawn.random()} for at in range(count // 3)]
    found = [
        Work("add, all different, close included", 0.5, count, "add_and_close", (docs,)),
        Work("add, three shapes in turn", 0.35, count, "add", ("plain", docs)),
        Work("add, a float and letters beyond ASCII", 1.0, len(words), "add", ("words", words)),
    ]
    for full, goal in ((100, 1.0), (5000, 1.0), (50_000, 2.0)):
        streams = bench.size(full, full // 10)
        names = [f"s{streams}:{at}" for at in range(streams)]
        order = [drawn.randrange(streams) for _ in docs]
        first = (names, range(streams), [_reading(drawn) for _ in names])
        found += [
            Work(f"the first add of each of {streams:,} streams", 1.0, streams, "add_over", first),
            Work(f"add, {streams:,} streams at random", goal, count, "add_over",
                 (names, order, docs)),
        ]  # fmt: skip
    for size_bytes in (1024, 16_384):
        values = [{"v": drawn.randbytes(size_bytes // 2).hex()} for _ in range(count // 6)]
        found.append(
            Work(f"add, a value of {size_bytes:,} bytes", 1.0, len(values), "add",
                 (f"v{size_bytes}", values))
        )  # fmt: skip
    return [
        *found,
        Work("add with max_entries=1000", 0.8, len(half), "add_capped", (half,)),
        Work("add, the ID given", 1.0, len(half), "add_given", (half,)),
        Work("transaction of two adds", 0.45, len(quarter), "add_pairs", (quarter,)),
        Work("add_many of ten, an entry", 0.6, count, "add_tens", (docs,)),
    ]


def _reads(bench: Bench, drawn: random.Random, rows: int) -> list[Work]:
    count = bench.size(4000, 800)
    picks = [drawn.randrange(rows) for _ in range(count)]
    gone = list(dict.fromkeys(picks))[: count * 3 // 8]
    half = picks[: count // 2]
    return [
        Work(f"get, at random of {rows:,}", 0.7, count, "get", (picks,)),
        Work(f"range of ten, at random of {rows:,}", 1.0, len(half), "get_tens", (half,)),
        Work("range of all, an entry", 1.0, rows, "walk", ()),
        Work("delete, at random", 0.8, len(gone), "delete", (gone,)),
    ]


def _jobs(bench: Bench) -> list[Work]:
    count = bench.size(2000, 400)

    def take(name: str, stream: str, group: str, timeout_s: float) -> Work:
        return Work(name, 0.5, count, "take", (stream, group, count, timeout_s))

    return [
        take("queue: take one, ack it", "jobs", "plain", 0),
        take(f"queue: the same, with a timeout of {WAITS_S:g} s", "jobs", "waits", WAITS_S),
        take("queue: the same, 1.5 % of the stream deleted", "holed", "plain", 0),
        Work(f"queue: the same, {BATCH} at once, each", 0.5, count, "take_many",
             (count, BATCH, WAITS_S)),
        Work(f"queue: {count:,} pending, acked at random", 0.5, count, "take_late", (count,)),
        Work("queue: take, result and ack as one", 0.5, count // 2, "take_once", (count // 2,)),
    ]  # fmt: skip


def _leases(bench: Bench, drawn: random.Random, pending: int) -> list[Work]:
    """What becomes of jobs that were taken and not acked; one in fifty was deleted since."""
    count = bench.size(2000, 400)
    picks = [[drawn.randrange(pending) for _ in range(count)] for _ in range(2)]
    of = f"of {pending:,} pending, 2 % deleted"
    return [
        Work(f"queue: give one back, at random {of}", 1.0, count, "give_back", (picks[0],)),
        Work(f"queue: claim one, at random {of}", 1.0, count, "claim", (picks[1],)),
        Work(f"queue: claim the one idle longest {of}", 1.0, count, "claim_idle", (count,)),
        Work("queue: read ten of one's own again", 1.0, count // 5, "read_own", (count // 5,)),
    ]
