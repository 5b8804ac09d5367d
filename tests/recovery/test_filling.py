"""Prevents a backup, or a restore, that fails from leaving what is in the way of the next."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.errors import DamagedStoreError, DiskFullError, OptionError
from logstore.fs import LOCAL, File, FileSystem
from logstore.log import names
from logstore.recovery import backup
from logstore.recovery.filling import FOLDERS, filling
from logstore.recovery.salvage.run import salvage


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of some segments."""
    with logstore.open(tmp_path / "store", segment_bytes=1 << 16, background=False) as opened:
        opened.stream("s").add_many([{"n": n, "pad": "x" * 40} for n in range(5000)])
    return tmp_path / "store"


def held(path: Path) -> int:
    with logstore.open(path, create=False) as opened:
        return len(opened.stream("s"))


@pytest.mark.parametrize("new", [True, False])
def test_a_refused_backup_leaves_the_directory_as_it_was(
    store: Path, tmp_path: Path, *, new: bool
) -> None:
    """So that the same call is right once the store was mended."""
    target = tmp_path / "backup"
    if not new:
        target.mkdir()
    log = names.segment(store, names.segments(LOCAL, store)[1])
    whole = log.read_bytes()
    log.write_bytes(whole[:5000] + b"\xff" * 100 + whole[5100:])
    with logstore.open(store, background=False) as opened, pytest.raises(DamagedStoreError):
        opened.backup(target)
    assert target.exists() is not new
    assert new or not list(target.iterdir())
    log.write_bytes(whole)
    with logstore.open(store, background=False) as opened:
        opened.backup(target)
    assert held(target) == 5000


def test_what_a_backup_advises_can_be_done(store: Path, tmp_path: Path) -> None:
    """Without a copy of the segment: what is left, in a new store, of which there are backups."""
    log = names.segment(store, names.segments(LOCAL, store)[1])
    whole = log.read_bytes()
    log.write_bytes(whole[:5000] + b"\xff" * 100 + whole[5100:])
    refused = pytest.raises(DamagedStoreError, match="recover --salvage")
    with logstore.open(store, background=False) as opened, refused:
        opened.backup(tmp_path / "backup")
    salvage(store, tmp_path / "rescued")
    with logstore.open(tmp_path / "rescued", background=False) as opened:
        opened.backup(tmp_path / "backup")
        left = len(opened.stream("s"))
    assert left > 4000
    assert held(tmp_path / "backup") == left


class _Full(FileSystem):
    """A disk that is full behind some writes."""

    def __init__(self, writes: int) -> None:
        self.writes = writes

    def open_new(self, path: Path) -> File:
        self.writes -= 1
        if self.writes < 0:
            raise DiskFullError(f"{path}: no space left")
        return super().open_new(path)


def test_a_restore_to_a_full_disk_leaves_nothing(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    files = len(names.segments(LOCAL, store))
    assert files > 2
    for writes in range(files):
        with pytest.raises(DiskFullError):
            backup.restore(store, target, fs=_Full(writes))
        assert not target.exists()
    backup.restore(store, target)
    assert held(target) == 5000


class _Interrupted(FileSystem):
    """An interrupt falls behind STORE."""

    def write_atomic(self, path: Path, data: bytes, *, private: bool = False) -> None:
        super().write_atomic(path, data, private=private)
        raise KeyboardInterrupt


def test_no_store_without_its_log_is_left(store: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        backup.restore(store, tmp_path / "new", fs=_Interrupted())
    assert not (tmp_path / "new").exists()


def test_what_others_made_stays(tmp_path: Path) -> None:
    """Two who fill one directory: the one that comes second fails, and takes back its own alone."""
    with filling(LOCAL, tmp_path, "a backup") as first:
        first.file(tmp_path / names.LOG / "1").close()
        with pytest.raises(OptionError, match="did not end"), filling(LOCAL, tmp_path, "a backup"):
            pass
        with pytest.raises(ZeroDivisionError):
            _fill_late(tmp_path)
        first.end(b"")
    assert (tmp_path / names.LOG / "1").exists()
    assert (tmp_path / names.STORE).exists()
    assert {each.name for each in tmp_path.iterdir()} == {names.STORE, *FOLDERS}


class _Blind(FileSystem):
    """Looked at the directory before the other one began."""

    def names(self, path: Path) -> list[str]:
        return [] if path.name not in FOLDERS else super().names(path)


def _fill_late(target: Path) -> None:
    with filling(_Blind(), target, "a backup") as second:
        second.file(target / names.LOG / "2").close()
        raise ZeroDivisionError
