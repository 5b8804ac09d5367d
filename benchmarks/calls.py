"""One call at a time, in a user's process, against every peer that can answer the same question.

The questions: append one row (and with a sync each time), append two rows to two streams or none,
get a row by its name, walk over rows, take the next row of a queue and say that it is done, append
many rows. Rows and names are drawn at random, the same for all sides, other ones in each round; a
reader waits for what comes. Each side does each round on what the rounds before left.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import logstore
from benchmarks import data, peers
from benchmarks.harness import Bench, Result, Sample, at_least, at_most, in_turns
from benchmarks.peers import DiskCache, LiteQueue, Peer, Redis, RocksDB, SQLite, Valkey

NAME = "calls"
WAITS_S = 1.0
Timed = Callable[[int], float]


def run(bench: Bench) -> list[Result]:
    """Microseconds of one call, or thousands of rows a second."""
    return [
        _add(bench),
        _add_always(bench),
        _transaction(bench),
        _get(bench),
        _walk(bench),
        _take(bench),
        _add_many(bench),
    ]


def _us(call: Callable[[Any], object], drawn: Callable[[int], Sequence[Any]]) -> Timed:
    """Microseconds of a call, the mean of those that the round draws."""

    def timed(number: int) -> float:
        given = drawn(number)
        started = time.perf_counter()
        for each in given:
            call(each)
        return (time.perf_counter() - started) / len(given) * 1e6

    return timed


def _rows(count: int) -> Callable[[int], list[dict[str, str]]]:
    return partial(data.rows, count)


def _judged(
    name: str, unit: str, found: list[Sample], against: str, limit: float, *, rate: bool = False
) -> Result:
    """The result of ours, the first, against the peer of that label."""
    ours, *theirs = found
    judge = next((each for each in theirs if each.label == against), theirs[0])
    others = [each for each in theirs if each is not judge]
    made = at_least if rate else at_most
    return made(name, unit, ours, judge, limit, others=others)


def _add(bench: Bench) -> Result:
    kinds = SQLite, RocksDB, LiteQueue, DiskCache, Redis, Valkey
    return _adds(bench, bench.size(5_000, 1_000), kinds, durable=False)


def _add_always(bench: Bench) -> Result:
    return _adds(bench, bench.size(300, 50), (SQLite, RocksDB, Redis, Valkey), durable=True)


def _adds(bench: Bench, count: int, kinds: tuple[type[Peer], ...], *, durable: bool) -> Result:
    """Append single rows; ``durable``: with a sync each time."""
    folder = bench.folder / ("durable" if durable else "add")
    with (
        logstore.open(folder, sync="always" if durable else "everysec") as store,
        peers.open_all(folder.with_name(f"{folder.name}-peers"), kinds, durable=durable) as there,
    ):
        stream = store.stream(data.STREAM)
        sides = {"logstore": _us(stream.add, _rows(count))}
        sides |= {each.label: _us(each.add, _rows(count)) for each in there}
        found = in_turns(2 * bench.rounds, sides)
    name = "append one row, durable when it returns" if durable else "append one row"
    return _judged(name, "us", found, "SQLite", 1.0)


def _transaction(bench: Bench) -> Result:
    count = bench.size(3_000, 500)
    kinds = SQLite, RocksDB, Redis, Valkey
    with (
        logstore.open(bench.folder / "two") as store,
        peers.open_all(bench.folder / "two-peers", kinds) as there,
    ):

        def two(row: dict[str, str]) -> None:
            with store.transaction() as transaction:
                transaction.stream("a").add(row)
                transaction.stream("b").add(row)

        sides = {"logstore": _us(two, _rows(count))}
        sides |= {each.label: _us(each.add_two, _rows(count)) for each in there}
        found = in_turns(2 * bench.rounds, sides)
    return _judged("append to two streams, both or none", "us", found, "SQLite", 1.5)


def _get(bench: Bench) -> Result:
    rows, count = bench.size(20_000, 2_000), bench.size(3_000, 500)
    kinds = SQLite, RocksDB, DiskCache, Redis, Valkey
    drawn = data.rows(rows)

    def picked(names: Sequence[Any]) -> Callable[[int], list[Any]]:
        return lambda number: random.Random(number).choices(names, k=count)

    with (
        logstore.open(bench.folder / "get") as store,
        peers.open_all(bench.folder / "get-peers", kinds) as there,
    ):
        stream = store.stream(data.STREAM)
        names = stream.add_many(drawn)
        sides = {"logstore": _us(lambda name: stream.get(name).fields["rider"], picked(names))}
        for each in there:
            sides[each.label] = _us(each.get, picked([each.add(row) for row in drawn]))
        found = in_turns(2 * bench.rounds, sides)
    return _judged(f"get one of {rows:,} rows, at random", "us", found, "SQLite", 1.0)


def _walk(bench: Bench) -> Result:
    rows = bench.size(50_000, 5_000)
    kinds = SQLite, RocksDB, DiskCache, Redis, Valkey
    drawn = data.rows(rows)

    def rate(walk: Callable[[], int]) -> Timed:
        def timed(_: int) -> float:
            started = time.perf_counter()
            count = walk()
            return count / (time.perf_counter() - started) / 1e3

        return timed

    with (
        logstore.open(bench.folder / "walk") as store,
        peers.open_all(bench.folder / "walk-peers", kinds) as there,
    ):
        stream = store.stream(data.STREAM)
        stream.add_many(drawn)
        sides = {"logstore": rate(lambda: len([entry.fields for entry in stream.range()]))}
        for each in there:
            if isinstance(each, DiskCache):
                for row in drawn:
                    each.add(row)
            else:
                each.add_many(drawn)
            sides[each.label] = rate(partial(each.walk, rows))
        found = in_turns(bench.rounds, sides)
    return _judged(
        "walk over rows, all different, as dictionaries",
        "k rows/s",
        found,
        "SQLite",
        1.4,
        rate=True,
    )


def _take(bench: Bench) -> Result:
    count = bench.size(2_000, 300)
    kinds = Redis, Valkey, LiteQueue, DiskCache
    with (
        logstore.open(bench.folder / "take") as store,
        peers.open_all(bench.folder / "take-peers", kinds) as there,
    ):
        stream = store.stream(data.STREAM)
        group = stream.group("g", start="0")

        def pair(_: int) -> None:
            group.read("c", count=1, timeout=WAITS_S)[0].ack()

        def ours(number: int) -> float:
            stream.add_many(data.rows(count, number))
            return _us(pair, lambda _: range(count))(number)

        def theirs(each: Peer) -> Timed:
            def timed(number: int) -> float:
                for row in data.rows(count, number):
                    each.add(row)
                return _us(lambda _: each.take(), lambda _: range(count))(number)

            return timed

        sides = {"logstore": ours} | {each.label: theirs(each) for each in there}
        found = in_turns(bench.rounds, sides)
    name = "take one row of a queue, or wait for it, then say that it is done"
    return _judged(name, "us", found, "Redis", 0.25)


def _add_many(bench: Bench) -> Result:
    count = bench.size(100_000, 10_000)
    kinds = SQLite, RocksDB, Redis, Valkey

    def rate(call: Callable[[list[dict[str, str]]], object]) -> Timed:
        def timed(number: int) -> float:
            rows = data.rows(count, number)
            started = time.perf_counter()
            for first in range(0, count, 1000):
                call(rows[first : first + 1000])
            return count / (time.perf_counter() - started) / 1e3

        return timed

    with (
        logstore.open(bench.folder / "many") as store,
        peers.open_all(bench.folder / "many-peers", kinds) as there,
    ):
        stream = store.stream(data.STREAM)
        sides = {"logstore": rate(stream.add_many)}
        sides |= {each.label: rate(each.add_many) for each in there}
        found = in_turns(bench.rounds, sides)
    return _judged("append rows, a thousand at a time", "k rows/s", found, "SQLite", 3.0, rate=True)
