"""``python -m tests.engine.erasing STORE TIMES``: one process erases, threads of another go on.

Each erasure makes a new generation of the index, a new active segment, and drops segments: what
threads look at without a lock changes under them. A process of its own, for it may die of that.
Prints how often what was done.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import logstore
from tests.engine.beside import run_beside

KEPT = 200


def erase(path: Path, times: int) -> None:
    """Add an entry and erase it, again and again."""
    with logstore.open(path) as store:
        stream = store.stream("race")
        for number in range(times):
            assert stream.delete(stream.add({"name": f"erased {number}"}), purge=True) == 1


def go_on(path: Path, times: int) -> Counter[str]:
    """Read, add, wait and sync in threads until the other process has erased."""
    with logstore.open(path, sync="everysec") as store:
        stream, other = store.stream("race"), store.stream("other")
        rows = [{"name": f"kept {number}"} for number in range(KEPT)]
        first = stream.add_many(rows)[0]
        group = other.group("workers", start="0")
        works: dict[str, Callable[[], object]] = {
            "len": lambda: len(stream),
            "range": lambda: check(list(stream.range(count=KEPT))),
            "get": lambda: check([stream[first]]),
            "add": lambda: other.add({"n": "1"}, sync="always"),
            "group": lambda: [each.ack() for each in group.read("a", count=5, timeout=0.01)],
            "sync": store.sync,
        }
        eraser = subprocess.Popen([sys.executable, "-m", __spec__.name, str(path), str(-times)])
        done = run_beside(eraser, works)
        assert len(stream) == KEPT
    return done


def check(entries: list[logstore.Entry[bytes]]) -> None:
    """What was never deleted is there, as it was added."""
    kept = [each.fields[b"name"] for each in entries if b"kept" in each.fields[b"name"]]
    assert kept == [b"kept %d" % number for number in range(len(kept))]
    assert len(entries) < KEPT or len(kept) == KEPT


if __name__ == "__main__":
    if int(sys.argv[2]) < 0:
        erase(Path(sys.argv[1]), -int(sys.argv[2]))
    else:
        print(*(f"{name}={n}" for name, n in go_on(Path(sys.argv[1]), int(sys.argv[2])).items()))
