"""Processes that open a store, from their start to their end, by its size; and lost indexes.

What a user waits for counts: the interpreter, the imports and the close are in each figure. An
index that is lost is built anew by the next process that opens the store.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import data
from benchmarks.harness import (
    Bench,
    Result,
    at_most,
    below,
    fresh,
    in_turns,
    process_ms,
    told_alone,
)  # fmt: skip

NAME = "opening"
OPENS = "import sys, logstore; logstore.open(sys.argv[1], create=False).close()"


def run(bench: Bench) -> list[Result]:
    """Milliseconds of whole processes."""
    large, small = bench.size(10_000_000, 1_000_000), bench.size(100_000, 10_000)
    paths = {f"{size:,} entries": data.history(bench, size) for size in (large, small)}
    for path in paths.values():
        found = fresh("open_store", path)
        assert found["trusted"]
        assert found["body_reads"] == 0
    sides: dict[str, Callable[[int], float]] = {
        label: partial(opened_ms, bench, path) for label, path in paths.items()
    }
    sides["Python alone"] = lambda _: process_ms(bench.folder / "bytecode", "pass")
    ours, less, alone = in_turns(2 * bench.rounds, sides)
    return [
        below(f"a process that opens {large:,} entries", "ms", ours, 50, alone),
        at_most("a process that opens, flat in size", "ms", ours, less, 1.5),
        _lost(bench, large),
        _lost_single(bench),
    ]


def opened_ms(bench: Bench, path: Path, _: int = 0) -> float:
    """A process that opens this store, and ends."""
    return process_ms(bench.folder / "bytecode", OPENS, path)


def _lost(bench: Bench, entries: int) -> Result:
    """Of entries of add_many, closed: with hints, and without them."""
    path = data.history(bench, entries)

    def with_hints(_: int) -> float:
        shutil.rmtree(path / "index")
        return opened_ms(bench, path)

    def without(_: int) -> float:
        with _away(path):
            return with_hints(0)

    labels = ("from hints", "by reading the segments")
    ours, other = in_turns(bench.rounds, dict(zip(labels, (with_hints, without), strict=True)))
    name = f"a process that opens {entries:,} entries of add_many, their index lost"
    return below(name, "ms", ours, 1000, other)


@contextmanager
def _away(path: Path) -> Iterator[None]:
    """No hints while the block runs."""
    hints = list(path.glob("log/*.hint"))
    for hint in hints:
        hint.rename(hint.with_suffix(".away"))
    try:
        yield
    finally:
        for hint in hints:
            hint.with_suffix(".away").rename(hint)


def _lost_single(bench: Bench) -> Result:
    """Of single adds by a process that was killed: each is replayed."""
    entries = bench.size(500_000, 50_000)
    killed, path = bench.folder / "killed", bench.folder / "killed-again"
    fresh("add_and_die", killed, entries)

    def rate(_: int) -> float:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(killed, path)
        shutil.rmtree(path / "index")
        return entries / opened_ms(bench, path)

    (ours,) = in_turns(bench.rounds, {"single adds": rate})
    name = f"an index that is lost with its process, of {entries:,} single adds"
    return told_alone(name, "k entries/s", ours, None)
