"""A file system that tells of each operation on files, before it is done and after it.

Every harness that records, stops, counts or fails file operations is a subclass, and says only
what it does at an operation. Invariants: what is told is done by the real file system, unless
``before`` raises; a file keeps its number when it is renamed; LMDB's files, and the mapped words
of WAKE, do not come here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from logstore.api import opening
from logstore.fs import File, FileStat, FileSystem

F = TypeVar("F", bound=FileSystem)

# Operations that change what a crash leaves.
CHANGES = (
    "create", "write", "truncate", "sync", "rename", "remove", "make_directory", "sync_directory",
)  # fmt: skip
SYNCS = ("sync", "sync_directory")
SECOND_HALF = "write the rest of"  # of a write that is done in two


class FileOperation(NamedTuple):
    """One operation on a file or a name."""

    kind: str
    path: Path  # of a rename: the new name
    file: WatchedFile | None = None  # that is open; after "open" and "create" the new one
    source: Path | None = None  # of a rename: the old name
    offset: int = 0  # of a read or a write
    size_bytes: int = 0  # to read, or of the file after "truncate" and "allocate"
    data: bytes | bytearray = b""  # to write, or after a read what was read


class WatchedFile(File):
    """A file whose operations are told to its file system."""

    def __init__(self, file: File, files: WatchedFileSystem, *, write: bool) -> None:
        super().__init__(file.fd, file.path)
        file.fd = -1  # it is this one's now
        self.files = files
        self.write = write
        self.number = 0  # for a harness that numbers files

    def _told(self, operation: FileOperation, work: Callable[[], Any]) -> Any:
        return self.files.do(operation._replace(file=self), work)

    def pread(self, size_bytes: int, offset: int) -> bytes:
        operation = FileOperation("read", self.path, self, offset=offset, size_bytes=size_bytes)
        self.files.before(operation)
        data = super().pread(size_bytes, offset)
        self.files.after(operation._replace(data=data))
        return data

    def pwrite(self, data: bytes | bytearray, offset: int) -> None:
        half = len(data) // 2 if self.files.halves(self.path) else 0
        if half:
            self._write("write", data[:half], offset)
            self._write(SECOND_HALF, data[half:], offset + half)
        else:
            self._write("write", data, offset)

    def _write(self, kind: str, data: bytes | bytearray, offset: int) -> None:
        operation = FileOperation(kind, self.path, offset=offset, data=data)
        self._told(operation, lambda: File.pwrite(self, data, offset))

    def sync(self) -> None:
        self._told(FileOperation("sync", self.path), lambda: File.sync(self))

    def truncate(self, size_bytes: int) -> None:
        operation = FileOperation("truncate", self.path, size_bytes=size_bytes)
        self._told(operation, lambda: File.truncate(self, size_bytes))

    def allocate(self, size_bytes: int) -> None:
        operation = FileOperation("allocate", self.path, size_bytes=size_bytes)
        self._told(operation, lambda: File.allocate(self, size_bytes))

    def try_lock(self, *, exclusive: bool) -> bool:
        taken: bool = self._told(
            FileOperation("lock", self.path), lambda: File.try_lock(self, exclusive=exclusive)
        )
        return taken

    def unlock(self) -> None:
        self._told(FileOperation("unlock", self.path), lambda: File.unlock(self))


class WatchedFileSystem(FileSystem):
    """The real one; subclasses say what happens before and after an operation."""

    def before(self, operation: FileOperation) -> None:
        """It is about to be done; what is raised here is what it raises."""

    def after(self, operation: FileOperation) -> None:
        """It is done."""

    def leaves_out(self, operation: FileOperation) -> bool:
        """Whether it is told, and not done."""
        return False

    def halves(self, path: Path) -> bool:
        """Whether a write to this file is done in two, as the kernel may do it."""
        return False

    def do(self, operation: FileOperation, work: Callable[[], Any]) -> Any:
        """Do it, and tell of it before and after; a lock that another has is not taken."""
        self.before(operation)
        done = None if self.leaves_out(operation) else work()
        if done is not False:
            self.after(operation)
        return done

    def open(self, path: Path, *, write: bool = False, create: bool = False,
             exclusive: bool = False) -> File:  # fmt: skip
        made = (create or exclusive) and not path.exists()
        operation = FileOperation("create" if made else "open", path)
        self.before(operation)
        real = super().open(path, write=write, create=create, exclusive=exclusive)
        file = WatchedFile(real, self, write=write)
        self.after(operation._replace(file=file))
        return file

    def rename(self, source: Path, target: Path) -> None:
        operation = FileOperation("rename", target, source=source)
        self.do(operation, lambda: FileSystem.rename(self, source, target))

    def remove(self, path: Path) -> None:
        self.do(FileOperation("remove", path), lambda: FileSystem.remove(self, path))

    def remove_tree(self, path: Path) -> None:
        self.do(FileOperation("remove_tree", path), lambda: FileSystem.remove_tree(self, path))

    def make_directory(self, path: Path) -> None:
        """Each that is missing is told by itself, that above first."""
        for each in reversed([path, *path.parents]):
            if not each.exists():
                self._make_one(each)
        super().make_directory(path)

    def _make_one(self, path: Path) -> None:
        operation = FileOperation("make_directory", path)
        self.do(operation, lambda: FileSystem.make_directory(self, path))

    def sync_directory(self, path: Path) -> None:
        operation = FileOperation("sync_directory", path)
        self.do(operation, lambda: FileSystem.sync_directory(self, path))

    def names(self, path: Path) -> list[str]:
        found: list[str] = self.do(
            FileOperation("list", path), lambda: FileSystem.names(self, path)
        )
        return found

    def stat(self, path: Path) -> FileStat:
        found: FileStat = self.do(
            FileOperation("look at", path), lambda: FileSystem.stat(self, path)
        )
        return found


class OperationLog(WatchedFileSystem):
    """Keeps what was asked for, in order, without the bytes."""

    def __init__(self) -> None:
        self.operations: list[FileOperation] = []

    def before(self, operation: FileOperation) -> None:
        self.operations.append(operation._replace(file=None, data=b""))

    def of(self, *kinds: str) -> list[FileOperation]:
        """Those of some kinds."""
        return [each for each in self.operations if each.kind in kinds]


class DurableOrder(OperationLog):
    """In what order names and bytes are made durable."""

    @property
    def done(self) -> list[tuple[str, str]]:
        """What is done, and the name of the file or directory."""
        kinds = {"sync": "sync", "rename": "rename", "sync_directory": "directory"}
        return [(kinds[each.kind], each.path.name) for each in self.of(*kinds)]


@contextmanager
def in_place(files: F) -> Iterator[F]:
    """Stores that are opened meanwhile use this file system."""
    before = opening.FILES[0]
    opening.FILES[0] = files
    try:
        yield files
    finally:
        opening.FILES[0] = before
