"""Waiting: how late time-outs come, what idle waiters cost, how soon an add wakes another process.

Processor time is that of a process that does nothing but wait, less that of one that has the store
open and does not wait. Latencies are by the machine's monotonic clock, beside a local Redis.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import logstore
from benchmarks import peer
from benchmarks.harness import ROOT, Bench, Result, Sample, below
from benchmarks.waiters import KINDS, NEVER_S, PLACES, QUEUED
from logstore import aio

NAME = "waiting"
THREADS = 8
TASKS = 40
TIMEOUT_MAX_S = 0.3
LATE_MS = 5.0
IDLE_PERCENT = 0.2
WAKE_MS = 1.0
PAUSE_S = 0.005


def run(bench: Bench) -> list[Result]:
    """Time-outs, idle waiters, wake-ups."""
    path = bench.folder / "waiting"
    with logstore.open(path, sync="everysec") as store:
        stream = store.stream("s")
        stream.add({"a": "b"})
        for name in KINDS:
            stream.group(name, start="0").read("gone")
    return [*_time_outs(bench, path), *_idle(bench, path), *_wake_ups(bench, path)]


# -- time-outs ---------------------------------------------------------------------------------
def _time_outs(bench: Bench, path: Path) -> list[Result]:
    """How late calls with random time-outs return."""
    each = max(3, bench.size(80, 15))
    with logstore.open(path, create=False) as store:
        stream = store.stream("s")
        group = stream.group("group")
        reads: dict[str, Callable[[str, float], object]] = {
            "stream.read": lambda _, timeout: stream.read(timeout=timeout),
            "group.read": lambda who, timeout: group.read(who, timeout=timeout),
            "group.read(min_idle=)": lambda who, timeout: group.read(
                who, timeout=timeout, min_idle=NEVER_S
            ),
        }
        results = [
            _late(f"{name}, {THREADS} threads", _of_threads(read, each))
            for name, read in reads.items()
        ]
    late = asyncio.run(_of_tasks(path, each))
    return [*results, _late(f"group.read, {TASKS} tasks", late)]


def _late(name: str, late_s: list[float]) -> Result:
    late = sorted(each * 1e3 for each in late_s)
    p99 = late[len(late) * 99 // 100]
    early = sum(each < 0 for each in late)
    note = f"{len(late)} waits, median {statistics.median(late):.2f}, {early} early"
    return Result(
        f"time-outs, p99 of the delay, {name}", "ms", Sample(name, [p99]), None, p99,
        f"<= {LATE_MS:g} ms, none early", p99 <= LATE_MS and not early, note,
    )  # fmt: skip


def _of_threads(read: Callable[[str, float], object], each: int) -> list[float]:
    late: list[float] = []

    def work(number: int) -> None:
        chosen = random.Random(number)
        for _ in range(each):
            timeout = chosen.uniform(0.001, TIMEOUT_MAX_S)
            began = time.monotonic()
            read(f"c{number}", timeout)
            late.append(time.monotonic() - began - timeout)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return late


async def _of_tasks(path: Path, each: int) -> list[float]:
    late: list[float] = []
    async with aio.open(path, create=False) as store:
        group = await store.stream("s").group("asyncio")

        async def work(number: int) -> None:
            chosen = random.Random(number)
            for _ in range(each):
                timeout = chosen.uniform(0.001, TIMEOUT_MAX_S)
                began = time.monotonic()
                await group.read(f"c{number}", timeout=timeout)
                late.append(time.monotonic() - began - timeout)

        await asyncio.gather(*[work(number) for number in range(TASKS)])
    return late


# -- idle waiters ------------------------------------------------------------------------------
def _idle(bench: Bench, path: Path) -> list[Result]:
    """Percent of a core that a waiter takes; the processes wait side by side."""
    seconds = 1 if bench.tiny else 5 if bench.quick else 25
    running = {kind: _child("idle", path, kind, seconds) for kind in KINDS}
    used = {kind: 100 * _last_json(each) / seconds for kind, each in running.items()}
    idle = used.pop("nothing")
    note = f"{seconds} s; a process that does not wait takes {idle:.3f}"
    return [
        below(
            f"idle waiter, {kind}", "% of a core",
            Sample(kind, [(found - idle) / (PLACES if kind == QUEUED else 1)]), IDLE_PERCENT,
            note=note,
        )
        for kind, found in used.items()
    ]  # fmt: skip


# -- wake-ups ----------------------------------------------------------------------------------
def _wake_ups(bench: Bench, path: Path) -> list[Result]:
    """From an add to its receipt in another process that waits for it alone."""
    count = bench.size(2_000, 500)
    results: list[Result] = []
    with (
        peer.redis_server(bench.folder / "redis") as port,
        logstore.open(path, create=False) as store,
    ):
        client = peer.connect(port)
        for how in ("stream", "group"):
            stream = store.stream(how)
            stream.add({"t": "0"})
            stream.group("g", start="$")
            client.xadd(how, {"t": "0"})
            client.xgroup_create(how, "g", "$")
            ours = _received(_child("receive", path, how, count), count, stream.add)
            theirs = _received(
                _child("receive_peer", port, how, count), count,
                partial(client.xadd, how),
            )  # fmt: skip
            results.append(_woken(f"{how}.read", ours, theirs))
    return results


def _woken(name: str, ours: list[float], theirs: list[float]) -> Result:
    late, other = (sorted(each * 1e3 for each in found) for found in (ours, theirs))
    p99, other_p99 = late[len(late) * 99 // 100], other[len(other) * 99 // 100]
    note = f"median {statistics.median(late):.3f}, Redis {statistics.median(other):.3f}"
    return below(
        f"add to receipt, one waiter, p99, {name}", "ms", Sample("logstore", [p99]), WAKE_MS,
        Sample("Redis", [other_p99]), note=note,
    )  # fmt: skip


def _received(
    child: subprocess.Popen[str], count: int, add: Callable[[dict[str, str]], object]
) -> list[float]:
    assert child.stdout is not None
    child.stdout.readline()  # it is about to wait
    time.sleep(0.05)
    for _ in range(count):
        time.sleep(PAUSE_S)
        add({"t": str(time.monotonic_ns())})
    found: list[float] = _last_json(child)
    return found


def _child(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.waiters", *map(str, arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _last_json(child: subprocess.Popen[str]) -> Any:
    out, _ = child.communicate(timeout=120)
    return json.loads(out.splitlines()[-1])
