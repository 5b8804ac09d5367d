"""Prevents files from staying open behind the work they were opened for: until something collects
them, a store that is large runs out of descriptors, and locks are held that nobody knows of.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.compaction import runner
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime import maintenance_locks, segments
from logstore.engine.runtime.engine import Engine
from logstore.fs import File, FileSystem
from logstore.log import chain, file_names, pinfile, segment
from logstore.options import StoreLimits, StoreOptions
from logstore.recovery import backup, readonly, repaired_view, store_opening, unsynced
from logstore.recovery.check import check
from logstore.recovery.recover import recover
from logstore.recovery.repaired_view import Repaired
from logstore.recovery.salvage import salvaged_nodes
from logstore.recovery.salvage.run import salvage
from logstore.recovery.salvage.salvaged_nodes import WantedNode
from tests.corruption import frames, shop
from tests.recovery import small_store


class OpenedFiles(FileSystem):
    """Keeps every file that was opened, so that none closes itself; but for those in the cache of
    segments, which are closed by their last user."""

    def __init__(self) -> None:
        self.files: list[File] = []

    def open(
        self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        file = super().open(path, write=write, create=create, exclusive=exclusive)
        caller = sys._getframe(1)
        if caller.f_globals["__name__"] == repaired_view.__name__ and caller.f_back is not None:
            caller = caller.f_back
        if caller.f_globals["__name__"] != segments.__name__:
            self.files.append(file)
        return file

    @property
    def left(self) -> list[str]:
        """Those that are open."""
        return [file.path.name for file in self.files if file.fd >= 0]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Opened as copies only: several segments, checkpoints, a compacted segment, hints."""
    path = tmp_path_factory.mktemp("closed") / "store"
    shop.make(path, 3)
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """A copy."""
    return shutil.copytree(made, tmp_path / "store")


def _opened(path: Path, fs: FileSystem) -> Engine:
    options = StoreOptions(background=False)
    return store_opening.open_engine(fs, path, options, create=False, limits=StoreLimits())[0]


@pytest.fixture
def fs() -> Iterator[OpenedFiles]:
    """All of it must be closed in the end, and something must have been opened."""
    kept = OpenedFiles()
    yield kept
    assert kept.files
    assert kept.left == []


def test_a_check(path: Path, fs: OpenedFiles) -> None:
    assert check(path, fs=fs).damage == []
    small_store.cut(path, frames.everything(path)[-5])
    assert check(path, fs=fs).damage
    frames.flip(frames.file(path, frames.segments(path)[0]), 20)
    assert check(path, fs=fs).damage


def test_a_recovery(path: Path, fs: OpenedFiles) -> None:
    small_store.cut(path, frames.everything(path)[-5])
    assert recover(path, fs=fs).damage


def test_a_recovery_that_scans(path: Path, fs: OpenedFiles) -> None:
    for hint in (path / file_names.LOG).glob("*.hint"):
        hint.unlink()
    shutil.rmtree(path / file_names.CHECKPOINTS)
    small_store.cut(path, frames.everything(path)[20])
    small_store.cut(path, frames.of(path, frames.segments(path)[-1])[-5])
    assert recover(path, fs=fs).damage


def test_a_salvage(path: Path, tmp_path: Path, fs: OpenedFiles) -> None:
    small_store.cut(path, frames.everything(path)[20])
    frames.flip(frames.file(path, frames.segments(path)[0]), 20)
    assert salvage(path, tmp_path / "new", fs=fs).damage


def test_a_reader(path: Path, fs: OpenedFiles) -> None:
    options = StoreOptions(readonly=True, background=False)
    engine, _ = readonly.open_engine(fs, path, options)
    with logstore.open(path, background=False) as store:
        store.stream("more").add({"n": 1})
        assert engine.follow is not None
        engine.follow()
    readonly.close_engine(engine)


def test_an_opening_and_a_closing(path: Path, fs: OpenedFiles) -> None:
    for _ in range(2):
        store_opening.close_engine(_opened(path, fs))
    (path / file_names.LOCK).unlink()
    users = FileSystem().open(path / file_names.USERS, write=True)
    assert users.try_lock(exclusive=True)
    with pytest.raises(logstore.StoreInUseError):
        _opened(path, fs)
    users.close()


def test_a_compaction(path: Path, fs: OpenedFiles) -> None:
    engine = _opened(path, fs)
    committer = Committer(engine)
    runner.run(engine, committer, threshold=0.0)
    runner.run(engine, committer, purge=True)
    maintenance_locks.write_missing_hints(engine)
    store_opening.close_engine(engine)


def test_a_pin(tmp_path: Path, fs: OpenedFiles) -> None:
    (tmp_path / file_names.PINS).mkdir()
    pin = pinfile.Pin(pinfile.new_id(), None, 1000, 500, 77)
    pinfile.write(fs, tmp_path, pin)
    assert pinfile.renew(fs, tmp_path, pin.id, 999).expires_ms == 1499


def test_parts_that_read_the_log(path: Path, tmp_path: Path, fs: OpenedFiles) -> None:
    """One by one, with the engine still open."""
    engine = _opened(path, fs)
    held = set(fs.left)
    committer = Committer(engine)
    links = chain.main_links(fs, path, engine.uuid)
    assert set(fs.left) == held
    assert unsynced.at_risk(engine, links[0].number << 32 | links[0].start_offset) is not None
    assert set(fs.left) == held
    wanted = [WantedNode(number, logstore.StreamID(1, 0), 1 << 64) for number in range(1, 9)]
    salvaged_nodes.find(fs, path, engine.uuid, engine.seed, wanted)
    assert set(fs.left) == held
    with pytest.raises(logstore.CorruptFrameError):
        segment.read_head(fs.open(path / file_names.STORE), 1, engine.uuid)
    fs.files.pop().close()
    home = tmp_path / "home"
    home.mkdir()
    Repaired(fs, path, home)
    assert set(fs.left) == held
    backup.take(engine, committer, tmp_path / "backup")
    assert set(fs.left) <= held | {file_names.segment(path, links[-1].number).name}
    store_opening.close_engine(engine)
    engine = _opened(path, fs)
    held = set(fs.left)
    assert unsynced.rewrite(engine, links[-2].number << 32) == 2
    assert set(fs.left) == held
    store_opening.close_engine(engine)
