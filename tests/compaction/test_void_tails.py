"""Prevents commits that were made void from coming back when the segment that says so is dropped.

Where complete commits stand behind a lost one, a new segment begins whose header says where the one
before ends. Nothing else says it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import logstore
from logstore.fs import LOCAL
from logstore.log import names
from logstore.recovery.check import check

ROW = {"v": b"x" * 200}


def with_a_hole(folder: Path) -> Path:
    """A store as a power cut leaves it: of three late commits the first is lost, the others not."""
    live, path = folder / "live", folder / "store"
    with logstore.open(live, sync="os", background=False, node_max_entries=10) as store:
        store.stream("kept").add_many([ROW] * 100)
        store.sync()
        segment = names.segment(live, 1)
        begin = segment.stat().st_size
        store.stream("lost").add({"v": b"lost" * 100})
        end = segment.stat().st_size
        for _ in range(2):
            store.stream("lost").add({"v": b"void" * 100})
        path.mkdir()
        shutil.copytree(live / "log", path / "log")
        shutil.copy(live / "STORE", path / "STORE")
    data = bytearray(names.segment(path, 1).read_bytes())
    data[begin:end] = bytes(end - begin)
    names.segment(path, 1).write_bytes(data)
    return path


def test_a_segment_that_voids_another_stays_as_long_as_that_one(tmp_path: Path) -> None:
    """Compaction drops the second, in which nothing lives, only when the first goes too."""
    path = with_a_hole(tmp_path)
    with logstore.open(path, sync="os", background=False, node_max_entries=10) as store:
        assert store.recovery["torn_bytes"]
        assert [*names.segments(LOCAL, path)] == [1, 2]
        store.stream("kept").add(ROW)  # an open node in the first would keep the second by itself
        store.stream("gone").add_many([ROW] * 100)
        store.drop("gone")
        for _ in range(2):
            store.compact()
        assert names.segment(path, 1).exists()
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
        assert not names.segment(path, 1).exists()
        assert not names.segment(path, 2).exists()
    assert not check(path).damage
