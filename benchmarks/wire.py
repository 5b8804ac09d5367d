"""XADD through the server, and redis-py without one, against Redis (everysec); idle clients.

The same client sends the same bytes to both servers: one connection, 64 requests at a time. It is
redis-benchmark where that is installed (Debian's redis-tools), else a loop of this module. With it
also one and fifty clients that send one request at a time, of a few kinds, and fifty that send 64.
Streams and values are drawn at random. What single commands cost the server is in ``served``.
"""

from __future__ import annotations

import csv
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import data, idle_clients, peer
from benchmarks.harness import Bench, Result, Sample, at_least, interleave
from benchmarks.served_commands import served

NAME = "wire"
PIPELINE = 64
RATE = 100_000.0  # a second, through the server
STREAMS = 1_000
DRAWN = "__rand_int__"  # by redis-benchmark, below STREAMS
ADD = ("XADD", f"s{DRAWN}", "*", "rider", f"Ngô {DRAWN}", "speed", DRAWN)
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
    Asked(("XLEN", ADD[1]), 1, 1),
    Asked(("XLEN", ADD[1]), CROWD, 1),
    Asked(("PING",), CROWD, 1),
)


def run(bench: Bench) -> list[Result]:
    """Entries a second."""
    with (
        peer.unix_socket() as unix,
        peer.redis_server(bench.folder / "wire-redis", unix_socket=unix) as far,
        served(bench.folder / "wire-served") as (near, near_pid),
        served(bench.folder / "wire-bare") as (bare, _),
    ):
        rate = _by_loop if shutil.which(TOOL) is None else _by_tool
        name = f"{_through(ADD)}, pipeline 64{'' if rate is _by_loop else f', {TOOL}'}"
        samples = _pipelined(bench, near, far, rate)
        fast = samples[0].mean >= RATE
        return [
            at_least(name, "entries/s", *samples, OF_REDIS),
            Result(name, "entries/s", samples[0], None,
                   samples[0].mean, f">= {RATE:,.0f} entries/s", fast),
            *([] if rate is _by_loop else _asked(bench, near, far)),
            _embedded(bench, unix),
            *idle_clients.results(
                bench, (near, near_pid), (far, peer.process_of(far)), bare, rate
            ),
        ]  # fmt: skip


def _through(words: tuple[str, ...]) -> str:
    over = f" over {STREAMS:,} streams" if DRAWN in " ".join(words) else ""
    return f"{words[0]} through the server{over}"


def _by_loop(port: int, count: int) -> float:
    drawn = random.Random(count)

    def request() -> bytes:
        words = (word.replace(DRAWN, str(drawn.randrange(STREAMS))) for word in ADD)
        return idle_clients.request(*words)

    batches = [
        b"".join(request() for _ in range(PIPELINE)) for _ in range(count // PIPELINE)
    ]  # fmt: skip
    with socket.create_connection(("127.0.0.1", port)) as connection:
        started = time.perf_counter()
        for batch in batches:
            connection.sendall(batch)
            left = PIPELINE
            while left:
                left -= connection.recv(1 << 16).count(b"$")
        return count / (time.perf_counter() - started)


def _by_tool(port: int, count: int, asked: Asked | None = None) -> float:
    words, clients, pipeline = asked or Asked(ADD, 1, PIPELINE)
    done = subprocess.run(
        [TOOL, "-p", str(port), "-c", str(clients), "-P", str(pipeline), "-n", str(count),
         "-r", str(STREAMS), "--csv", *words],
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
        name = f"{_through(asked.words)}, {crowd}, {asks}"
        yield at_least(name, "requests/s", *samples, OF_REDIS)


def _embedded(bench: Bench, unix: Path) -> Result:
    """Of the client that needs no server, and of redis-py on the server's Unix socket."""
    from logstore.redis import Redis

    count = bench.size(20_000, 5_000)
    client = peer.connect_unix(unix)
    with Redis(bench.folder / "wire-embedded") as near:

        def rate(number: int, redis: Any) -> float:
            drawn = random.Random(number)
            rows = data.rows(count, number)
            keys = [f"s{drawn.randrange(STREAMS)}" for _ in rows]
            started = time.perf_counter()
            for key, row in zip(keys, rows, strict=True):
                redis.xadd(key, row)
            return count / (time.perf_counter() - started)

        samples = interleave(
            bench.rounds, lambda number: rate(number, near), lambda number: rate(number, client),
            ("logstore.redis", "redis-py, Unix socket"),
        )  # fmt: skip
    name = f"XADD one by one over {STREAMS:,} streams, embedded client"
    return at_least(name, "entries/s", *samples, 2.0)
