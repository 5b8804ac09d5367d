"""What an operation costs as the store grows: one curve a question, beside what it should be.

Rows, IDs and the streams that are added to are drawn at random, of all that is there.

Microseconds of processor time of this process (of all of them where several work), which other
work on the machine disturbs less than the clock. A curve that should be flat shows what is not.
"""

from __future__ import annotations

import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import logstore
from benchmarks import data
from benchmarks.harness import ROOT, Bench, Curve, fresh

NAME = "growth"
REPEATS = 5
ADDS, GETS, RANGES = 2_000, 2_000, 500


def run(bench: Bench) -> list[Curve]:
    """All curves."""
    return [
        *_entries(bench),
        *_streams(bench),
        _fields(bench),
        _groups(bench),
        _pending(bench),
        _processes(bench),
    ]


def _us(call: Callable[[Any], object], drawn: Callable[[int], Sequence[Any]]) -> float:
    """Microseconds of processor time of a call: the mean of some rounds, each of its draw."""
    found: list[float] = []
    for number in range(REPEATS):
        given = drawn(number)
        started = time.process_time()
        for each in given:
            call(each)
        found.append((time.process_time() - started) / len(given) * 1e6)
    return statistics.fmean(found)


def _rows(count: int) -> Callable[[int], list[dict[str, str]]]:
    return partial(data.rows, count)


def _powers(bench: Bench, full: int, quick: int, tiny: int = 100) -> list[int]:
    """Powers of ten up to the scale of this run."""
    top = tiny if bench.tiny else quick if bench.quick else full
    return [10**power for power in range(round(math.log10(top)) + 1)]


def _constant(_: int) -> float:
    return 1.0


def _entries(bench: Bench) -> list[Curve]:
    """add, get, a short range and a whole scan of a stream of more and more entries."""
    adds: list[tuple[int, float]] = []
    gets: list[tuple[int, float]] = []
    ranges: list[tuple[int, float]] = []
    opens: list[tuple[int, float]] = []
    memory: list[tuple[int, float]] = []
    path, have = bench.folder / "growing", 0
    for size in _powers(bench, 100_000_000, 1_000_000, 1_000):
        if size < 100:
            continue
        with logstore.open(path, sync="os") as store:
            store.stream(data.STREAM).add_many(data.streamed(size - have), batch=10_000)
            have = size
        started = time.process_time()
        with logstore.open(path, create=False) as store:
            opens.append((size, (time.process_time() - started) * 1e3))
            stream = store.stream(data.STREAM)
            gets.append((size, _us(stream.get, partial(_picked, stream, GETS))))
            ranges.append((size, _us(partial(_ten, stream), partial(_picked, stream, RANGES))))
            adds.append((size, _us(stream.add, _rows(ADDS))))
            have = len(stream)
        found = fresh("scan_memory", path, data.STREAM)
        memory.append((size, found["peak_mib"]))
    across, unit = "entries in the stream", "us of processor time"
    flat = "flat, but for the height of a tree"
    return [
        Curve("one add, by entries", across, unit, adds, flat, _constant),
        Curve("one get at random, by entries", across, unit, gets, flat, _constant),
        Curve("a range of ten at random, by entries", across, unit, ranges, flat, _constant),
        Curve("opening, by entries", across, "ms of processor time", opens, "flat", _constant),
        Curve("memory of a whole scan, by entries", across, "MiB, not of files, at most", memory,
              "flat from a batch of Arrow on", None),
    ]  # fmt: skip


def _picked(stream: Any, count: int, seed: int) -> list[Any]:
    """IDs of entries at random: each is the first behind a moment that is drawn."""
    first, last = next(iter(stream.range(count=1))).id, stream.last_id
    drawn = random.Random(seed)
    starts = [
        logstore.StreamID(drawn.randrange(first.ms, last.ms + 1), drawn.randrange(1_000))
        for _ in range(count)
    ]
    return [next((each.id for each in stream.range(start, count=1)), last) for start in starts]


def _ten(stream: Any, start: Any) -> list[Any]:
    return list(stream.range(start, count=10))


def _pair(group: Any, _: int) -> None:
    group.read("c", count=1)[0].ack()


