"""Prevents a full disk from locking the user out, or a failed backup from being in the way of the
next.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.errors import DamagedStoreError, DiskFullError, OptionError
from logstore.fs import LOCAL, File, FileSystem
from logstore.log import file_names as names
from logstore.recovery import backup
from logstore.recovery.backup import FOLDERS, filling
from logstore.recovery.check import check
from logstore.recovery.salvage.run import salvage
from tests.support.processes import Program, run_program
from tests.support.waits import eventually

DISK_BYTES = 16 << 20
FILL = """
import os, sys, logstore
store = logstore.open(sys.argv[1], segment_bytes=1 << 20, background=False)
stream = store.stream("s")
group = stream.group("g", start="0")
stream.add_many({"n": n, "pad": os.urandom(8000)} for n in range(1000))
group.read("me", count=500)
done = 1000
try:
    while True:
        stream.add({"n": done, "pad": os.urandom(2000)})
        done += 1
except logstore.DiskFullError:
    print(done, flush=True)
sys.stdin.read()
"""
USE = """
import os, sys, logging, logstore
from logstore.engine.shm import process_identity as process
path, how, command, done = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
logging.basicConfig(stream=sys.stderr)
if "reboot" in how:
    process.boot_id = lambda: "another boot"
if command == "recover":
    from logstore.recovery.recover import recover
    recover(__import__("pathlib").Path(path))
if command == "compact":
    with logstore.open(path, background=False) as store:
        store.compact()
with logstore.open(path) as store:
    stream, group = store.stream("s"), store.stream("s").group("g")
    assert len(stream) == done, (len(stream), done)
    stream.configure(max_bytes=1 << 30)
    ids = [entry.id for entry in stream.range(count=20)]
    assert stream.delete(*ids[:10]) == 10
    assert group.ack(*ids[10:]) == 10
    assert stream.trim(max_entries=500) == done - 510
    store.compact()
    assert len(stream) == 500
    stream.add({"n": "new", "pad": os.urandom(500)})
    assert len(stream) == 501
    assert not os.path.exists(os.path.join(path, "WAKE.tmp"))
    assert os.path.getsize(os.path.join(path, "RESERVE")) == 1 << 20
with logstore.open(path) as store:
    assert len(store.stream("s")) == 501
print("ok")
"""


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A real file system of ``DISK_BYTES``."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(mount)]
    if request.param == "ext4":
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(DISK_BYTES + (8 << 20))
        made = subprocess.run(
            ["mkfs.ext4", "-q", "-m", "0", str(image)], capture_output=True, text=True, check=False
        )
        if made.returncode:
            pytest.skip(f"ext4 cannot be made here: {made.stderr.strip()}")
        command = ["mount", "-o", "loop", str(image), str(mount)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def fill(disk: Path) -> None:
    """Another program takes all that is left, to the last block."""
    fd = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    size = 1 << 20
    while size:
        try:
            os.write(fd, os.urandom(size))
        except OSError as exc:
            if exc.errno != errno.ENOSPC:
                raise
            size //= 2
    os.fsync(fd)
    os.close(fd)


def filled(path: Path) -> int:
    """A store whose writer added until the disk was full, and was killed; how many entries."""
    writer = Program(FILL, path)
    done = int(writer.answer())
    writer.kill()
    return done


CASES = [
    *(("open", how) for how in ("restart", "reboot", "index", "reboot, WAKE", "index, WAKE")),
    *((command, how) for command in ("recover", "compact") for how in ("reboot", "index, WAKE")),
]


@pytest.mark.parametrize(("command", "how"), CASES)
def test_a_full_disk_locks_nobody_out(disk: Path, command: str, how: str) -> None:
    """What was lost leaves its space to the store; all that was free before is taken by others."""
    path = disk / "store"
    done = filled(path)
    fill(disk)
    if "index" in how:
        shutil.rmtree(path / names.INDEX)
    if "WAKE" in how:
        (path / names.WAKE).unlink()
    assert run_program(USE, path, how, command, done).stdout == "ok\n"
    assert check(path).damage == []


@pytest.mark.parametrize("how", ["restart", "reboot"])
def test_without_what_was_set_aside_it_opens_and_can_be_read(disk: Path, how: str) -> None:
    """RESERVE is gone too, and somebody else took its blocks: a little room is enough to go on."""
    path = disk / "store"
    done = filled(path)
    (path / names.RESERVE).unlink(missing_ok=True)
    fill(disk)
    run_program(USE.split("    ids = ", maxsplit=1)[0], path, how, "open", done)
    os.truncate(disk / "filler", max(0, (disk / "filler").stat().st_size - (2 << 20)))
    assert run_program(USE, path, how, "open", done).stdout == "ok\n"
    assert check(path).damage == []


EMPTY = """
import sys, logstore
with logstore.open(sys.argv[1], background=False) as store:
    store.stream("s").trim(max_entries=0)
    store.compact()
"""


@pytest.mark.parametrize("background", [False, True])
def test_a_process_that_is_open_keeps_no_space_of_a_segment_that_is_gone(
    disk: Path, background: bool
) -> None:
    """One process fills the disk with a single segment, another one trims and compacts: the first
    adds again without being started anew; with its work in the background it need not even add.
    """
    path = disk / "store"
    with logstore.open(path, background=background) as store:
        stream = store.stream("s")
        with pytest.raises(logstore.DiskFullError):
            stream.add_many(({"pad": os.urandom(8000)} for _ in range(10_000)), batch=10)
        run_program(EMPTY, path)
        if background:
            eventually(lambda: shutil.disk_usage(disk).free > DISK_BYTES // 2)
        stream.add({"pad": os.urandom(8000)})
        assert len(stream) == 1
        assert shutil.disk_usage(disk).free > DISK_BYTES // 2
    assert check(path).damage == []


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


def test_the_advice_of_a_refused_backup_works(store: Path, tmp_path: Path) -> None:
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


def test_a_failed_backup_removes_its_own_files_only(tmp_path: Path) -> None:
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
