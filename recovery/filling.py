"""A directory that becomes a store: new or empty before, and so again if that fails.

Crash order: all files are written and synced, then their directories, then STORE: a process that
dies leaves no store. Invariant: what fails takes back STORE first, and only what it made itself:
nobody else's file goes, whoever fills the same directory at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from logstore.errors import FileSystemError, OptionError
from logstore.fs import File, FileSystem
from logstore.log import file_names

FOLDERS = (file_names.LOG, file_names.CHECKPOINTS, file_names.PINS, file_names.INDEX)


class Filling:
    """A directory that is being filled."""

    def __init__(self, fs: FileSystem, target: Path) -> None:
        self._fs, self._target = fs, target
        self._made: list[Path] = []

    def file(self, path: Path) -> File:
        """Make a file in it, which the caller writes and syncs."""
        file = self._fs.open_new(path)
        self._made.append(path)
        return file

    def end(self, store: bytes) -> None:
        """All files are there: now it is a store, with this STORE."""
        for folder in (file_names.LOG, file_names.CHECKPOINTS):
            self._fs.sync_directory(self._target / folder)
        self._made.insert(0, self._target / file_names.STORE)
        self._fs.write_atomic(self._target / file_names.STORE, store)

    def take_back(self, folders: list[Path]) -> None:
        """Remove what was made, and these folders where nothing else is in them."""
        for path in self._made:
            self._fs.remove(path)
        for folder in folders:
            if self._fs.exists(folder) and not self._fs.names(folder):
                self._fs.remove_tree(folder)


@contextmanager
def filling(fs: FileSystem, target: Path, what: str) -> Iterator[Filling]:
    """Make the folders of a store, and let the caller fill them.

    Args:
        target: a new or an empty directory.
        what: it becomes, for the message.

    Raises:
        OptionError: the directory holds something.
    """
    there = fs.names(target)
    if there:
        told = f"{target} is not empty: give a new or an empty directory for {what}"
        if file_names.LOG in there and file_names.STORE not in there:
            told += " (a copy was begun there and did not end: remove what is left of it)"
        raise OptionError(told)
    folders = [*(target / name for name in FOLDERS), target]
    new = [folder for folder in folders if not fs.exists(folder)]
    made = Filling(fs, target)
    try:
        for name in FOLDERS:
            fs.make_directory(target / name)
        yield made
    except BaseException:
        with suppress(FileSystemError):  # what is told is what happened first
            made.take_back(new)
        raise
