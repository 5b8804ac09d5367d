"""``python -m benchmarks.instructions [NAME ..]``: instructions of one warm operation.

Ours beside SQLite's, in user space, by callgrind. Counts hardly depend on the machine or on what
else runs, so that they show what a change costs where times cannot: ``--check`` compares them with
``instructions.json`` beside this file and fails if an operation takes over 10 % more than it says
there; ``--record`` writes what was counted into it, for this Python and this codec.

How it counts: one process does the work of one side. What is to be counted is called through a
function of a small library that is compiled for it; callgrind counts inside of that function only,
and writes a sum each time it returns. An empty call is taken off.

Invariants: what stands outside of that function never counts; nothing is written but below a
temporary folder. What callgrind leaves out: the kernel, and the clock, which goes on fifty times
faster than the work, and more beside other work: what the store does a few times a second is seen
too often. So the look at the store's files, which a commit takes each 200 ms, is put off, and so is
that of the maintenance. The mean of some counts is taken: a call adds as many as a node holds, so
that each count has a full node in it.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import as_installed
from benchmarks.operations import AWAITED, OPERATIONS, TIMES, VALGRIND_MAP_BYTES, Work

FIGURES = Path(__file__).with_name("instructions.json")
LIMIT = 1.10  # of the committed figure
MARK = """
#include <valgrind/callgrind.h>
int logstore_counted(int (*work)(void)) {
    CALLGRIND_START_INSTRUMENTATION;
    int done = work();  /* valgrind translates what it meets first: time in which things fall due */
    CALLGRIND_ZERO_STATS;
    done |= work();
    CALLGRIND_DUMP_STATS;
    CALLGRIND_STOP_INSTRUMENTATION;
    return done;
}
"""

START = "import and open"  # a process of its own, from its first instruction to its last
START_UNIT = "a process, beyond an empty one"
STARTING = f"""
import sys, logstore
from logstore.engine.maintenance import background_work
from logstore.index import env
env.MAP_BYTES = {VALGRIND_MAP_BYTES}
background_work.POLL_S = 3600.0
logstore.open(sys.argv[1]).close()
"""


class Unavailable(Exception):  # noqa: N818  (a reason to skip)
    """What counting needs is not installed."""


# -- counting -------------------------------------------------------------------------------------
def count_here(library: str, folder: str, side: str, names: list[str]) -> None:
    """Under callgrind: do the work of one side; an empty call comes first, then each operation."""
    counted = ctypes.CDLL(library).logstore_counted
    callback = ctypes.CFUNCTYPE(ctypes.c_int)

    def call(work: Work) -> None:
        def once() -> int:
            work()
            return 0

        counted(callback(once))

    call(lambda: None)
    for place, name in enumerate(names):
        operation, here = OPERATIONS[name], Path(folder, f"{side}-{place}")
        make = operation.ours if side == "ours" else operation.peer
        assert make is not None
        here.mkdir()
        work = make(here)
        work()
        gc.collect()  # what this module holds is not an operation's to look through
        gc.freeze()
        for _ in range(TIMES):
            call(work)


def _built(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Unavailable("no C compiler: instructions are not counted")
    if shutil.which("valgrind") is None:
        raise Unavailable("no valgrind (apt install valgrind): instructions are not counted")
    source, library = folder / "mark.c", folder / "mark.so"
    source.write_text(MARK)
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"valgrind's header is not usable: {done.stderr.strip()[-300:]}")
    return library


def count(names: list[str], side: str) -> dict[str, float]:
    """Instructions of one operation of one side, by name; Unavailable."""
    if START in names:
        rest = [name for name in names if name != START]
        return count(rest, side) | ({START: count_start()} if side == "ours" else {})
    if side == "peer":
        names = [name for name in names if OPERATIONS[name].peer is not None]
    if not names:
        return {}
    with tempfile.TemporaryDirectory(prefix="logstore-count-") as made:
        folder = Path(made)
        library = _built(folder)
        command = [
            "valgrind", "--tool=callgrind", "--instr-atstart=no",
            f"--callgrind-out-file={folder}/out",
            sys.executable, "-m", "benchmarks.instructions", "--here", str(library), str(folder),
            side, *names,
        ]  # fmt: skip
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        done = subprocess.run(
            command, cwd=Path.cwd(), env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"counting failed:\n{done.stderr[-3000:]}")
        sums = list(_sums(folder))
    empty, rest = sums[0], sums[1:]
    if len(rest) < TIMES * len(names):
        raise RuntimeError(f"callgrind told {len(rest)} counts, not {TIMES * len(names)}")
    return {
        name: (statistics.fmean(rest[place * TIMES : (place + 1) * TIMES]) - empty)
        / OPERATIONS[name].times
        for place, name in enumerate(names)
    }  # fmt: skip


def unit(name: str) -> str:
    """What the figure of an operation is of."""
    return START_UNIT if name == START else OPERATIONS[name].unit


def count_start() -> float:
    """Instructions of a process that imports logstore, opens a store and closes it, beyond one that
    does nothing, which depends on what is installed beside. Unavailable."""
    if shutil.which("valgrind") is None:
        raise Unavailable("no valgrind (apt install valgrind): instructions are not counted")
    with tempfile.TemporaryDirectory(prefix="logstore-count-") as made:
        code = [STARTING, str(Path(made, "store"))]
        _process(made, [], code)  # leaves the bytecode and the store
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={made}/out.1"]
        _process(made, valgrind, code)
        whole = next(_sums(Path(made)))
        _process(made, valgrind, ["pass"])
        return float(whole - next(_sums(Path(made))))


def _process(folder: str, under: list[str], code: list[str]) -> None:
    """Run some code, its bytecode kept in a folder."""
    done = subprocess.run(
        [*under, sys.executable, "-c", *code],
        env=as_installed(Path(folder, "bytecode")) | {"PYTHONHASHSEED": "0"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"counting failed:\n{done.stderr[-3000:]}")


def _sums(folder: Path) -> Iterator[int]:
    """What each dump says, in order."""
    number = 1
    while (dump := folder / f"out.{number}").exists():
        for line in dump.read_text(errors="replace").splitlines():
            if line.startswith(("totals:", "summary:")):
                yield int(line.split()[1])
                break
        number += 1


# -- figures --------------------------------------------------------------------------------------
def build_name() -> str:
    """What a figure holds for: the Python, the processor's kind, and the codec in use."""
    from logstore.codec import codec_name

    version = ".".join(platform.python_version_tuple()[:2])
    return f"Python {version}, {platform.machine()}, {codec_name()} codec"


