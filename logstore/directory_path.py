"""Paths that begin at an open directory: a store is its directory, not the name that it once had.

Invariants: a path is shown as the user named it, and reached through the descriptor; where the
system has no paths that begin at one (no /proc), it is reached by its name, and ``check`` tells
whether that name still leads there. Opens nothing: ``fs`` does.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path, PosixPath
from typing import Self

from logstore.errors import StoreGoneError

PUT_BACK = "put the directory back or restore a backup, and open it again"
_DESCRIPTORS = "/proc/self/fd"  # where the system lets a path begin at an open directory


def gone(path: Path, how: str = "was removed", then: str = PUT_BACK) -> StoreGoneError:
    """The error of a store whose directory is not what it was."""
    return StoreGoneError(
        f"the directory of the store, {path}, {how} while it was open: nothing more is written to "
        f"it; close the store in every process, {then}"
    )


class Directory:
    """A store's directory, open: what is reached through it lies in it, whatever its name is now.

    Where the system has no paths that begin at a descriptor, it is reached by its name, and
    ``check`` tells whether that is still the one that was opened. Closed by its last user.
    """

    identity = 0, 0  # of nothing, if it could not be looked at

    def __init__(self, path: Path, fd: int) -> None:
        self._fd = fd
        self.path = path
        try:
            found = os.fstat(self._fd)
        except OSError:
            os.close(fd)
            raise
        self.identity = found.st_dev, found.st_ino
        # What paths for the system begin with: the descriptor, or else the name.
        self.through = f"{_DESCRIPTORS}/{self._fd}"
        if self._named(f"{self.through}/.") != self.identity:
            self.through = str(path)

    @staticmethod
    def _named(name: str | os.PathLike[str]) -> tuple[int, int]:
        try:
            found = os.stat(name)
        except OSError:
            return 0, 0
        return found.st_dev, found.st_ino

    def removed(self) -> bool:
        """Whether it has no name any more; False where the system does not tell."""
        try:
            return os.fstat(self._fd).st_nlink == 0
        except OSError:
            return False

    def usable(self) -> bool:
        """Whether the descriptor is still ours: some programs close all they have after a fork."""
        try:
            found = os.fstat(self._fd)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity

    def check(self) -> None:
        """StoreGoneError if it was removed, or cannot be reached any more.

        OSError if it cannot be looked at now, which says nothing of where it is.
        """
        try:
            found = os.fstat(self._fd)
        except OSError as exc:
            if exc.errno != errno.EBADF:
                raise
            raise gone(self.path) from None
        if (found.st_dev, found.st_ino) != self.identity or not found.st_nlink:
            raise gone(self.path)
        if self.through != str(self.path):
            return
        try:
            found = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            raise gone(self.path, "was renamed or replaced") from None
        if (found.st_dev, found.st_ino) != self.identity:
            raise gone(self.path, "was renamed or replaced")

    def __del__(self) -> None:
        if self.usable():
            os.close(self._fd)


class DirectoryPath(PosixPath):
    """A path in a store that is reached through the store's open directory; shown as the user
    named it. What ``/``, ``with_name`` and ``parent`` make of it is reached so, too.
    """

    directory: Directory | None = None
    below = ""
    system = ""  # the path for the system

    def placed(self, directory: Directory | None, below: str) -> Self:
        """Say through which directory it is reached, and as what in it."""
        self.directory, self.below = directory, below
        if directory is not None:
            self.system = f"{directory.through}{below or '/.'}"
        return self

    def __truediv__(self, key: str | os.PathLike[str]) -> Self:
        below = f"{self.below}/{os.fspath(key)}"
        return super().__truediv__(key).placed(self.directory, below)

    def with_name(self, name: str) -> Self:
        """The same with another last part."""
        below = f"{self.below.rpartition('/')[0]}/{name}"
        found = super().with_name(name)
        return found.placed(self.directory, below) if self.below else found

    @property
    def parent(self) -> Self:
        """The directory it is in; of the store's own, one that is reached by its name."""
        found = super().parent
        return found.placed(self.directory, self.below.rpartition("/")[0]) if self.below else found
