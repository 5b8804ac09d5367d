"""``range(where=)`` for one value in 10,000, against a full scan in Python of the same stream.

The rare value stands in entries at random, as errors in a log do, or all its entries follow each
other. Both stand in one stream, under fields of their own. A full scan looks at each entry of
``range()``; beside it stands the count of entries by Arrow, ``scan(where=)``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import logstore
from benchmarks.harness import Bench, Result, Sample, cores

NAME = "where"
LIMIT = 20
ONE_IN = 10_000
ROUNDS = 3


def run(bench: Bench) -> list[Result]:
    """How many times as fast as a full scan, with rare values at random, and side by side."""
    count = bench.size(10_000_000, 500_000)
    with logstore.open(bench.folder / "where", encoding="utf-8", background=False) as store:
        stream = store.stream("log")
        stream.add_many(_rows(count), batch=10_000)
        with cores(1):
            scanned = {field: _full(stream, field) for field in ("level", "phase")}
            return [
                _against(count, stream, "level", "at random", scanned["level"]),
                _against(count, stream, "phase", "side by side", scanned["phase"]),
            ]


def _rows(count: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(7)
    rare = max(1, count // ONE_IN)
    at_random = set(rng.sample(range(count), rare))
    for n in range(count):
        yield {
            "level": "error" if n in at_random else ("info", "debug", "warning")[n % 3],
            "phase": "failover" if 0 <= n - count // 2 < rare else "normal",
            "user": f"user-{n * 7919 % 100_003}",
            "took_ms": n * 104_729 % 5_003,
        }


VALUES = {"level": "error", "phase": "failover"}


def _full(stream: Any, field: str) -> tuple[float, int]:
    wanted = VALUES[field]
    return _timed(lambda: sum(entry[field] == wanted for entry in stream))


def _timed(count: Callable[[], int]) -> tuple[float, int]:
    started = time.perf_counter()
    found = count()
    return time.perf_counter() - started, found


def _against(count: int, stream: Any, field: str, how: str, scanned: tuple[float, int]) -> Result:
    where = {field: VALUES[field]}
    compared = [(field, "==", VALUES[field])]
    rounds = [_timed(lambda: sum(1 for _ in stream.range(where=where))) for _ in range(ROUNDS)]
    arrow = [
        _timed(lambda: sum(batch.num_rows for batch in stream.scan(where=compared)))
        for _ in range(ROUNDS)
    ]
    full_s, expected = scanned
    assert {found for _, found in rounds + arrow} == {expected}
    ours = Sample("range(where=)", [took for took, _ in rounds])
    times = full_s / ours.mean
    return Result(
        f"1 of {ONE_IN:,} of {count:,} entries, {how}",
        "s",
        ours,
        Sample("a full scan", [full_s]),
        times,
        f">= {LIMIT} x as fast",
        times >= LIMIT,
        others=[Sample("scan(where=)", [took for took, _ in arrow])],
    )