def recorded() -> dict[str, dict[str, int]]:
    """The committed figures, by what they hold for, then by operation."""
    found: dict[str, dict[str, int]] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    return found


def above(counted: dict[str, float], figures: dict[str, int]) -> list[str]:
    """What takes over 10 % more than its figure; one line each."""
    return [
        f"{name}: {counted[name]:,.0f} instructions, {figure:,} are committed"
        for name, figure in figures.items()
        if name in counted and counted[name] > figure * LIMIT
    ]


def main(arguments: list[str]) -> int:
    """Count and print; 1 if ``--check`` found something above its figure, 3 if it cannot count."""
    if arguments[:1] == ["--here"]:
        count_here(*arguments[1:4], arguments[4:])
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join([*OPERATIONS, START]))
    parser.add_argument("--check", action="store_true", help="fail above the committed figures")
    parser.add_argument("--record", action="store_true", help="write the figures down")
    parser.add_argument("--no-peer", action="store_true", help="ours alone")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in (*OPERATIONS, START)]
    if unknown:
        parser.error(f"no such operation: {', '.join(unknown)}")
    names = asked.names or [*OPERATIONS, START]
    try:
        ours = count(names, "ours")
        peer = {} if asked.no_peer or asked.check else count(names, "peer")
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return 3
    figures = recorded()
    mine = figures.get(build_name(), {})
    print(f"{build_name()}; instructions in user space")
    for name in names:
        told = f"{name:24}{ours[name]:12,.0f} {unit(name)}"
        if name in peer:
            told += f"; SQLite {peer[name]:,.0f}, ratio {ours[name] / peer[name]:.2f}"
        if name in mine:
            told += f"; committed {mine[name]:,}"
        print(told)
    if asked.record:
        steady = {name: round(found) for name, found in ours.items() if name != AWAITED}
        figures[build_name()] = mine | steady
        FIGURES.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    worse = above(ours, mine) if asked.check else []
    for line in worse:
        print(f"MORE THAN 10 % ABOVE: {line}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
