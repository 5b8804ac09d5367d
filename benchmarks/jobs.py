"""Job queues: jobs that do nothing, added one by one, then done by four worker processes.

The workers are started and have opened their queue before the clock starts; it stops when the last
one found nothing more to do.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path

from benchmarks import peer
from benchmarks.harness import Bench, Result, Sample, at_least
from benchmarks.job_queues import QUEUES

NAME = "jobs"
NEEDS = {"huey, SQLite": "huey", "litequeue": "litequeue", "rq, Redis": "rq",
         "persist-queue (1 process)": "persistqueue"}  # fmt: skip
OURS = "logstore.jobs"


def run(bench: Bench) -> list[Result]:
    """Thousands of jobs a second."""
    count = bench.size(10_000, 2_000)
    labels = [name for name in QUEUES if name == OURS or importlib.util.find_spec(NEEDS[name])]
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
                done[label].append(count / _worked(label, folder) / 1e3)
    return [
        _result("jobs done by 4 worker processes", done, f"{count:,} jobs that do nothing"),
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


def _worked(label: str, folder: Path) -> float:
    """How long the workers take for what is there, in seconds."""
    context = multiprocessing.get_context("spawn")
    processes = 1 if "1 process" in label else 4
    barrier: Barrier = context.Barrier(processes + 1)
    workers = [
        context.Process(target=_work, args=(label, str(folder), barrier)) for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    started = time.perf_counter()
    for worker in workers:
        worker.join()
    took_s = time.perf_counter() - started
    if any(worker.exitcode for worker in workers):
        raise RuntimeError(f"a worker of {label} failed")
    return took_s


def _work(label: str, folder: str, barrier: Barrier) -> None:
    queue = QUEUES[label](Path(folder))
    barrier.wait()
    queue.work()
    queue.close()
