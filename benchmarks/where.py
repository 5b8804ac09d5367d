"""``range(where=)`` beside SQLite without an index: one value in 10,000, and one in three.

The rare value stands in entries at random, as errors in a log do, or all its entries follow each
other; the frequent one stands at random. All stand in one stream, under fields of their own. SQLite
has the same rows in one table. Beside them stand a loop of Python over ``range()``, and the count
by Arrow, ``scan(where=)``.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any

import logstore
from benchmarks import data
from benchmarks.harness import Bench, Result, Sample, at_most, cores

NAME = "where"
ONE_IN = 10_000
ROUNDS = 3
CHUNK = 10_000
# What is asked for, and how many entries have it.
ASKED = {
    "level": ("error", f"1 of {ONE_IN:,}, at random"),
    "phase": ("failover", f"1 of {ONE_IN:,}, side by side"),
    "kind": ("write", "1 of 3, at random"),
}
FIELDS = ("level", "phase", "kind", "user", "took_ms")


def run(bench: Bench) -> list[Result]:
    """Seconds of finding all entries with a value."""
    count = bench.size(10_000_000, 500_000)
    base = data.database(bench.folder / "where.db")
    base.execute(f"CREATE TABLE log (id INTEGER PRIMARY KEY, {', '.join(FIELDS)})")
    insert = f"INSERT INTO log ({', '.join(FIELDS)}) VALUES (?, ?, ?, ?, ?)"
    with logstore.open(bench.folder / "where", encoding="utf-8", background=False) as store:
        stream = store.stream("log")
        stream.add_many(_rows(count), batch=CHUNK)
        base.execute("BEGIN")
        base.executemany(insert, (tuple(row.values()) for row in _rows(count)))
        base.execute("COMMIT")
        with cores(1):
            found = [_asked(count, stream, base, field) for field in ASKED]
    base.close()
    return found


def _rows(count: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(7)
    rare = max(1, count // ONE_IN)
    at_random = set(rng.sample(range(count), rare))
    for n in range(count):
        yield {
            "level": "error" if n in at_random else rng.choice(("info", "debug", "warning")),
            "phase": "failover" if 0 <= n - count // 2 < rare else "normal",
            "kind": rng.choice(("read", "write", "élargi")),
            "user": f"user-{rng.randrange(100_000)}",
            "took_ms": rng.randrange(5_000),
        }


def _timed(count: Callable[[], int]) -> tuple[float, int]:
    started = time.perf_counter()
    found = count()
    return time.perf_counter() - started, found


def _asked(count: int, stream: Any, base: sqlite3.Connection, field: str) -> Result:
    value, how = ASKED[field]
    where, compared = {field: value}, [(field, "==", value)]
    query = f"SELECT * FROM log WHERE {field} = ?"
    sides: dict[str, Callable[[], int]] = {
        "range(where=)": lambda: sum(1 for _ in stream.range(where=where)),
        "SQLite, no index": lambda: sum(1 for _ in base.execute(query, (value,))),
        "scan(where=)": lambda: sum(each.num_rows for each in stream.scan(where=compared)),
    }
    rounds = {label: [_timed(side) for _ in range(ROUNDS)] for label, side in sides.items()}
    rounds["a loop of Python"] = [_timed(lambda: sum(entry[field] == value for entry in stream))]
    assert len({found for each in rounds.values() for _, found in each}) == 1
    ours, peer, *others = (
        Sample(label, [took for took, _ in each]) for label, each in rounds.items()
    )
    name = f"where, of {count:,} entries: {how}"
    return at_most(name, "s", ours, peer, 1.0, others=others)
