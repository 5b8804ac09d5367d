"""File systems whose k-th change fails, or is the last before the power goes."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

from logstore.errors import typed
from logstore.fs import File
from tests.support.watched_files import CHANGES, FileOperation, WatchedFileSystem


class FailingFileSystem(WatchedFileSystem):
    """Fails the k-th operation that changes something, once or from then on.

    ``only`` limits it to some operations; ``part`` of a failing write is still done, as the kernel
    may do it.
    """

    def __init__(
        self,
        code: int = errno.ENOSPC,
        at: int = 0,
        *,
        only: tuple[str, ...] = CHANGES,
        part: float = 0.0,
        forever: bool = False,
    ) -> None:
        self.code = code
        self.at = at  # 0: never
        self.only = only
        self.part = part
        self.forever = forever
        self.operations = 0
        self.failed: list[str] = []

    def before(self, operation: FileOperation) -> None:
        if operation.kind not in self.only:
            return
        self.operations += 1
        hit = self.operations >= self.at if self.forever else self.operations == self.at
        if not self.at or not hit:
            return
        self.failed.append(f"{operation.kind} {operation.path.name}")
        if operation.kind == "write":
            assert operation.file is not None
            size = int(len(operation.data) * self.part)
            File.pwrite(operation.file, operation.data[:size], operation.offset)
        error = OSError(self.code, os.strerror(self.code))
        raise typed(error, operation.path, "failing")


class PowerCut(BaseException):
    """The machine stopped here; nothing that comes after it reaches a file."""


@dataclass
class _Durable:
    """What a power cut cannot take: contents by inode, names by directory."""

    contents: dict[int, bytes] = field(default_factory=dict)
    names: dict[Path, dict[str, int]] = field(default_factory=dict)


class PowerCutFileSystem(WatchedFileSystem):
    """Cuts everything off at the k-th change, and knows what was durable then.

    ``clone`` makes a directory as the cut leaves it. What it leaves of the index is not looked at.
    """

    def __init__(self, root: Path, at: int = 0) -> None:
        self.root = root
        self.at = at
        self.changes = 0
        self.over = False
        self._durable = _Durable()
        self._kept: dict[int, int] = {}  # descriptors, so that inodes are not used again

    def before(self, operation: FileOperation) -> None:
        if operation.kind not in CHANGES:
            return
        self.changes += 1
        self.over = self.over or self.changes == self.at
        if self.over:
            raise PowerCut

    def after(self, operation: FileOperation) -> None:
        if operation.kind == "sync":
            self.synced(operation.path)
        elif operation.kind == "sync_directory":
            self.directory_synced(operation.path)

    def _inode(self, path: Path) -> int:
        found = path.stat().st_ino
        if found not in self._kept:
            self._kept[found] = os.open(path, os.O_RDONLY)
        return found

    def synced(self, path: Path) -> None:
        """A file is durable as it is."""
        if path.exists():
            self._durable.contents[self._inode(path)] = path.read_bytes()

    def directory_synced(self, path: Path) -> None:
        """The names in a directory are durable as they are."""
        self._durable.names[path] = {each.name: self._inode(each) for each in path.iterdir()}

    def close(self) -> None:
        """Let go of the files."""
        for fd in self._kept.values():
            os.close(fd)
        self._kept.clear()

    def clone(self, target: Path) -> None:
        """The directory after the power cut: all that is not durable is gone."""
        self._clone(self.root, target)

    def _clone(self, source: Path, target: Path) -> None:
        target.mkdir()
        for name, inode in sorted(self._durable.names.get(source, {}).items()):
            if name in {"index", "WAKE"}:
                continue  # LMDB's own; rebuilt, and a wake file does not live over a boot
            if (source / name).is_dir():
                self._clone(source / name, target / name)
            else:
                (target / name).write_bytes(self._durable.contents.get(inode, b""))
