"""``add`` under always: against a bare pwrite and fdatasync. Threads that share one are asked for
in ``together``."""

from __future__ import annotations

import os
import time
from pathlib import Path

import logstore
from benchmarks import data
from benchmarks.harness import Bench, Result, at_most, interleave
from logstore.api.store import Store

NAME = "always"


def run(bench: Bench) -> list[Result]:
    """Milliseconds of one call."""
    with logstore.open(bench.folder / "always", sync="always") as store:
        return [_single(bench, store)]


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
