"""XADD through the server, and through redis-py without one, against Redis (everysec).

The same client sends the same bytes to both servers: one connection, 64 requests at a time.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import peer
from benchmarks.harness import ROOT, Bench, Result, Sample, at_least, interleave

NAME = "wire"
PIPELINE = 64
RATE = 100_000.0  # a second, through the server
ROW = {"rider": "Castilla", "speed": "30.2"}


def run(bench: Bench) -> list[Result]:
    """Entries a second."""
    with (
        peer.redis_server(bench.folder / "wire-redis") as far,
        _served(bench.folder / "wire-served") as near,
    ):
        samples = _pipelined(bench, near, far)
        fast = samples[0].mean >= RATE
        return [
            at_least("XADD through the server, pipeline 64", "entries/s", *samples, 0.25),
            Result("XADD through the server, pipeline 64", "entries/s", samples[0], None,
                   samples[0].mean, f">= {RATE:,.0f} entries/s", fast),
            _embedded(bench, far),
        ]  # fmt: skip


@contextmanager
def _served(folder: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "logstore.tools.cli", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        found = re.search(rb":(\d+)$", process.stdout.readline().strip())
        assert found is not None
        yield int(found.group(1))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _request(*words: str) -> bytes:
    parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
    return (f"*{len(words)}\r\n" + "".join(parts)).encode()


def _pipelined(bench: Bench, near: int, far: int) -> tuple[Sample, Sample]:
    count = bench.size(200_000, 50_000) // PIPELINE * PIPELINE
    batch = _request("XADD", "s", "*", *[part for pair in ROW.items() for part in pair]) * PIPELINE

    def rate(port: int) -> float:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            started = time.perf_counter()
            for _ in range(count // PIPELINE):
                connection.sendall(batch)
                left = PIPELINE
                while left:
                    left -= connection.recv(1 << 16).count(b"$")
            return count / (time.perf_counter() - started)

    labels = ("logstore serve", "Redis")
    return interleave(bench.rounds, lambda _: rate(near), lambda _: rate(far), labels)


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
