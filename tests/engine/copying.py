"""``python -m tests.engine.copying STORE TIMES``: a process copies the directory of a store that it
has open, as a backup script would, beside reads and writes; another one opens it TIMES times.

Each copy closes LMDB's lock file once more than it was opened by LMDB, and takes this process's
locks away. A process of its own, for it may die of that. Prints how often what was done.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import logstore
from tests.engine.beside import run_beside

KEPT = 300
ADDED = 20  # by each opening


def open_often(path: Path, times: int) -> None:
    """Open, read, add, close."""
    for _ in range(times):
        with logstore.open(path, background=False) as store:
            assert len(store.stream("kept")) == KEPT
            for number in range(ADDED):
                store.stream("other").add({"n": number})


def go_on(path: Path, times: int) -> Counter[str]:
    """Read, write and copy in threads until the other process is done."""
    with logstore.open(path) as store:
        stream = store.stream("kept")
        rows = [{"n": number} for number in range(KEPT)]
        ids = list(stream.add_many(rows))
        works: dict[str, Callable[[], object]] = {
            "len": lambda: check(len(stream) == KEPT),
            "range": lambda: check([each.id for each in stream.range(count=KEPT)] == ids),
            "get": lambda: check(stream[ids[-1]].fields[b"n"] == b"%d" % (KEPT - 1)),
            "add": lambda: store.stream("mine").add({"n": 1}),
            "copy": lambda: copy(path),
        }
        other = subprocess.Popen([sys.executable, "-m", __spec__.name, str(path), str(-times)])
        done = run_beside(other, works)
        assert len(store.stream("mine")) == done["add"]
        assert len(store.stream("other")) == times * ADDED
    return done


def copy(path: Path) -> None:
    """What comes and goes meanwhile may be missing in it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            shutil.copytree(path, Path(folder) / "copy")
        except shutil.Error:
            return


def check(holds: bool) -> None:
    """As an error that the threads bring back."""
    assert holds


if __name__ == "__main__":
    if int(sys.argv[2]) < 0:
        open_often(Path(sys.argv[1]), -int(sys.argv[2]))
    else:
        print(*(f"{name}={n}" for name, n in go_on(Path(sys.argv[1]), int(sys.argv[2])).items()))
