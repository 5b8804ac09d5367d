"""Paths of what was shipped to a URI: shown without its secrets, and never a local file.

Invariant: only a file system of shipped files (`logstore.log.shipped`) opens one; to all
others it is a name under which there is nothing.
"""

from __future__ import annotations

import os
from pathlib import Path, PosixPath
from typing import Any, Self


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
