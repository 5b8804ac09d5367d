"""A layer below the file-system layer: the k-th system call, or call of LMDB, fails as asked.

``logstore.fs`` gets modules in place of ``os``, ``fcntl``, ``mmap``, ``shutil`` and ``tempfile``
that count and fail, so that also its own way from an OSError to a typed error is under test; the
index gets an ``lmdb`` whose environments do. All that does not fail is the real thing, but for
syncs, which are left out: nothing is cut here. Knows nothing of what the calls are for.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import lmdb
import pytest

from logstore import fs
from logstore.index import env

READ = frozenset({"open", "read", "look", "list", "map", "lock"})


class Kind(NamedTuple):
    """A way to fail: an error of the system, or of LMDB; ``part`` of a write is done before it."""

    name: str
    code: int = 0
    error: str = ""  # of LMDB, by its name
    part: float = 0.0

    def raised(self, what: str) -> Exception:
        """What the call raises."""
        if self.error:
            text = os.strerror(self.code) if self.code else self.error
            made: Exception = getattr(lmdb, self.error)(f"mdb_txn_{what}: {text}")
            return made
        return OSError(self.code, os.strerror(self.code))


def _kinds(*codes: int) -> tuple[Kind, ...]:
    return tuple(Kind(errno.errorcode[code], code) for code in codes)


KINDS: dict[str, tuple[Kind, ...]] = {
    "open": _kinds(errno.EIO, errno.EMFILE, errno.EACCES),
    "create": _kinds(errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENFILE),
    "read": _kinds(errno.EIO),
    "look": _kinds(errno.EIO, errno.EACCES),
    "list": _kinds(errno.EIO, errno.EMFILE),
    "map": _kinds(errno.ENOMEM, errno.EIO),
    "lock": _kinds(errno.EIO),
    "write": (
        *_kinds(errno.ENOSPC, errno.EIO, errno.EDQUOT),
        Kind("half written, ENOSPC", errno.ENOSPC, part=0.5),
        Kind("half written, EIO", errno.EIO, part=0.5),
        Kind("short write", part=0.5),
    ),
    "sync": _kinds(errno.EIO, errno.ENOSPC),
    "sync a directory": _kinds(errno.EIO),
    "cut": _kinds(errno.EIO, errno.ENOSPC),
    "allocate": _kinds(errno.ENOSPC, errno.EIO),
    "rename": _kinds(errno.ENOSPC, errno.EROFS, errno.EIO),
    "remove": _kinds(errno.EROFS, errno.EIO, errno.EACCES),
    "make a directory": _kinds(errno.ENOSPC, errno.EACCES, errno.EROFS),
    "close": _kinds(errno.EIO),
    "index: open": (
        Kind("LMDB: ENOSPC", error="DiskError"),
        Kind("LMDB: EMFILE", errno.EMFILE, "Error"),
    ),
    "index: begin reading": (Kind("LMDB: readers full", error="ReadersFullError"),),
    "index: begin": (Kind("LMDB: EIO", errno.EIO, "Error"),),
    "index: put": (
        Kind("LMDB: map full", error="MapFullError"),
        Kind("LMDB: ENOSPC", error="DiskError"),
    ),
    "index: commit": (
        Kind("LMDB: ENOSPC", error="DiskError"),
        Kind("LMDB: EDQUOT", errno.EDQUOT, "Error"),
        Kind("LMDB: short write", errno.EIO, "Error"),
    ),
    "index: sync": (Kind("LMDB: EIO", errno.EIO, "Error"),),
}
FULL = Kind("ENOSPC", errno.ENOSPC)
FULL_INDEX = Kind("LMDB: ENOSPC", error="DiskError")
NEED_SPACE = (
    "create", "write", "allocate", "rename", "make a directory", "index: put", "index: commit"
)  # fmt: skip


class Hit(NamedTuple):
    """A call that failed."""

    call: str
    where: str
    kind: str


class Faults:
    """Counts what may fail, and says which does: the ``at``-th, and all behind it that need space
    if the disk is ``full`` from then on.
    """

    def __init__(self) -> None:
        self.met: list[str] = []  # by what they do, in order
        self.counting = False
        self.only = ""  # the one kind of call that is counted
        self.at = 0  # 0: never
        self.nth = 0  # of the kinds in which such a call may fail
        self.full = False
        self.hits: list[Hit] = []

    def fault(self, what: str, where: object) -> Kind | None:
        """How a call is to fail, if it is."""
        if not self.counting or what != (self.only or what):
            return None
        self.met.append(what)
        if not self.at or len(self.met) < self.at:
            return None
        if self.full:
            if what not in NEED_SPACE:
                return None
            self.hits.append(Hit(what, str(where), "full"))
            return FULL_INDEX if what.startswith("index") else FULL
        if len(self.met) > self.at:
            return None
        kinds = KINDS[what]
        kind = kinds[self.nth % len(kinds)]
        self.hits.append(Hit(what, str(where), kind.name))
        return kind

    def meet(self, what: str, where: object) -> None:
        """Count a call; raise what it fails with, if it does."""
        kind = self.fault(what, where)
        if kind is not None:
            raise kind.raised(what.removeprefix("index: "))


class _Wrapped:
    """A module or an object with some functions of our own."""

    def __init__(self, real: Any, faults: Faults) -> None:
        self._real = real
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Os(_Wrapped):
    """System calls on files."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(os, faults)
        self._names: dict[int, str] = {}

    def open(self, path: str | Path, flags: int, mode: int = 0o777) -> int:
        fresh = flags & os.O_CREAT and not os.path.lexists(path)
        self._faults.meet("create" if fresh else "open", Path(path).name)
        fd = os.open(path, flags, mode)
        self._names[fd] = Path(path).name
        return fd

    def close(self, fd: int) -> None:
        os.close(fd)  # the descriptor is gone all the same, as in Linux
        self._faults.meet("close", self._names.get(fd))

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self._faults.meet("read", self._names.get(fd))
        return os.pread(fd, size, offset)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        kind = self._faults.fault("write", self._names.get(fd))
        if kind is None:
            return os.pwrite(fd, data, offset)
        done = os.pwrite(fd, memoryview(data)[: int(len(data) * kind.part)], offset)
        if kind.code:
            raise kind.raised("write")
        return done

    def fdatasync(self, fd: int) -> None:
        self._faults.meet("sync", self._names.get(fd))

    def fsync(self, fd: int) -> None:
        self._faults.meet("sync a directory", self._names.get(fd))

    def ftruncate(self, fd: int, size: int) -> None:
        self._faults.meet("cut", self._names.get(fd))
        os.ftruncate(fd, size)

    def posix_fallocate(self, fd: int, offset: int, size: int) -> None:
        self._faults.meet("allocate", self._names.get(fd))
        os.posix_fallocate(fd, offset, size)

    def fstat(self, fd: int) -> os.stat_result:
        self._faults.meet("look", self._names.get(fd))
        return os.fstat(fd)

    def stat(self, path: str | Path) -> os.stat_result:
        self._faults.meet("look", Path(path).name)
        return os.stat(path)

    def lstat(self, path: str | Path) -> os.stat_result:
        self._faults.meet("look", Path(path).name)
        return os.lstat(path)

    def listdir(self, path: str | Path) -> list[str]:
        self._faults.meet("list", Path(path).name)
        return os.listdir(path)

    def replace(self, source: str | Path, target: str | Path) -> None:
        self._faults.meet("rename", Path(target).name)
        os.replace(source, target)

    def unlink(self, path: str | Path) -> None:
        self._faults.meet("remove", Path(path).name)
        os.unlink(path)

    def makedirs(self, path: str | Path, *, exist_ok: bool = False) -> None:
        if not Path(path).is_dir():
            self._faults.meet("make a directory", Path(path).name)
        os.makedirs(path, exist_ok=exist_ok)


