"""File systems that fail or crash, put in place of the real one by ``logstore.opening.FILES``.

They subclass the real one, so that everything that does not fail is the real thing. LMDB's own
files are outside: what a crash leaves of the index is not looked at, it is rebuilt.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from logstore.api import opening
from logstore.errors import typed
from logstore.fs import File, FileSystem

BLOCK = 512


class Cut(BaseException):
    """The machine stopped here; nothing that comes after it reaches a file."""


@contextmanager
def in_place(twin: FileSystem) -> Iterator[FileSystem]:
    """Open stores through a twin."""
    before = opening.FILES[0]
    opening.FILES[0] = twin
    try:
        yield twin
    finally:
        opening.FILES[0] = before


class TwinFile(File):
    """A file whose changing operations are announced to its file system."""

    def __init__(self, fd: int, path: Path, twin: TwinFileSystem) -> None:
        super().__init__(fd, path)
        self.twin = twin

    def pread(self, size_bytes: int, offset: int) -> bytes:
        self.twin.reads.append((self.path.name, size_bytes, offset))
        return super().pread(size_bytes, offset)

    def pwrite(self, data: bytes | bytearray, offset: int) -> None:
        part = self.twin.before("write", self.path)
        if part is not None:
            super().pwrite(data[: int(len(data) * part)], offset)
            self.twin.wrote(self.path)
            self.twin.fail(self.path)
        super().pwrite(data, offset)
        self.twin.wrote(self.path)

    def sync(self) -> None:
        self.twin.counted += 1
        if self.twin.before("sync", self.path) is not None:
            self.twin.fail(self.path)
        super().sync()
        self.twin.synced(self.path)

    def truncate(self, size_bytes: int) -> None:
        if self.twin.before("truncate", self.path) is not None:
            self.twin.fail(self.path)
        super().truncate(size_bytes)
        self.twin.wrote(self.path)


class TwinFileSystem(FileSystem):
    """Tells of every operation; subclasses fail or remember."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, int, int]] = []  # name, size, offset
        self.counted = 0  # syncs

    def before(self, operation: str, path: Path) -> float | None:
        """None to go on; else the part of a write that is still done before ``fail`` is called."""
        return None

    def fail(self, path: Path) -> None:
        """Raise what a failing operation raises."""

    def wrote(self, path: Path) -> None:
        """Bytes of a file changed."""

    def synced(self, path: Path) -> None:
        """A file is durable as it is."""

    def named(self, path: Path) -> None:
        """A name in a directory changed."""

    def directory_synced(self, path: Path) -> None:
        """The names in a directory are durable as they are."""

    def open(self, path: Path, *, write: bool = False, create: bool = False,
             exclusive: bool = False) -> File:  # fmt: skip
        fresh = (create or exclusive) and not path.exists()
        if fresh and self.before("create", path) is not None:
            self.fail(path)
        file = super().open(path, write=write, create=create, exclusive=exclusive)
        fd, file.fd = file.fd, -1
        if fresh:
            self.named(path)
            self.wrote(path)
        return TwinFile(fd, path, self)

    def rename(self, source: Path, target: Path) -> None:
        if self.before("rename", target) is not None:
            self.fail(target)
        super().rename(source, target)
        self.named(source)
        self.named(target)

    def remove(self, path: Path) -> None:
        if self.before("remove", path) is not None:
            self.fail(path)
        super().remove(path)
        self.named(path)

    def make_directory(self, path: Path) -> None:
        if path.exists():
            return
        if self.before("make_directory", path) is not None:
            self.fail(path)
        super().make_directory(path)
        self.named(path)

    def sync_directory(self, path: Path) -> None:
        if self.before("sync_directory", path) is not None:
            self.fail(path)
        super().sync_directory(path)
        self.directory_synced(path)


