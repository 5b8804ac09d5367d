"""The files of a store that was shipped to a URI, read where they are.

Invariants: all that is read belongs to the one state that the manifest named; nothing is written.
What is read is not checked against the digest of its object, which would mean to read all of it:
every frame, hint and checkpoint has a checksum of its own, as in a store. Objects never change. One
that a newer state made needless is looked for again in the newest manifest, whose segment of that
number begins with the same bytes; if compaction took it away, SnapshotExpiredError is raised.
"""

from __future__ import annotations

import stat as modes
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from logstore.errors import ReadOnlyError, SnapshotExpiredError
from logstore.fs import LOCAL, File, FileStat, FileSystem
from logstore.log import file_names as names
from logstore.log.shipped import MANIFEST, Part, Place
from logstore.store_path import UriPath

READ_BYTES = 64 << 10
READ_AHEAD_MAX_BYTES = 8 << 20


class ShippedFile(File):
    """One of them; reads that follow each other fetch more at a time. Threads may share it."""

    def __init__(self, path: Path, part: Part, files: ShippedFiles) -> None:
        super().__init__(-1, path)
        self._part = part
        self._files = files
        self._source: Any = None
        self._kept = 0, bytes.fromhex(part.head)  # where what was read last begins
        self._ahead_bytes = READ_BYTES
        self._lock = threading.Lock()

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """As of a local file; SnapshotExpiredError if it is gone."""
        end = min(offset + size_bytes, self._part.size_bytes)
        if end <= offset:
            return b""
        begin, data = self._kept
        if begin <= offset and end <= begin + len(data):
            return data[offset - begin : end - begin]
        with self._lock:
            begin, data = self._kept
            follows = begin <= offset <= begin + len(data) + self._ahead_bytes
            grown = min(2 * self._ahead_bytes, READ_AHEAD_MAX_BYTES)
            self._ahead_bytes = grown if follows else READ_BYTES
            wanted = max(size_bytes, self._ahead_bytes)
            found = self._read(min(wanted, self._part.size_bytes - offset), offset)
            self._kept = offset, found
        return found[: end - offset]

    def _read(self, size_bytes: int, offset: int) -> bytes:
        place = self._files.place
        with place.errors(f"reading {self._part.path}"):
            for newest in (False, True):
                try:
                    if self._source is None or newest:
                        self._source = place.source(self._files.part(self._part, newest=newest))
                    data: bytes = self._source.read_at(size_bytes, offset)
                except FileNotFoundError:
                    continue
                return data
        raise self._files.gone(self._part.path)

    def stat(self) -> FileStat:
        """Its size; it has no place on a device."""
        return FileStat(0, 0, self._part.size_bytes, 0, modes.S_IFREG)

    def close(self) -> None:
        """Let go of it."""
        self._source = None


class ShippedFiles(FileSystem):
    """What stands at a URI, under paths of it (`UriPath`); all other paths are local ones.

    ``parts`` may be some of the files only.
    """

    def __init__(self, place: Place, uuid: str, parts: Iterable[Part]) -> None:
        self.place = place
        self.uuid = uuid
        self.parts = {part.path: part for part in parts}

    def part(self, known: Part, *, newest: bool) -> Part:
        """A file as it was, or as the newest state has it. SnapshotExpiredError if it has none."""
        if not newest:
            return known
        state = self.place.manifest()
        if state is not None and state.uuid == self.uuid:
            for part in state.parts:
                if part.path == known.path and part.size_bytes >= known.size_bytes:
                    return part
        raise self.gone(known.path)

    def gone(self, path: str) -> SnapshotExpiredError:
        """The error of a file that is not there any more."""
        return SnapshotExpiredError(
            f"{path} is not at {self.place.shown} any more: another ship published a newer state "
            "meanwhile, or objects were deleted by hand; open it, or load, again"
        )

    def _names(self, path: UriPath) -> set[str]:
        """What stands below a path, the first name of each."""
        below = f"{path.below}/" if path.below else ""
        found = [each.removeprefix(below) for each in self.parts if each.startswith(below)]
        return {each.partition("/")[0] for each in found}

    def open(
        self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        """ReadOnlyError for what is to be written at the URI."""
        if not isinstance(path, UriPath):
            return super().open(path, write=write, create=create, exclusive=exclusive)
        if write or create or exclusive:
            raise self._refused(path)
        part = self.parts.get(path.below)
        if part is None:
            raise FileNotFoundError(f"{path} was not shipped")
        return ShippedFile(path, part, self)

    def hold(self, path: Path) -> Path:
        """A URI needs no holding: what it showed is in the manifest."""
        return path if isinstance(path, UriPath) else super().hold(path)

    def rename(self, source: Path, target: Path) -> None:
        """ReadOnlyError at the URI."""
        if isinstance(source, UriPath):
            raise self._refused(source)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        """ReadOnlyError at the URI."""
        if isinstance(path, UriPath):
            raise self._refused(path)
        super().remove(path)

    def remove_tree(self, path: Path) -> None:
        """ReadOnlyError at the URI."""
        if isinstance(path, UriPath):
            raise self._refused(path)
        super().remove_tree(path)

    def make_directory(self, path: Path) -> None:
        """ReadOnlyError at the URI."""
        if isinstance(path, UriPath):
            raise self._refused(path)
        super().make_directory(path)

    @staticmethod
    def _refused(path: UriPath) -> ReadOnlyError:
        return ReadOnlyError(f"{path} is read only: change the store that is shipped there")

    def refuse_link(self, path: Path) -> None:
        """There are none."""
        if not isinstance(path, UriPath):
            super().refuse_link(path)

    def names(self, path: Path) -> list[str]:
        """As of a local directory."""
        return sorted(self._names(path)) if isinstance(path, UriPath) else super().names(path)

    def other_names(self, path: Path) -> set[str]:
        """As of a local directory."""
        if not isinstance(path, UriPath):
            return super().other_names(path)
        return {name for name in self._names(path) if (path / name).below in self.parts}

    def exists(self, path: Path) -> bool:
        """As of a local file."""
        if not isinstance(path, UriPath):
            return super().exists(path)
        return path.below in self.parts or bool(self._names(path))

    def stat(self, path: Path) -> FileStat:
        """Its size; it has no place on a device."""
        if not isinstance(path, UriPath):
            return super().stat(path)
        return self.open(path).stat()

    def tree_bytes(self, path: Path) -> int:
        """The bytes of all that was shipped."""
        if not isinstance(path, UriPath):
            return super().tree_bytes(path)
        return sum(part.size_bytes for part in self.parts.values())

    def writable(self, path: Path) -> bool:
        """Nothing is written at a URI."""
        return not isinstance(path, UriPath) and super().writable(path)


def is_shipped(path: Path) -> bool:
    """Whether a store was shipped to a path, by its name, or as a look there shows."""
    if isinstance(path, UriPath):
        return True
    return LOCAL.exists(path / MANIFEST) and not LOCAL.exists(path / names.STORE)
