"""Gigabytes a second by the size of a value: added one by one, and read one after the other.

Values are bytes drawn at random, which no codec makes smaller; each entry has one, and a short
field beside it. Sizes go from 16 bytes to 1 MiB, and one question has them all, at random.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import logstore
from benchmarks import data, peers
from benchmarks.harness import Bench, Result, at_least, in_turns
from benchmarks.peers import RocksDB, SQLite

NAME = "sizes"
SIZES = (16, 256, 4 << 10, 64 << 10, 1 << 20)
ROUND_BYTES = 32 << 20
ROUND_BYTES_QUICK = 4 << 20
ENTRIES_MAX = 20_000
Row = dict[str, Any]


def run(bench: Bench) -> list[Result]:
    """Both rates of each size."""
    results: list[Result] = []
    for size in SIZES:
        results += _measured(bench, f"values of {size:,} bytes", lambda _, size=size: size)
    mixed = f"values of {SIZES[0]} bytes to {SIZES[-1] >> 20} MiB, at random"
    return [*results, *_measured(bench, mixed, _any_size)]


def _any_size(drawn: random.Random) -> int:
    """As often one of 16 to 32 as of half a mebibyte to a whole one."""
    return int(2 ** drawn.uniform(4, 20))


def _rows(bench: Bench, size: Callable[[random.Random], int], seed: int) -> list[Row]:
    left, most = bench.size(ROUND_BYTES, ROUND_BYTES_QUICK), bench.size(ENTRIES_MAX, ENTRIES_MAX)
    drawn = random.Random(seed)
    rows: list[Row] = []
    while left > 0 and len(rows) < most:
        rows.append({"rider": f"Ngô {len(rows)}", "speed": drawn.randbytes(size(drawn))})
        left -= len(rows[-1]["speed"])
    return rows


def _measured(bench: Bench, what: str, size: Callable[[random.Random], int]) -> list[Result]:
    folder = bench.folder / "sizes"
    folder.mkdir()
    made = partial(_rows, bench, size)
    first = made(-1)
    with (
        logstore.open(folder / "store") as store,
        peers.open_all(folder / "peers", (SQLite, RocksDB)) as there,
    ):
        stream = store.stream(data.STREAM)

        def walk(count: int) -> int:
            return len([entry.fields for entry in stream.range(count=count)])

        adds = {"logstore": partial(_added, stream.add, made)}
        adds |= {each.label: partial(_added, each.add, made) for each in there}
        walks = {"logstore": partial(_walked, walk, first)}
        walks |= {each.label: partial(_walked, each.walk, first) for each in there}
        results: list[Result] = []
        for told, sides in ((f"add, {what}", adds), (f"read in order, {what}", walks)):
            ours, judge, *others = in_turns(bench.rounds, sides)
            results.append(at_least(told, "GB/s", ours, judge, 1.0, others=others))
    shutil.rmtree(folder)
    return results


def _added(add: Callable[[Any], object], made: Callable[[int], list[Row]], number: int) -> float:
    rows = made(number)
    started = time.perf_counter()
    for row in rows:
        add(row)
    return _bytes(rows) / (time.perf_counter() - started) / 1e9


def _walked(walk: Callable[[int], int], rows: list[Row], _: int) -> float:
    """Over what the round before the first one added."""
    started = time.perf_counter()
    count = walk(len(rows))
    took_s = time.perf_counter() - started
    assert count == len(rows)
    return _bytes(rows) / took_s / 1e9


def _bytes(rows: list[Row]) -> int:
    return sum(len(row["speed"]) for row in rows)
