"""Prevents the limits of a real system from losing anything: file sizes, open files, permissions, a
read-only mount, and the limits of LMDB. Nothing is injected here; the kernel, or LMDB, refuses.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.errors import CommittedError, DiskFullError, FileSystemError
from logstore.index import env
from logstore.recovery.check import check
from tests import figures
from tests.support.processes import Forked

NOBODY = 65534


def ids(store: logstore.Store[bytes], name: str = "a") -> list[str]:
    """What a stream holds."""
    return [str(entry.id) for entry in store.stream(name)]


def _says(error: logstore.Error, what: str = "make room") -> None:
    assert what in str(error)


def sound(path: Path, expected: list[str], name: str = "a") -> None:
    """Opened again it holds that, and nothing is wrong with it."""
    with logstore.open(path, background=False) as store:
        assert ids(store, name) == expected
        store.stream("after").add({"v": "x"})
    assert check(path).as_dict()["clean"]


def limit_file_size(size_bytes: int) -> None:
    """Writes beyond it are short, and then fail with EFBIG."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


@pytest.mark.parametrize("limit_bytes", [100_000, 131_072, 200_001])
def test_short_writes_of_the_log(tmp_path: Path, limit_bytes: int) -> None:
    """RLIMIT_FSIZE cuts a write in two, wherever it falls in a frame."""

    def work() -> None:
        path = tmp_path / "store"
        store = logstore.open(path, background=False, sync="os")
        store.stream("a").add({"v": "first"}, id="1-0")
        expected = ["1-0"]
        limit_file_size(limit_bytes)
        refused = 0
        for n in range(2, 40):
            try:
                store.stream("a").add({"v": os.urandom(9_000)}, id=f"{n}-0")
                expected.append(f"{n}-0")
            except DiskFullError as exc:
                _says(exc)
                refused += 1
            assert ids(store) == expected
        assert refused > 10
        limit_file_size(resource.RLIM_INFINITY)
        store.stream("a").add({"v": os.urandom(9_000)}, id="100-0")
        store.close()
        sound(path, [*expected, "100-0"])

    Forked(work).join()


def test_short_writes_of_the_index(tmp_path: Path) -> None:
    """An index that cannot follow says so; what is in the log counts, and it follows later."""

    def work() -> None:
        path = tmp_path / "store"
        store = logstore.open(path, background=False, sync="os")
        store.stream("a").add({"v": "first"}, id="1-0")
        limit_file_size((path / "index" / "1" / "data.mdb").stat().st_size + 40_000)
        counted: list[str] = []
        for n in range(400):
            try:
                store.create(f"stream {n}")
                counted.append(f"stream {n}")
            except CommittedError as exc:
                _says(exc, "do not repeat")
                counted.append(f"stream {n}")
            except DiskFullError as exc:
                _says(exc)
            assert ids(store) == ["1-0"]
        assert len(counted) < 400
        limit_file_size(resource.RLIM_INFINITY)
        store.create("behind")
        there = {name.decode() for name in store.streams()}
        assert there == {"a", "behind", *counted}
        store.close()
        sound(path, ["1-0"])

    Forked(work).join()


def test_no_file_can_be_opened(tmp_path: Path) -> None:
    """Whatever file it is that is one too many: a typed error, and later it works."""

    def work() -> None:
        path = tmp_path / "store"
        with logstore.open(path, background=False) as store:
            store.stream("a").add({"v": "x"}, id="1-0")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(64)]
        expected = ["1-0"]
        refused = 0
        for spare in range(0, 24, 1 if figures.times() > 1 else 4):
            os.closerange(taken[-1] - spare, taken[-1] + 1)
            resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, hard))
            store = None
            try:
                store = logstore.open(path, background=False, sync="always")
                store.stream("a").add({"v": "x"}, id=f"{spare + 2}-0")
                expected.append(f"{spare + 2}-0")
                store.checkpoint()
                store.compact()
            except FileSystemError as exc:
                _says(exc, "ulimit")
                refused += 1
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                if store is not None:
                    assert ids(store) == expected
                    store.close()
            taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(64)]
        assert 0 < refused < 24
        sound(path, expected)

    Forked(work).join()


@pytest.fixture
def common() -> Iterator[Path]:
    """A directory that other users can reach."""
    with tempfile.TemporaryDirectory() as found:
        Path(found).chmod(0o755)
        yield Path(found)


