"""Prevents errors, and false talk of damage, in a process that reads the files of its open store.

The system drops LMDB's locks then, and the next process to open the index takes this one's place
among the readers (logstore/engine/runtime/reopen.py).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import logstore
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from tests.support.inside import engine_of

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
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


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
