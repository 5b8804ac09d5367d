"""What is written: rows of two fields, drawn at random, and stores of many of them."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import logstore
from benchmarks.harness import Bench

RIDERS = ("Castilla", "Norem", "Royce", "Prickett", "Gatlin", "Okafor", "Lindström", "Ngô")
STREAM = "race:france"
INSERT = "INSERT INTO race (rider, speed) VALUES (:rider, :speed)"


def rows(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Fields of many entries, hardly two of them alike."""
    drawn = random.Random(seed)
    return [
        {"rider": RIDERS[drawn.randrange(8)], "speed": f"{20 + 31 * drawn.random():.3f}"}
        for _ in range(count)
    ]


def streamed(count: int, chunk: int = 10_000, seed: int = 0) -> Iterator[dict[str, str]]:
    """Many rows without the memory for them."""
    for first in range(0, count, chunk):
        yield from rows(min(chunk, count - first), seed + first)


def database(path: Path) -> sqlite3.Connection:
    """The peer: a table in WAL mode, synchronous=NORMAL, each statement its own transaction."""
    found = sqlite3.connect(path, isolation_level=None)
    found.execute("PRAGMA journal_mode = WAL")
    found.execute("PRAGMA synchronous = NORMAL")
    found.execute(
        "CREATE TABLE IF NOT EXISTS race (id INTEGER PRIMARY KEY, rider TEXT, speed TEXT)"
    )
    return found


def history(bench: Bench, entries: int) -> Path:
    """A store of that many entries, closed cleanly; made at its first use."""
    path = bench.folder / f"history-{entries}"
    if not path.exists():
        building = path.with_suffix(".building")
        with logstore.open(building, sync="os") as store:
            store.stream(STREAM).add_many(streamed(entries), batch=10_000)
        building.rename(path)
    return path
