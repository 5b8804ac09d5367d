"""``add`` under always: against a bare pwrite and fdatasync, and 16 threads against one."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import logstore
from benchmarks import data
from benchmarks.harness import Bench, Result, at_least, at_most, interleave
from logstore.api.store import Store

NAME = "always"
THREADS = 16


def run(bench: Bench) -> list[Result]:
    """Milliseconds of one call, and what threads gain by sharing a sync."""
    with logstore.open(bench.folder / "always", sync="always") as store:
        return [_single(bench, store), _threads(bench, store)]


def _single(bench: Bench, store: Store[bytes]) -> Result:
    count = bench.size(300, 100)
    rows = data.rows(count)
    stream = store.stream(data.STREAM)
    before = store.metrics()
    for row in rows:
        stream.add(row)
    after = store.metrics()
    size = (after["commit_bytes"] - before["commit_bytes"]) // count
    bare = _Bare(bench.folder / "bare", bytes([1]) * size)

    def ours(_: int) -> float:
        started = time.perf_counter()
        for row in rows:
            stream.add(row)
        return (time.perf_counter() - started) / count * 1e3

    def peer(_: int) -> float:
        started = time.perf_counter()
        for _row in rows:
            bare.append()
        return (time.perf_counter() - started) / count * 1e3

    labels = ("add, always", "pwrite + fdatasync")
    samples = interleave(2 * bench.rounds, ours, peer, labels)
    bare.close()
    return at_most(
        "add under always, over what it cannot do without",
        "ms",
        *samples,
        1.25,
        f"{size} bytes a commit",
    )


class _Bare:
    """The peer: nothing but the bytes, appended and synced."""

    def __init__(self, path: Path, piece: bytes) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._piece = piece
        self._at = 0

    def append(self) -> None:
        """One durable append."""
        os.pwrite(self._fd, self._piece, self._at)
        os.fdatasync(self._fd)
        self._at += len(self._piece)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _threads(bench: Bench, store: Store[bytes]) -> Result:
    count = bench.size(400, 100)
    stream = store.stream(data.STREAM)
    rows = data.rows(count)

    def adding() -> None:
        for row in rows:
            stream.add(row)

    def rate(threads: int) -> float:
        workers = [threading.Thread(target=adding) for _ in range(threads)]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return threads * count / (time.perf_counter() - started) / 1e3

    shared: list[float] = []

    def many(_: int) -> float:
        before = store.metrics()
        found = rate(THREADS)
        grown = {name: value - before[name] for name, value in store.metrics().items()}
        shared.append(grown["operations"] / grown["syncs"])
        return found

    labels = (f"{THREADS} threads", "1 thread")
    samples = interleave(2 * bench.rounds, many, lambda _: rate(1), labels)
    note = f"{sum(shared) / len(shared):.1f} adds a sync"
    return at_least("threads under always", "k adds/s", *samples, 8.0, note)
