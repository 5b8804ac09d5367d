"""Prevents a dropped segment, removed while an index is built from the log, from being an error.

A process that was killed behind the drop leaves the file; the next compaction of another process
removes it, under no lock that a rebuild holds.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logstore
from logstore.engine.runtime.engine import REBUILD_TRIES
from logstore.errors import DamagedStoreError
from logstore.log import file_names as names
from logstore.recovery.check import check
from tests.support.watched_files import FileOperation, WatchedFileSystem, in_place


class RemovedBeforeRead(WatchedFileSystem):
    """Another process removes a segment after all heads were read, just before its body is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.removed = 0

    def before(self, operation: FileOperation) -> None:
        hint = self._path.with_suffix(".hint")  # opened just before the segment is read
        if operation.kind == "open" and operation.path == hint:
            self._path.unlink(missing_ok=True)
            self.removed += 1


class BackWhenListed(RemovedBeforeRead):
    """The segment is there again each time the segments are listed."""

    def __init__(self, path: Path, copy: Path) -> None:
        super().__init__(path)
        self._copy = copy

    def before(self, operation: FileOperation) -> None:
        listed = operation.kind == "list" and operation.path == self._path.parent
        if listed and not self._path.exists():
            shutil.copy(self._copy, self._path)
        super().before(operation)


def left_by_a_drop(tmp_path: Path) -> tuple[Path, Path]:
    """A store without an index, with a segment that was dropped; and a copy of that."""
    path, copy = tmp_path / "store", tmp_path / "copy"
    with logstore.open(path, background=False, segment_bytes=65536) as store:
        store.stream("a").add_many([(f"{n}-0", {"v": "x" * 900}) for n in range(1, 200)])
        store.stream("a").add({"v": "y"}, id="500-0")
        store.compact()
        segment = names.segment(path, names.segments(store._engine().fs, path)[0])
        shutil.copy(segment, copy)
        store.stream("a").trim(max_entries=1, approximate=False)
        assert store.compact().segments_dropped
        assert not segment.exists()
    shutil.copy(copy, segment)
    shutil.rmtree(path / names.INDEX)
    return segment, copy


def test_a_segment_that_goes_meanwhile(tmp_path: Path) -> None:
    segment, _ = left_by_a_drop(tmp_path)
    path = tmp_path / "store"
    files = RemovedBeforeRead(segment)
    with in_place(files), logstore.open(path, background=False) as store:
        assert store.recovery["rebuilt"]
        assert not store.recovery["damage"]
        assert [str(entry.id) for entry in store.stream("a")] == ["500-0"]
    assert files.removed
    assert check(path).as_dict()["clean"]


def test_a_segment_that_comes_and_goes_is_a_typed_error(tmp_path: Path) -> None:
    segment, copy = left_by_a_drop(tmp_path)
    files = BackWhenListed(segment, copy)
    with in_place(files), pytest.raises(DamagedStoreError, match="try again"):
        logstore.open(tmp_path / "store", background=False)
    assert files.removed == REBUILD_TRIES
    with logstore.open(tmp_path / "store", background=False) as store:
        assert [str(entry.id) for entry in store.stream("a")] == ["500-0"]