def _streams(bench: Bench) -> list[Curve]:
    adds: list[tuple[int, float]] = []
    opens: list[tuple[int, float]] = []
    path, have = bench.folder / "many-streams", 0
    for size in _powers(bench, 1_000_000, 10_000):
        with logstore.open(path, sync="os") as store:
            while have < size:
                with store.transaction() as transaction:
                    rows = data.rows(1000, have)
                    for number in range(have, min(size, have + 1000)):
                        transaction.stream(f"sensor:{number}").add(rows[number - have])
                have = min(size, have + 1000)
        started = time.process_time()
        with logstore.open(path, create=False) as store:
            opens.append((size, (time.process_time() - started) * 1e3))
            adds.append((size, _us(partial(_add_to, store), partial(_addressed, size))))
    across = "streams in the store"
    return [
        Curve(
            "one add to a stream at random, by streams",
            across,
            "us of processor time",
            adds,
            "flat",
            _constant,
        ),
        Curve("opening, by streams", across, "ms of processor time", opens, "flat", _constant),
    ]


def _addressed(streams: int, seed: int) -> list[tuple[str, dict[str, str]]]:
    """Rows, each for a stream at random."""
    drawn = random.Random(seed)
    return [(f"sensor:{drawn.randrange(streams)}", row) for row in data.rows(ADDS, seed)]


def _add_to(store: Any, addressed: tuple[str, dict[str, str]]) -> None:
    name, row = addressed
    store.stream(name).add(row)


def _fields(bench: Bench) -> Curve:
    points: list[tuple[int, float]] = []
    with logstore.open(bench.folder / "fields", sync="os") as store:
        for size in _powers(bench, 1_000, 100):
            stream = store.stream(f"f{size}")
            points.append((size, _us(stream.add, partial(_wide, size))))
    return Curve("one add, by fields", "fields of the entry", "us of processor time", points,
                 "a constant, and so much a field", None)  # fmt: skip


def _wide(fields: int, seed: int) -> list[dict[str, str]]:
    """Rows of so many fields."""
    drawn = random.Random(seed)
    return [{f"field{at}": f"{drawn.random():.3f}" for at in range(fields)} for _ in range(50)]


def _groups(bench: Bench) -> Curve:
    points: list[tuple[int, float]] = []
    with logstore.open(bench.folder / "groups", sync="os") as store:
        for size in _powers(bench, 10_000, 1_000):
            stream = store.stream(f"g{size}")
            stream.add_many(data.rows(1))
            for number in range(size):
                stream.group(f"g{number}", start="$")
            points.append((size, _us(stream.add, _rows(ADDS))))
    return Curve("one add, by groups", "groups of the stream", "us of processor time", points,
                 "flat", _constant)  # fmt: skip


def _pending(bench: Bench) -> Curve:
    points: list[tuple[int, float]] = []
    with logstore.open(bench.folder / "pending", sync="os") as store:
        for size in _powers(bench, 1_000_000, 100_000):
            stream = store.stream(f"p{size}")
            group = stream.group("g", start="0")
            stream.add_many(data.streamed(size + 2_000))
            left = size
            while left:
                left -= len(group.read("c", count=min(left, 1_000)))
            points.append((size, _us(partial(_pair, group), lambda _: range(100))))
    return Curve("read of one and ack, by pending entries", "entries pending in the group",
                 "us of processor time", points, "flat", _constant)  # fmt: skip


def _processes(bench: Bench) -> Curve:
    count = bench.size(5_000, 1_000)
    path = bench.folder / "processes"
    logstore.open(path).close()
    points = [(size, _together(path, size, count)) for size in (1, 2, 4, 8)]
    return Curve("adds of several processes together", "processes", "adds a second, all of them",
                 points, "flat", _constant)  # fmt: skip


def _together(path: Path, processes: int, count: int) -> float:
    """Adds a second of so many processes that begin at one moment."""
    command = [sys.executable, "-m", "benchmarks.child", "add_rows", str(path), str(count)]
    running = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(processes)
    ]
    for each in running:
        assert each.stdout is not None
        each.stdout.readline()  # it has the store open
    started = time.perf_counter()
    for each in running:
        assert each.stdin is not None
        each.stdin.close()
    for each in running:
        if each.wait():
            raise RuntimeError("a process that adds failed")
    return processes * count / (time.perf_counter() - started)