class FailingFileSystem(TwinFileSystem):
    """Fails the k-th operation that changes something, once or from then on.

    ``only`` limits it to some operations; ``part`` of a failing write is still done, as the kernel
    may do it.
    """

    def __init__(
        self, code: int = errno.ENOSPC, at: int = 0, *, only: tuple[str, ...] = (),
        part: float = 0.0, forever: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.code = code
        self.at = at  # 0: never
        self.only = only
        self.part = part
        self.forever = forever
        self.operations = 0
        self.failed: list[str] = []

    def before(self, operation: str, path: Path) -> float | None:
        if self.only and operation not in self.only:
            return None
        self.operations += 1
        hit = self.operations >= self.at if self.forever else self.operations == self.at
        if not self.at or not hit:
            return None
        self.failed.append(f"{operation} {path.name}")
        return self.part

    def fail(self, path: Path) -> None:
        raise typed(OSError(self.code, os.strerror(self.code)), path, "failing")


@dataclass
class _Durable:
    """What a power cut cannot take: contents by inode, names by directory."""

    contents: dict[int, bytes] = field(default_factory=dict)
    names: dict[Path, dict[str, int]] = field(default_factory=dict)


class CrashFileSystem(TwinFileSystem):
    """Cuts everything off at the k-th operation, and knows what was durable then.

    ``clone`` makes a directory as a power cut may leave it.
    """

    def __init__(self, root: Path, at: int = 0, part: float = 0.0) -> None:
        super().__init__()
        self.root = root
        self.at = at
        self.part = part
        self.operations = 0
        self.over = False
        self._durable = _Durable()
        self._kept: dict[int, int] = {}  # descriptors, so that inodes are not used again

    def before(self, operation: str, path: Path) -> float | None:
        if self.over:
            raise Cut
        self.operations += 1
        if self.operations != self.at:
            return None
        self.over = True
        return self.part

    def fail(self, path: Path) -> None:
        raise Cut

    def _inode(self, path: Path) -> int:
        found = path.stat().st_ino
        if found not in self._kept:
            self._kept[found] = os.open(path, os.O_RDONLY)
        return found

    def synced(self, path: Path) -> None:
        if path.exists():
            self._durable.contents[self._inode(path)] = path.read_bytes()

    def directory_synced(self, path: Path) -> None:
        self._durable.names[path] = {each.name: self._inode(each) for each in path.iterdir()}

    def close(self) -> None:
        """Let go of the files."""
        for fd in self._kept.values():
            os.close(fd)
        self._kept.clear()

    def clone(self, target: Path, rng: random.Random | None = None) -> None:
        """The directory after a power cut: without ``rng`` all that is not durable is gone, with it
        a random part of blocks and names is kept, and lost blocks are zero, 0xFF or as before.
        """
        target.mkdir()
        self._clone(self.root, target, rng)

    def _clone(self, source: Path, target: Path, rng: random.Random | None) -> None:
        now = {each.name: self._inode(each) for each in source.iterdir()} if source.exists() else {}
        then = self._durable.names.get(source, {})
        for name in sorted({*now, *then}):
            inode = then.get(name)
            if now.get(name) != inode and rng is not None and rng.random() < 0.5:
                inode = now.get(name)
            path = source / name
            if name in {"index", "WAKE"}:
                continue  # LMDB's own; rebuilt, and a wake file does not live over a boot
            if path.is_dir():
                # a directory that was made and not synced: its files are lost with it
                if inode is not None:
                    (target / name).mkdir()
                    self._clone(path, target / name, rng)
            elif inode is not None:
                (target / name).write_bytes(self._content(inode, rng))

    def _content(self, inode: int, rng: random.Random | None) -> bytes:
        durable = self._durable.contents.get(inode, b"")
        if rng is None:
            return durable
        size = os.fstat(self._kept[inode]).st_size
        current = os.pread(self._kept[inode], size, 0)
        upto = rng.choice((len(current), len(durable), rng.randint(0, len(current))))
        out = bytearray(current[:upto])
        for at in range(0, len(out), BLOCK):
            before = durable[at : at + BLOCK]
            if bytes(out[at : at + BLOCK]) == before or rng.random() < 0.6:
                continue
            size = len(out[at : at + BLOCK])
            filler = rng.choice((b"\x00", b"\xff")) * size
            out[at : at + size] = (before + filler[len(before) :])[:size]
        kept = bytes(out)
        return kept if len(kept) >= len(durable) else kept + durable[len(kept) :]


def copied(source: Path, target: Path) -> Path:
    """A copy of a directory."""
    shutil.copytree(source, target)
    return target
