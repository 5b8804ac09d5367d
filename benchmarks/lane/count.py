"""``python -m benchmarks.lane.count``: build the prototype, check it against the store, count it.

Checks: a process adds through the lane, mixed with operations of the store, and ends without
closing, its index behind the log; then a store is opened there as any other, and has each entry,
also when its index is deleted and built anew from the log, and `check` finds nothing. A reader in
the same process that overlays the tail sees what the index lacks.

Counts: instructions of one warm operation in user space, by callgrind, where valgrind and its
header are installed; else microseconds of processor time, which say less. What time brings (the
look at the directory, the call of those who watch all streams) is left out of the lane's, not of
the store's own: callgrind makes time pass fifty times slower.

Invariant: nothing is built or written but below a temporary folder.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import logstore
from benchmarks.harness import ROOT
from logstore.codec import codec
from logstore.index import env
from logstore.index.txn import IndexTxn

HERE = Path(__file__).resolve().parent
FOLLOW_EVERY = 64
ADDS = 1000
LEFT = 1030  # adds of the process that ends: not a whole number of nodes, so the index is behind
ROW = {"temp": "12.5", "hum": "51"}
NODE_ROWS = 100
NOT_NOW_MS = 1 << 60  # when time last brought work: it brings none while this is counted
VALGRIND_MAP_BYTES = 1 << 31  # of LMDB: valgrind has no room for the usual one
DELIVER, ACK = 35, 36
DELIVER_BYTES, ACK_BYTES = 61, 24

Work = Callable[[int], object]


# -- building, and the lane beside a store --------------------------------------------------------
def build(folder: Path) -> Path:
    """Compile the prototype; the module's file."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    shutil.copy(HERE / "lane.pyx", folder)
    extension = Extension("lane", [str(folder / "lane.pyx")], extra_compile_args=["-O2", "-w"])
    made = cythonize(
        [extension],
        include_path=[str(ROOT / "logstore" / "codec")],
        build_dir=str(folder),
        quiet=True,
    )
    command: Any = Distribution({"name": "lane", "ext_modules": made}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(folder), str(folder / "objects")
    command.ensure_finalized()
    command.run()
    return next(folder.glob("lane.*.so"))


def load(path: Path) -> Any:
    """The compiled prototype."""
    spec = importlib.util.spec_from_file_location("lane", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attach(module: Any, store: Any, follow_every: int) -> Any:
    """A lane beside an open store."""
    engine = store._engine()

    def reload(names: list[bytes]) -> tuple[Any, int, dict[bytes, Any]]:
        generation = engine.index()
        rows: dict[bytes, Any] = {}
        with generation.env.begin() as txn:
            index = IndexTxn(generation, txn)
            meta = index.meta()
            for name in names:
                found = index.record_by_name(name)
                rows[name] = None, None, None
                if found is not None:
                    node = index.open_node(found.number)
                    numbers = (
                        found.length, found.entries_added, *found.last, *found.first,
                        *found.max_deleted, found.position, found.nodes, found.node_bytes,
                        found.open_version, *found.open_master, found.expires_ms,
                    )  # fmt: skip
                    rows[name] = found.number, numbers, None if node is None else node.lp
        return meta, engine.active_file(meta.active_segment).fd, rows

    return module.Lane(engine, reload, follow_every)


class Fast:
    """What ``Stream.add`` would be: the lane, and the slow call where that says no."""

    def __init__(self, lane: Any, stream: Any) -> None:
        self.lane, self.stream = lane, stream
        self.handle = lane.learn(stream._name)

    def add(self, fields: dict[Any, Any]) -> Any:
        """Add one entry; its ID."""
        found = self.lane.add(self.handle, fields)
        return found if found is not None else self.slowly(self.stream.add, fields)

    def slowly(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """An operation of the pipeline: before it the index follows, behind it the lane learns."""
        self.lane.settle()
        found = call(*arguments)
        self.handle = self.lane.learn(self.stream._name)
        return found


# -- checks ---------------------------------------------------------------------------------------
def fields_of(number: int) -> dict[Any, Any]:
    """Fields of all kinds that the lane takes: others now and then, and numbers."""
    if number % 7:
        return {"temp": str(number), "hum": 51}
    return {b"other": number, "text": b"x" * (number % 50)}


def expected(number: int) -> dict[bytes, bytes]:
    """What is read of them."""

    def encoded(value: Any) -> bytes:
        return value if isinstance(value, bytes) else str(value).encode()

    return {encoded(name): encoded(value) for name, value in fields_of(number).items()}


def leave(module: Any, path: str, adds: int) -> None:
    """Add, overlay, and end without closing: the index is behind. Prints what must be there."""
    store = logstore.open(path, background=False)
    stream = store.stream("t")
    stream.add({"first": "1"})
    fast = Fast(attach(module, store, FOLLOW_EVERY), stream)
    there: dict[str, int] = {}
    for number in range(adds):
        there[str(fast.add(fields_of(number)))] = number
        if number % 100 == 50:
            gone = next(iter(there))
            fast.slowly(stream.delete, gone)
            del there[gone]
    lane = fast.lane
    overlaid = overlay(module, store, fast, there)
    found = {
        "there": there, "lane": lane.adds, "slow": lane.slow, "followed": lane.followed,
        "rolled": lane.rolled, "overlaid": overlaid,
    }  # fmt: skip
    print(json.dumps(found), flush=True)
    os._exit(0)


def overlay(module: Any, store: Any, fast: Fast, there: dict[str, int]) -> int:
    """Read the open node as the index has it, with the tail over it, and as the lane has it; how
    many entries the tail had."""
    engine, lane, handle = store._engine(), fast.lane, fast.handle
    segments = engine.segments
    tail = module.Tail(
        engine.wake._address, engine.seed, lambda number: segments.source(number, sealed=False).fd
    )
    upto = tail.published()  # before the snapshot
    generation = engine.index()
    with generation.env.begin() as txn:
        index = IndexTxn(generation, txn)
        record, applied = index.record_by_name(b"t"), index.meta().applied
        assert record is not None
        node = index.open_node(record.number)
        assert node is not None
        lp = node.lp
    assert lp is not None
    entries, elements, *last, _, added = tail.of(record.number, applied, upto)
    rows: list[Any] = []
    module.node_rows(codec().extend(lp, added, entries, elements), *record.open_master, rows)
    newest = list(there.items())[-len(rows) :]
    assert [(str(row.id), row.fields) for row in rows] == [
        (id, expected(number)) for id, number in newest
    ]
    assert list(rows[-1].id) == last
    for row in rows:
        assert lane.get(handle, *row.id).fields == row.fields
    return int(entries)


def compare(path: Path, there: dict[str, int]) -> None:
    """Open a store as any other, twice, the second time without its index; then check it."""
    for lost in (False, True):
        if lost:
            shutil.rmtree(path / "index")
        with logstore.open(path, background=False, create=False) as store:
            read = {str(entry.id): dict(entry.fields) for entry in store.stream("t").range()}
        first = next(iter(read))
        assert read.pop(first) == {b"first": b"1"}
        assert read == {id: expected(number) for id, number in there.items()}
    command = "import sys; from logstore.tools.cli import main; sys.exit(main())"
    subprocess.run(
        [sys.executable, "-c", command, "check", str(path)], check=True, stdout=subprocess.DEVNULL
    )


# -- counting -------------------------------------------------------------------------------------
def cases(module: Any, folder: Path) -> dict[str, tuple[Work, int]]:
    """What is counted, by its name: work, and how many operations of it."""
    found: dict[str, tuple[Work, int]] = {}
    for name, every in (("design 1", 1), ("design 2", FOLLOW_EVERY)):
        store = logstore.open(folder / name.replace(" ", "-"), background=False)
        stream = store.stream("t")
        stream.add(ROW)
        lane = attach(module, store, every)
        lane.looked_ms = lane.called_ms = NOT_NOW_MS
        fast = Fast(lane, stream)
        found[f"{name}: add"] = repeated(fast.add, ROW), ADDS
    handle = fast.handle
    last = tuple(fast.add(ROW))
    found |= {
        "store: add": (repeated(logged(folder), ROW), ADDS // 4),
        "store: get": (repeated(stream.get, last), ADDS // 4),
        "design 2: get": (lambda count: get(lane, handle, count), ADDS),
        "design 2: get, its fields": (lambda count: get(lane, handle, count, fields=True), ADDS),
    }
    packed = codec().pack(
        codec().rows([ROW] * NODE_ROWS), 0, NODE_ROWS, (1, 0), None, 0, 0, 1 << 16, NODE_ROWS
    )
    lp = packed.nodes[0].lp
    sealed = module.SealedCache(store._engine().wake._address)
    sealed.keep(lp, 1, 0)
    found |= {
        "range: an entry of a node": (lambda count: rows(module, lp, count), ADDS),
        "range: the same, its fields": (lambda count: rows(module, lp, count, fields=True), ADDS),
        "get of a sealed node that is cached": (repeated(sealed.get, 1, NODE_ROWS // 2), ADDS),
    }
    scratch = os.open(folder / "scratch", os.O_CREAT | os.O_RDWR)
    main = store._engine().index().main

    def pair(count: int, small_rows: int) -> None:
        for _ in range(count):
            module.small_commit(lane, bytes(DELIVER_BYTES), DELIVER, scratch, small_rows, main)
            lane.get(handle, *last)
            module.small_commit(lane, bytes(ACK_BYTES), ACK, scratch, small_rows, main)

    # Last: these put rows into the index that no store has.
    found["group: floor of read and ack"] = (lambda count: pair(count, 0), ADDS // 4)
    found["group: the same, five rows each"] = (lambda count: pair(count, 5), ADDS // 4)
    return found


def logged(folder: Path) -> Callable[..., Any]:
    """``add`` of a store that has no lane."""
    return logstore.open(folder / "store", background=False).stream("t").add


def repeated(call: Callable[..., Any], *arguments: Any) -> Work:
    """The same call, so many times."""

    def work(count: int) -> None:
        for _ in range(count):
            call(*arguments)

    return work


def get(lane: Any, handle: Any, count: int, *, fields: bool = False) -> None:
    """Read the newest entry so many times, each behind a look for where the log ends."""
    at = lane.add(handle, ROW) or lane.add(handle, ROW)
    for _ in range(count):
        found = lane.get(handle, *at)
        if fields:
            assert found.fields


def rows(module: Any, lp: bytes, count: int, *, fields: bool = False) -> None:
    """Decode a node until so many entries were given."""
    for _ in range(count // NODE_ROWS):
        found: list[Any] = []
        module.node_rows(lp, 1, 0, found)
        if fields:
            for row in found:
                assert row.fields


def measure(module: Any, folder: Path) -> None:
    """Run all cases; prints microseconds of processor time of each."""
    took = {}
    for name, (work, count) in cases(module, folder).items():
        work(count // 2)
        started = time.process_time()
        module.counted(name.encode(), work, count)
        took[name] = (time.process_time() - started) / count * 1e6, count
    print(json.dumps(took), flush=True)
    os._exit(0)


def counted(built: Path, folder: Path) -> dict[str, tuple[float, str]]:
    """What each case costs, and the unit."""
    command = [sys.executable, "-m", "benchmarks.lane.count", "--built", str(built)]
    command += ["measure", str(folder)]
    counts = bool(shutil.which("valgrind")) and load(built).COUNTS
    out = folder / "callgrind"
    if counts:
        command[:0] = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
        command[3:3] = [f"--callgrind-out-file={out}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    took = json.loads(done.stdout.splitlines()[-1])
    if not counts:
        return {name: (microseconds, "us") for name, (microseconds, _) in took.items()}
    found = {}
    for dump in folder.glob("callgrind.*"):
        text = dump.read_text()
        name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
        total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
        if name and total:
            found[name[1]] = int(total[1]) / took[name[1]][1], "instructions"
    return {name: found[name] for name in took}


def main(arguments: list[str]) -> None:
    """Build, check, count; or one of these in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lane.count", description=__doc__)
    parser.add_argument("--built", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("work", nargs="*", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.work and asked.work[0] == "measure":
        env.MAP_BYTES = VALGRIND_MAP_BYTES
        measure(load(asked.built), Path(asked.work[1]))
    elif asked.work:
        leave(load(asked.built), asked.work[1], LEFT)
    folder = Path(tempfile.mkdtemp(prefix="logstore-lane-"))
    try:
        built = build(folder)
        command = [sys.executable, "-m", "benchmarks.lane.count", "--built", str(built)]
        command += ["leave", str(folder / "left")]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        left = json.loads(done.stdout.splitlines()[-1])
        there = left.pop("there")
        compare(folder / "left", there)
        print(f"checked: {len(there)} entries are read as they were added; {left}", flush=True)
        for name, (cost, unit) in counted(built, folder).items():
            print(f"{name:40} {cost:12,.1f} {unit}" if unit == "us" else f"{name:40} {cost:12,.0f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