class _Fcntl(_Wrapped):
    def flock(self, fd: int, how: int) -> None:
        self._faults.meet("lock", "")
        fcntl.flock(fd, how)


class _Mmap(_Wrapped):
    def mmap(self, fd: int, size: int, **options: Any) -> mmap.mmap:
        self._faults.meet("map", "")
        return mmap.mmap(fd, size, **options)


class _Shutil(_Wrapped):
    def rmtree(self, path: str) -> None:
        if os.path.exists(path):
            self._faults.meet("remove", os.path.basename(path))
        shutil.rmtree(path)


class _Tempfile(_Wrapped):
    def mkdtemp(self, prefix: str) -> str:
        self._faults.meet("make a directory", prefix)
        return tempfile.mkdtemp(prefix=prefix)


class _Transaction:
    """A write transaction whose first put, or commit, may fail."""

    def __init__(self, real: Any, faults: Faults) -> None:
        self.real = real
        self._faults = faults
        self._wrote = self._over = False

    def __getattr__(self, name: str) -> Any:
        if name in {"put", "delete", "replace", "pop"} and not self._wrote:
            self._wrote = True
            self._faults.meet("index: put", "")
        return getattr(self.real, name)

    def commit(self) -> None:
        self._over = True
        try:
            self._faults.meet("index: commit", "")
        except lmdb.Error:
            self.real.abort()
            raise
        self.real.commit()

    def abort(self) -> None:
        self._over = True
        self.real.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self.abort()
        elif not self._over:
            self.commit()


class _Environment(_Wrapped):
    def begin(self, *, write: bool = False) -> Any:
        self._faults.meet("index: begin" if write else "index: begin reading", "")
        return _Transaction(self._real.begin(write=True), self._faults) if write else (
            self._real.begin()
        )  # fmt: skip

    def open_db(self, name: bytes | None, txn: Any = None, **options: Any) -> Any:
        real = txn.real if isinstance(txn, _Transaction) else txn
        return self._real.open_db(name, txn=real, **options)

    def sync(self, force: bool) -> None:
        self._faults.meet("index: sync", "")


class _Lmdb(_Wrapped):
    def open(self, path: str, **options: Any) -> _Environment:
        self._faults.meet("index: open", Path(path).name)
        return _Environment(lmdb.open(path, **options), self._faults)


@contextmanager
def faulty() -> Iterator[Faults]:
    """Everything that a store does goes through a layer that fails on demand."""
    faults = Faults()
    places: list[tuple[Any, str, Any]] = [
        (fs, "os", _Os(faults)), (fs, "fcntl", _Fcntl(fcntl, faults)),
        (fs, "mmap", _Mmap(mmap, faults)), (env, "lmdb", _Lmdb(lmdb, faults)),
    ]  # fmt: skip
    # Modules that ``fs`` loads where it needs them.
    late = {"shutil": _Shutil(shutil, faults), "tempfile": _Tempfile(tempfile, faults)}
    before = [getattr(owner, name) for owner, name, _ in places]
    for owner, name, twin in places:
        setattr(owner, name, twin)
    try:
        with pytest.MonkeyPatch.context() as patched:
            for name, twin in late.items():
                patched.setitem(sys.modules, name, twin)
            yield faults
    finally:
        for (owner, name, _), real in zip(places, before, strict=True):
            setattr(owner, name, real)
