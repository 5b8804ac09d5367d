"""Prevents a closed store from keeping its files open or mapped, and its own reads of them from
harm.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from tests.support.inside import engine_of
from tests.support.processes import run_program

# In a process of its own: nothing is collected there, and nothing of other tests is open.
LEFT = """
import gc, os, sys
import logstore
gc.disable()
path = sys.argv[1]

def left():
    found = [line for line in open("/proc/self/maps") if path in line]
    for name in os.listdir("/proc/self/fd"):
        try:
            where = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if path in where:
            found.append(where)
    return found
"""
WORK = """
import asyncio, logstore.aio

def use(store):
    stream = store.stream("race")
    stream.add_many({"n": n} for n in range(300))
    assert len(stream) == len(list(stream))
    group = stream.group("g", start="0")
    for each in group.read("c", count=5):
        each.ack()
    stream.group("none", start="$").read("c", timeout=0.02)
    stream.schedule({"n": 1}, after=0.01)
    stream.read("$", timeout=0.05)
    store.compact(purge=True)
    store.info(), store.checkpoint()
    try:
        stream.add({"n": 1}, id="1-1")
    except logstore.Error as exc:
        return stream, group, exc
    raise AssertionError

async def use_async():
    async with logstore.aio.open(path) as store:
        await store.stream("race").add({"n": 1})
        await store.stream("race").read("$", timeout=0.02)
        return store

kept = []
for _ in range(6):
    with logstore.open(path) as store:
        kept.append((store, *use(store)))
    assert left() == [], left()
    with logstore.open(path, readonly=True) as store:
        kept.append((store, len(store.stream("race")), list(store.stream("race"))))
    assert left() == [], left()
    kept.append(asyncio.run(use_async()))
    assert left() == [], left()
    one, other = logstore.open(path), logstore.open(path)
    one.close()
    assert len(other.stream("race"))
    other.close()
    assert left() == [], left()
    forgotten = logstore.open(path)
    del forgotten
with logstore.open(path):
    pass
assert left() == [], left()
if len(sys.argv) > 2:
    import subprocess
    subprocess.run(["umount", sys.argv[2]], check=True)  # says busy if anything is open
"""


def run(*arguments: Path) -> None:
    """The work, in a process of its own."""
    run_program(LEFT + WORK, *arguments)


def test_nothing_is_open_or_mapped_behind_close(tmp_path: Path) -> None:
    run(tmp_path / "store")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    where = tmp_path / "mounted"
    where.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(where)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"tmpfs cannot be mounted: {done.stderr.strip()}")
    yield where
    if where.is_mount():
        subprocess.run(["umount", "--lazy", str(where)], check=True)


FAILED = """
import resource
raised = 0
with logstore.open(path, background=False) as store:
    store.stream("s").add_many({"n": n} for n in range(300))
    end = max(file.stat().st_size for file in (store.path / "log").iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for id in ("9999999999999-1", "9999999999999-2"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (end + 20, limits[1]))
        try:
            store.stream("s").add({"pad": "x" * 9000}, id=id)
        except logstore.Error:
            raised += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        store.compact(full=True)  # the index has another generation
        end = max(file.stat().st_size for file in (store.path / "log").iterdir())
assert raised == 2
assert not left(), left()
"""


def test_the_error_of_a_commit_keeps_nothing_open(tmp_path: Path) -> None:
    """Its frames held the index that was valid then, mapped, until a garbage collection."""
    run_program(LEFT + FAILED, tmp_path / "store")


def test_a_closed_store_can_be_unmounted(mounted: Path) -> None:
    run(mounted / "store", mounted)
    assert not mounted.is_mount()


OPENED = 40


def lose_locks(path: Path) -> None:
    """What a copy of the directory does to LMDB."""
    for file in (path / "index").rglob("lock.mdb"):
        file.read_bytes()


def others_go_on(path: Path) -> None:
    """Another process opens the store, and writes over every page that nobody seems to read."""
    code = (
        "import sys, logstore\n"
        "with logstore.open(sys.argv[1], background=False) as store:\n"
        "    [store.stream('s').add({'by': 'another'}) for _ in range(200)]\n"
    )
    run_program(code, path)


def test_a_reader_whose_slot_was_given_away_reads_on(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", background=False) as store:
        stream = store.stream("s")
        stream.add({"n": 1})
        assert len(stream) == 1
        lose_locks(tmp_path / "s")
        others_go_on(tmp_path / "s")
        assert len(stream) == 201
        assert store.metrics()["index_reopened"] == 1
        stream.add({"n": 2})
        assert len(list(stream)) == 202
        assert store.metrics()["index_reopened"] == 1


def test_a_batch_that_lost_its_pages_is_read_again(tmp_path: Path) -> None:
    """Nothing tells the reader: what others wrote there may look as good as what was there."""
    with logstore.open(tmp_path / "s", background=False) as store:
        store.stream("s").add({"n": 1})
        engine = engine_of(store)
        calls: list[Snapshot] = []

        def batch(view: Snapshot) -> int:
            record = view.record(b"s")
            calls.append(view)
            if len(calls) == 1:
                lose_locks(tmp_path / "s")
                others_go_on(tmp_path / "s")
            return 0 if record is None else record.length

        assert snapshot.read(engine, batch) == 201
        assert len(calls) == 2


def test_damage_is_told_after_a_few_more_looks(tmp_path: Path) -> None:
    """An index that is really damaged must not be opened again and again. One more look is too
    few: a program that copies its open store on and on loses its place in that one, too."""
    with logstore.open(tmp_path / "s", background=False) as store:
        store.stream("s").add({"n": 1})
        seen: list[object] = []

        def batch(view: Snapshot) -> None:
            seen.append(view.index.generation)
            raise logstore.CorruptionError("bad")

        with pytest.raises(logstore.CorruptionError, match="bad"):
            snapshot.read(engine_of(store), batch)
        assert len(seen) == len(set(map(id, seen))) == snapshot.DOUBTS_MAX + 1


def test_a_copy_by_this_process_beside_reads_and_writes(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.engine.copying"]
    done = subprocess.run(
        [*command, str(tmp_path / "s"), str(OPENED)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    print(done.stdout)
