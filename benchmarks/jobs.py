"""Job queues: jobs that do nothing, added one by one, then done by four worker processes.

The workers are started and have opened their queue before the clock starts; it stops when the last
job ran. Ours work as ``logstore work`` has them, and wait for more, with each option at its
default. Thirty lines of SQLite do the same without retries, leases or a worker that is replaced.

And ours once more with workers that are killed: jobs that add an entry each in their transaction,
and a worker killed with SIGKILL after each sixth of them, five in all, and another one started for
it. The clock stops when the last effect is there: it has waited for what the killed ones held, and
for the starts of five interpreters. An effect that is missing or there twice fails the benchmark.
The peers beside it are not killed: of those without a server none gives the job of a killed worker
to another one by itself.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import random
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue as Told
from multiprocessing.synchronize import Barrier
from pathlib import Path

from benchmarks import peer
from benchmarks.harness import Bench, Result, Sample, at_least
from benchmarks.job_queues import LEFT_OUT, QUEUES, OursOnce, Ran

NAME = "jobs"
NEEDS = {"huey, SQLite": "huey", "litequeue": "litequeue", "rq, Redis": "rq",
         "persist-queue (1 process)": "persistqueue", "DBOS, SQLite": "dbos",
         "SQLite, 30 lines": "sqlite3", "logstore.jobs": "logstore"}  # fmt: skip
OURS = "logstore.jobs"
DONE = "jobs done by 4 worker processes, as `logstore work` does them"
KILLED = 5
STUCK_S = 300


def run(bench: Bench) -> list[Result]:
    """Thousands of jobs a second."""
    count = bench.size(10_000, 2_000)
    labels = [name for name in QUEUES if importlib.util.find_spec(NEEDS[name])]
    missing = [f"{name} is left out: it is not installed" for name in QUEUES if name not in labels]
    print(*LEFT_OUT, *missing, sep="\n", file=sys.stderr, flush=True)
    added: dict[str, list[float]] = {label: [] for label in labels}
    done: dict[str, list[float]] = {label: [] for label in labels}
    for number in range(bench.rounds):
        for label in labels:
            folder = bench.folder / f"jobs-{number}"
            with _place(folder, label):
                queue = QUEUES[label](folder)
                started = time.perf_counter()
                queue.add(count)
                added[label].append(count / (time.perf_counter() - started) / 1e3)
                queue.close()
                done[label].append(count / _worked(label, folder, count) / 1e3)
    killed = {OURS: [count / _killed(bench.folder / f"killed-{number}", count) / 1e3
                     for number in range(bench.rounds)]}  # fmt: skip
    killed |= {label: values for label, values in done.items() if label != OURS}
    return [
        _result(DONE, done, f"{count:,} jobs that do nothing"),
        _result(
            f"jobs done once by 4 worker processes of which {KILLED} are killed",
            killed,
            f"{count:,} of {count:,} effects, each once; of the others no worker is killed",
        ),
        _result("jobs added one by one", added, "everysec, or what is like it"),
    ]


def _result(name: str, found: dict[str, list[float]], note: str) -> Result:
    samples = [Sample(label, values) for label, values in found.items()]
    ours, *others = samples
    if not others:
        told = "beside peers, which make bench installs"
        return Result(name, "k jobs/s", ours, None, ours.mean, told, True, note)
    best = max(others, key=lambda each: each.mean)
    rest = [each for each in others if each is not best]
    return at_least(name, "k jobs/s", ours, best, 1.0, note, rest)


@contextmanager
def _place(folder: Path, label: str) -> Iterator[None]:
    """A folder for one queue, with a server if it needs one."""
    folder.mkdir()
    try:
        if label == "rq, Redis":
            with peer.redis_server(folder / "redis") as port:
                (folder / "port").write_text(str(port))
                yield
        else:
            yield
    finally:
        shutil.rmtree(folder)


def _worked(label: str, folder: Path, count: int) -> float:
    """How long the workers take for what is there, in seconds."""
    context = multiprocessing.get_context("spawn")
    processes = 1 if "1 process" in label else 4
    barrier: Barrier = context.Barrier(processes + 1)
    told: Told[tuple[int, int]] = context.Queue()
    workers = [
        context.Process(target=_work, args=(label, str(folder), barrier, told))
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    started_ns = time.monotonic_ns()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise RuntimeError(f"a worker of {label} failed")
    ran = [told.get(timeout=STUCK_S) for _ in workers]
    if (jobs := sum(each for each, _ in ran)) != count:
        raise RuntimeError(f"workers of {label} did {jobs} of {count} jobs")
    return (max(last_ns for _, last_ns in ran) - started_ns) / 1e9


def _killed(folder: Path, count: int) -> float:
    """How long workers take for jobs of ours while some of them are killed, in seconds."""
    folder.mkdir()
    context = multiprocessing.get_context("spawn")
    barrier: Barrier = context.Barrier(5)
    rng = random.Random(count)
    queue = OursOnce(folder)
    queue.add(count)
    workers = [context.Process(target=_work_on, args=(str(folder), barrier)) for _ in range(4)]
    for worker in workers:
        worker.start()
    barrier.wait()
    started, killed = time.perf_counter(), 0
    try:
        while (finished := queue.finished()) < count:
            if time.perf_counter() - started > STUCK_S:
                raise RuntimeError(f"{finished} of {count} jobs ended, and no more")
            if killed < KILLED and finished > (killed + 1) * count // (KILLED + 1):
                at = rng.randrange(len(workers))
                workers[at].kill()
                workers[at].join()
                workers[at] = context.Process(target=_work_on, args=(str(folder), None))
                workers[at].start()
                killed += 1
            time.sleep(0.01)
        took_s = time.perf_counter() - started
        if sorted(queue.effects()) != list(range(count)) or killed != KILLED:
            raise RuntimeError(f"{len(queue.effects())} effects of {count} jobs, {killed} killed")
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
        queue.close()
        shutil.rmtree(folder)
    return took_s


def _work_on(folder: str, barrier: Barrier | None) -> None:
    queue = OursOnce(Path(folder))
    if barrier is not None:
        barrier.wait()
    queue.work()


def _work(label: str, folder: str, barrier: Barrier, told: Told[tuple[int, int]]) -> None:
    queue = QUEUES[label](Path(folder))
    barrier.wait()
    queue.work()
    told.put((Ran.jobs, Ran.last_ns))
    queue.close()