def _as_nobody(work: Any) -> None:
    def as_nobody() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        work()

    Forked(as_nobody).join()


def _forbid(path: Path, mode: int) -> None:
    for each in (path, *path.rglob("*")):
        each.chmod(mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH if each.is_dir() else mode)


@pytest.mark.parametrize("mode", [0o444, 0o000], ids=["read only", "not at all"])
def test_no_permission(common: Path, mode: int) -> None:
    """It says that permissions are missing; readable, it can be read with readonly=True."""
    path = common / "store"
    with logstore.open(path, background=False) as store:
        store.stream("a").add({"v": "x"}, id="1-0")
    _forbid(path, mode)

    def work() -> None:
        with pytest.raises(FileSystemError, match="permission") as told:
            logstore.open(path, background=False)
        assert told.value.errno == errno.EACCES
        assert "readonly=True" in str(told.value)
        if mode:
            with logstore.open(path, readonly=True) as store:
                assert ids(store) == ["1-0"]
        with pytest.raises(FileSystemError, match="permission"):
            logstore.open(common / "new", background=False)

    _as_nobody(work)
    _forbid(path, 0o644)
    sound(path, ["1-0"])


def test_a_mount_that_may_not_be_written(tmp_path: Path) -> None:
    """The same, of a file system that is mounted read-only."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    mount = tmp_path / "disk"
    mount.mkdir()

    def mounted(*options: str) -> bool:
        command = ["mount", "-t", "tmpfs", *options, "tmpfs", str(mount)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    if not mounted("-o", "size=16m"):
        pytest.skip("a file system cannot be mounted here")
    try:
        path = mount / "store"

        def make() -> None:
            with logstore.open(path, background=False) as store:
                store.stream("a").add({"v": "x"}, id="1-0")

        Forked(make).join()  # nothing of it is open here, which would keep the mount writable
        assert mounted("-o", "remount,ro")
        for where in (path, mount / "new"):
            with pytest.raises(FileSystemError, match="permission") as told:
                logstore.open(where, background=False)
            assert told.value.errno == errno.EROFS
        with logstore.open(path, readonly=True) as store:
            assert ids(store) == ["1-0"]
        assert check(path).as_dict()["clean"]
        assert mounted("-o", "remount,rw")
        sound(path, ["1-0"])
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def test_the_map_of_the_index_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB's MapFull: adds are refused, what gives space back works, later all does."""
    path = tmp_path / "store"
    monkeypatch.setattr(env, "MAP_BYTES", 1 << 19)
    store = logstore.open(path, background=False, sync="os")
    made: list[str] = []
    unsure: list[str] = []  # in the log, and the index could not follow
    for n in range(5000):
        try:
            store.stream(f"stream {n}").add({"v": "x"}, id="1-0")
            made.append(f"stream {n}")
        except CommittedError as exc:
            _says(exc, "do not repeat")
            unsure.append(f"stream {n}")
        except DiskFullError as exc:
            _says(exc, "writing the index")
            _says(exc)
            break
    assert 100 < len(made) < 5000
    assert len(unsure) <= 1
    assert {name.decode() for name in store.streams()} == set(made)
    assert ids(store, made[7]) == ["1-0"]
    dropped: list[str] = []
    for name in made[:100]:
        with suppress(DiskFullError):
            assert store.drop(name)
            dropped.append(name)
    with suppress(DiskFullError):
        store.close()
    monkeypatch.undo()
    with logstore.open(path, background=False) as store:
        there = {name.decode() for name in store.streams()}
        assert there == {*made, *unsure} - {*dropped}
        store.stream("more").add({"v": "x"})
    assert check(path).as_dict()["clean"]


def test_every_reader_slot_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB's ReadersFull: a typed error that names the limit, and no harm to writers."""
    monkeypatch.setattr(env, "READERS_MAX", 4)
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.stream("a").add({"v": "x"}, id="1-0")
        generation = store._engine().index()
        held = []
        with pytest.raises(Exception, match="READERS_FULL"):  # noqa: PT012  as many as there are
            while True:
                held.append(generation.env.begin())
        for read in (lambda: ids(store), lambda: len(store.stream("a")), store.info):
            with pytest.raises(FileSystemError, match="4 threads and processes"):
                read()
        store.stream("a").add({"v": "x"}, id="2-0")
        assert store.stream("a").delete("1-0") == 1
        while held:
            held.pop().abort()
        assert ids(store) == ["2-0"]
    sound(path, ["2-0"])
