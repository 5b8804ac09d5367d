"""Prevents every process from looking for tombstones at once, and void commits from coming back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import logstore
from logstore.compaction import compactor as background
from logstore.compaction import erasure
from logstore.compaction.compactor import Compactor
from logstore.engine.runtime.background import no_pause
from logstore.fs import LOCAL
from logstore.log import file_names
from logstore.recovery.check import check
from tests.support.inside import engine_of
from tests.support.processes import ForkedOnGo

PROCESSES = 4
NODES = 2_500


def test_one_process_counts_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    told, tell = os.pipe()
    count = erasure.tombstoned_bytes

    def counted(*rest: object) -> dict[int, int]:
        os.write(tell, b"x")
        return count(*rest)  # type: ignore[arg-type]

    monkeypatch.setattr(background.erasure, "tombstoned_bytes", counted)

    def work() -> None:
        with logstore.open(path, background=False) as theirs:
            compactor = Compactor(engine_of(theirs), theirs._live().committer)
            for _ in range(3):  # the first is that of who has it open for a moment
                compactor._next_s = 0.0
                compactor.tick(no_pause)

    with logstore.open(path, background=False) as store:
        children = [ForkedOnGo(work) for _ in range(PROCESSES)]
        ids = list(store.stream("s").add_many({"n": n} for n in range(500)))
        store.stream("s").delete(*ids[:50])
        for child in children:
            child.go()
        assert os.read(told, 100) == b"x"
        engine_of(store).wake.next_count_ms = 0  # later
        work()
        assert os.read(told, 100) == b"x"


def test_tombstones_are_counted_in_slices(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", background=False, node_max_entries=1) as store:
        stream = store.stream("s")
        stream.add_many({"n": n} for n in range(NODES))
        rests: list[int] = []
        erasure.tombstoned_bytes(engine_of(store), rests.append)
        assert len(rests) >= NODES // erasure.NODES_A_SNAPSHOT
        assert erasure.NODES_A_SNAPSHOT <= 1000


ROW = {"v": b"x" * 200}


def with_a_hole(folder: Path) -> Path:
    """A store as a power cut leaves it: of three late commits the first is lost, the others not."""
    live, path = folder / "live", folder / "store"
    with logstore.open(live, sync="os", background=False, node_max_entries=10) as store:
        store.stream("kept").add_many([ROW] * 100)
        store.sync()
        segment = file_names.segment(live, 1)
        begin = segment.stat().st_size
        store.stream("lost").add({"v": b"lost" * 100})
        end = segment.stat().st_size
        for _ in range(2):
            store.stream("lost").add({"v": b"void" * 100})
        path.mkdir()
        shutil.copytree(live / "log", path / "log")
        shutil.copy(live / "STORE", path / "STORE")
    data = bytearray(file_names.segment(path, 1).read_bytes())
    data[begin:end] = bytes(end - begin)
    file_names.segment(path, 1).write_bytes(data)
    return path


def test_a_segment_that_voids_another_stays_as_long_as_that_one(tmp_path: Path) -> None:
    """Compaction drops the second, in which nothing lives, only when the first goes too."""
    path = with_a_hole(tmp_path)
    with logstore.open(path, sync="os", background=False, node_max_entries=10) as store:
        assert store.recovery["torn_bytes"]
        assert [*file_names.segments(LOCAL, path)] == [1, 2]
        store.stream("kept").add(ROW)  # an open node in the first would keep the second by itself
        store.stream("gone").add_many([ROW] * 100)
        store.drop("gone")
        for _ in range(2):
            store.compact()
        assert file_names.segment(path, 1).exists()
        assert len(store.stream("kept")) == 101
        assert "lost" not in [name.decode() for name in store.streams()]
    found = check(path)
    assert not found.damage
    shutil.rmtree(path / "index")
    with logstore.open(path, background=False) as store:
        assert not store.recovery["damage"]
        assert len(store.stream("kept")) == 101
        assert b"lost" not in store.streams()
        # And when nothing lives in the first, both go.
        store.drop("kept")
        for _ in range(2):
            store.compact()
        assert not file_names.segment(path, 1).exists()
        assert not file_names.segment(path, 2).exists()
    assert not check(path).damage
