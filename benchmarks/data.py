"""What is written: rows of two fields, and stores of many entries, made once a run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import logstore
from benchmarks.harness import Bench

RIDERS = ("Castilla", "Norem", "Royce", "Prickett", "Gatlin", "Okafor", "Lindqvist", "Ng")
STREAM = "race:france"
INSERT = "INSERT INTO race (rider, speed) VALUES (:rider, :speed)"


def row(number: int) -> dict[str, str]:
    """The fields of one entry."""
    return {"rider": RIDERS[number % 8], "speed": f"{20 + number % 31}.{number % 10}"}


def rows(count: int, first: int = 0) -> list[dict[str, str]]:
    """Fields of many entries."""
    return [row(number) for number in range(first, first + count)]


def repeated(count: int, chunk: int = 10_000) -> Iterator[dict[str, str]]:
    """Many rows without the memory for them."""
    some = rows(chunk)
    while count > 0:
        yield from some[: min(count, chunk)]
        count -= chunk


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
            store.stream(STREAM).add_many(repeated(entries), batch=10_000)
        building.rename(path)
    return path
