"""Paths of stores: through a directory that is open, or of what was shipped to a URI.

A store is its directory, not the name that it once had. Invariants: a path is shown as the user
named it, and reached through the descriptor of the directory. Where the system has no paths that
begin at a descriptor (no /proc), it is reached by its name, and ``check`` tells whether that name
still leads there. A URI is shown without its secrets and is never a local file: only the file
system of shipped files (`logstore.log.shipped`) opens one. Opens nothing: ``fs`` does.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path, PosixPath
from typing import Any, Self

from logstore.errors import StoreGoneError

PUT_BACK = "put the directory back or restore a backup, and open it again"
_DESCRIPTORS = "/proc/self/fd"  # where the system lets a path begin at an open directory


# -- through an open directory ----------------------------------------------------------------
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


# -- of a URI ---------------------------------------------------------------------------------
def is_uri(path: str | os.PathLike[str]) -> bool:
    """Whether it is a URI, and no local path."""
    return isinstance(path, UriPath) or "://" in os.fspath(path)


def shown(uri: str) -> str:
    """A URI without the secrets that it may have: user, password and query."""
    if "://" not in uri:
        return uri
    from urllib.parse import urlsplit, urlunsplit  # most programs have no URI

    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri.partition("://")[0] + "://..."
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def joined(uri: str, name: str) -> str:
    """The URI of something in the directory at a URI, or in a local one."""
    if "://" not in uri:
        return os.path.join(uri, name)
    from urllib.parse import urlsplit, urlunsplit

    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))


class UriPath(PosixPath):
    """A store at a URI, or a file of it: ``below`` is its path in the store."""

    uri = ""
    below = ""

    @classmethod
    def of(cls, uri: str, below: str = "") -> Self:
        """The path of a store that was shipped to a URI."""
        made = cls(shown(uri).replace("://", ":/", 1), below)
        made.uri, made.below = uri, below
        return made

    def __truediv__(self, key: str | os.PathLike[str]) -> Self:
        return type(self).of(self.uri, os.path.join(self.below, os.fspath(key)))

    def with_name(self, name: str) -> Self:
        """The same with another last part."""
        return type(self).of(self.uri, os.path.join(os.path.dirname(self.below), name))

    @property
    def parent(self) -> Self:
        """The directory it is in; the store itself has no other."""
        return type(self).of(self.uri, os.path.dirname(self.below))

    def absolute(self) -> Self:
        """The same: it does not depend on a directory."""
        return self

    def __str__(self) -> str:
        return f"{shown(self.uri)}/{self.below}" if self.below else shown(self.uri)

    def __fspath__(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"UriPath({str(self)!r})"

    def __reduce__(self) -> Any:
        return type(self).of, (self.uri, self.below)


def path_of(given: str | os.PathLike[str]) -> Path:
    """What a user gave, as a path: local, or of a URI."""
    if isinstance(given, Path):
        return given
    text = os.fspath(given)
    if not is_uri(text):
        return Path(text)
    if not text.startswith("file:"):
        return UriPath.of(text)
    from urllib.parse import unquote, urlsplit

    return Path(unquote(urlsplit(text).path))
