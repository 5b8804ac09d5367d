"""What 999 of 1,000 calls stay below, by the clock: an add, and a get at random.

Each call is timed by itself; rows and names are drawn at random, other ones in each round. Of each
side the mean of its rounds is told, and beside it the median and the longest call.
"""

from __future__ import annotations

import random
import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import logstore
from benchmarks import data, peers
from benchmarks.harness import Bench, Result, Sample, at_most
from benchmarks.peers import Redis, RocksDB, SQLite

NAME = "tails"
KINDS = SQLite, RocksDB, Redis
PART = 0.999


class Tail(NamedTuple):
    """Of the calls of one round, microseconds."""

    part: float
    median: float
    most: float


def run(bench: Bench) -> list[Result]:
    """An add, and a get of what was added."""
    count = bench.size(100_000, 10_000)
    with (
        logstore.open(bench.folder / "tails") as store,
        peers.open_all(bench.folder / "tails-peers", KINDS) as there,
    ):
        stream = store.stream(data.STREAM)
        adds: dict[str, Callable[[Any], object]] = {"logstore": stream.add}
        adds |= {each.label: each.add for each in there}
        names: dict[str, list[Any]] = {label: [] for label in adds}
        gets: dict[str, Callable[[Any], object]] = {
            "logstore": lambda name: stream.get(name).fields["rider"]
        }
        gets |= {each.label: each.get for each in there}

        def picked(label: str, number: int) -> list[Any]:
            return random.Random(number).choices(names[label], k=count)

        added = _tails(bench, adds, lambda _, number: data.rows(count, number), names)
        got = _tails(bench, gets, picked)
    rows = len(names["logstore"])
    return [
        _judged(f"add, p99.9 of {count:,}", added),
        _judged(f"get, p99.9 of {count:,}, at random of {rows:,}", got),
    ]


def _tails(
    bench: Bench,
    sides: dict[str, Callable[[Any], object]],
    drawn: Callable[[str, int], Sequence[Any]],
    kept: dict[str, list[Any]] | None = None,
) -> dict[str, list[Tail]]:
    """Of each side, in turns; what its calls gave is kept. The first round does not count."""
    found: dict[str, list[Tail]] = {label: [] for label in sides}
    for number in range(-1, bench.rounds):
        for label, call in sides.items():
            tail, given = _tail(call, drawn(label, number))
            if kept is not None:
                kept[label] += given
            if number >= 0:
                found[label].append(tail)
    return found


def _tail(call: Callable[[Any], object], arguments: Sequence[Any]) -> tuple[Tail, list[Any]]:
    took_ns, given, clock = array("q"), [], time.perf_counter_ns
    for each in arguments:
        begun_ns = clock()
        result = call(each)
        took_ns.append(clock() - begun_ns)
        given.append(result)
    took = sorted(each / 1e3 for each in took_ns)
    tail = Tail(took[int(len(took) * PART)], took[len(took) // 2], took[-1])
    return tail, given


def _judged(name: str, found: dict[str, list[Tail]]) -> Result:
    ours, judge, *others = (
        Sample(label, [each.part for each in tails]) for label, tails in found.items()
    )
    note = ", ".join(
        f"{label} {statistics.fmean(each.median for each in tails):.3g} and "
        f"{max(each.most for each in tails):,.0f}"
        for label, tails in found.items()
    )
    return at_most(name, "us", ours, judge, 1.0, f"median and most: {note}", others)
