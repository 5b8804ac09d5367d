"""XADD through the server, and redis-py without one, against Redis (everysec); idle clients.

The same client sends the same bytes to both servers: one connection, 64 requests at a time. It is
redis-benchmark where that is installed (Debian's redis-tools), else a loop of this module. With it
also one and fifty clients that send one request at a time, of a few kinds, and fifty that send 64.
What single commands cost the server in processor time is in ``served_commands``.
"""

from __future__ import annotations

import csv
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import idle_clients, peer, served_commands
from benchmarks.harness import ROOT, Bench, Result, Sample, at_least, interleave

NAME = "wire"
PIPELINE = 64
RATE = 100_000.0  # a second, through the server
ROW = {"rider": "Castilla", "speed": "30.2"}
ADD = ("XADD", "s", "*", *(part for pair in ROW.items() for part in pair))
TOOL = "redis-benchmark"
CROWD = 50  # clients, as redis-benchmark has them if it is told nothing
OF_REDIS = 0.5  # of its rate
LABELS = ("logstore serve", "Redis")


class Asked(NamedTuple):
    """What clients send, how many clients, and how many requests each at a time."""

    words: tuple[str, ...]
    clients: int
    pipeline: int


ASKED = (
    Asked(ADD, 1, 1),
    Asked(ADD, CROWD, 1),
    Asked(ADD, CROWD, PIPELINE),
    Asked(("XLEN", "s"), 1, 1),
    Asked(("XLEN", "s"), CROWD, 1),
    Asked(("PING",), CROWD, 1),
)


def run(bench: Bench) -> list[Result]:
    """Entries a second."""
    with (
        peer.redis_server(bench.folder / "wire-redis") as far,
        served(bench.folder / "wire-served") as (near, near_pid),
        served(bench.folder / "wire-bare") as (bare, _),
    ):
        rate = _by_loop if shutil.which(TOOL) is None else _by_tool
        name = f"XADD through the server, pipeline 64{'' if rate is _by_loop else f', {TOOL}'}"
        samples = _pipelined(bench, near, far, rate)
        fast = samples[0].mean >= RATE
        return [
            at_least(name, "entries/s", *samples, OF_REDIS),
            Result(name, "entries/s", samples[0], None,
                   samples[0].mean, f">= {RATE:,.0f} entries/s", fast),
            *([] if rate is _by_loop else _asked(bench, near, far)),
            *served_commands.results(bench, (near, near_pid), (far, peer.process_of(far))),
            _embedded(bench, far),
            *idle_clients.results(
                bench, (near, near_pid), (far, peer.process_of(far)), bare, rate
            ),
        ]  # fmt: skip


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int]]:
    """The port and the process of ``logstore serve`` while the block runs."""
    command = [sys.executable, "-m", "logstore.tools.cli", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        found = re.search(rb":(\d+)$", process.stdout.readline().strip())
        assert found is not None
        yield int(found.group(1)), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _by_loop(port: int, count: int) -> float:
    batch = idle_clients.request(*ADD) * PIPELINE
    with socket.create_connection(("127.0.0.1", port)) as connection:
        started = time.perf_counter()
        for _ in range(count // PIPELINE):
            connection.sendall(batch)
            left = PIPELINE
            while left:
                left -= connection.recv(1 << 16).count(b"$")
        return count / (time.perf_counter() - started)


def _by_tool(port: int, count: int, asked: Asked | None = None) -> float:
    words, clients, pipeline = asked or Asked(ADD, 1, PIPELINE)
    done = subprocess.run(
        [TOOL, "-p", str(port), "-c", str(clients), "-P", str(pipeline), "-n", str(count),
         "--csv", *words],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    head, row, *_ = csv.reader(done.stdout.splitlines())
    return float(row[head.index("rps")])


def _pipelined(
    bench: Bench, near: int, far: int, rate: Callable[[int, int], float]
) -> tuple[Sample, Sample]:
    count = bench.size(200_000, 50_000) // PIPELINE * PIPELINE
    return interleave(bench.rounds, lambda _: rate(near, count), lambda _: rate(far, count), LABELS)


def _asked(bench: Bench, near: int, far: int) -> Iterator[Result]:
    """One and many clients, one request at a time and pipelines; both servers in turns."""
    for asked in ASKED:
        count = bench.size(20_000, 5_000) * (1 if asked.pipeline == 1 else 10)

        def rate(port: int, asked: Asked = asked, count: int = count) -> float:
            return _by_tool(port, count, asked)

        samples = interleave(
            bench.rounds, lambda _, rate=rate: rate(near), lambda _, rate=rate: rate(far), LABELS
        )
        asks = "no pipeline" if asked.pipeline == 1 else f"pipeline {asked.pipeline}"
        crowd = "1 client" if asked.clients == 1 else f"{asked.clients} clients"
        name = f"{asked.words[0]} through the server, {crowd}, {asks}"
        yield at_least(name, "requests/s", *samples, OF_REDIS)


def _embedded(bench: Bench, far: int) -> Result:
    from logstore.redis import Redis

    count = bench.size(20_000, 5_000)
    client = peer.connect(far)
    with Redis(bench.folder / "wire-embedded") as near:

        def rate(redis: object) -> float:
            add = redis.xadd  # type: ignore[attr-defined]
            started = time.perf_counter()
            for _ in range(count):
                add("s", ROW)
            return count / (time.perf_counter() - started)

        samples = interleave(
            bench.rounds, lambda _: rate(near), lambda _: rate(client),
            ("logstore.redis", "redis-py, TCP"),
        )  # fmt: skip
    return at_least("XADD one by one, embedded client", "entries/s", *samples, 2.0)
