"""Directories that become a store: a backup, a store made of one, and one made of a shipped store.

A backup is a copy of the log that is itself a store, taken without stopping anybody.

Crash order: all files are written and synced, then their directories, then STORE: a process that
dies leaves no store. A shipped store is fetched and checked whole before STORE is written.

Invariants: the directory is new or empty before, and so again if that fails; what fails takes back
STORE first, and only what it made itself: nobody else's file goes, whoever fills the same directory
at the same time. Of the log only bytes below the position that was published and durable at the
start are copied, and the copy is read again: of a log that is damaged no backup is made; the
maintenance lock keeps compaction from unlinking meanwhile. No index goes along: it is derived.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from logstore import format as fmt
from logstore.engine.commit.committer import Committer
from logstore.engine.maintenance import whole_log
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.shm.users_file import users_alone
from logstore.errors import (
    CorruptionError,
    DamagedStoreError,
    FileSystemError,
    OptionError,
    SnapshotExpiredError,
)
from logstore.fs import LOCAL, File, FileSystem
from logstore.log import file_names, storefile
from logstore.log.shipped import (
    MANIFEST,
    Manifest,
    Progress,
    ShippedPart,
    ShipTarget,
    is_derived,
)

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

    def drop(self, path: Path) -> None:
        """Remove a file that was made."""
        self._made.remove(path)
        self._fs.remove(path)

    def end(self, store: bytes) -> None:
        """All files are there: now it is a store, with this STORE."""
        for folder in (file_names.LOG, file_names.CHECKPOINTS):
            self._fs.sync_directory(self._target / folder)
        self._made.insert(0, self._target / file_names.STORE)
        self._fs.write_atomic(self._target / file_names.STORE, store)

    def take_back(self, folders: list[Path]) -> None:
        """Remove the files that were made, and these folders as far as they are empty."""
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
        why = f"{target} is not empty: give a new or an empty directory for {what}"
        if file_names.LOG in there and file_names.STORE not in there:
            why += " (a copy was begun there and did not end: remove what is left of it)"
        raise OptionError(why)
    folders = [*(target / name for name in FOLDERS), target]
    new = [folder for folder in folders if not fs.exists(folder)]
    made = Filling(fs, target)
    try:
        for name in FOLDERS:
            fs.make_directory(target / name)
        yield made
    except BaseException:
        with suppress(FileSystemError):  # the first error is the one that counts
            made.take_back(new)
        raise


COPY_BYTES = 4 << 20


def take(engine: Engine, committer: Committer, target: Path) -> None:
    """Copy a store into an empty or new directory; DamagedStoreError for a log that is damaged."""
    fs = engine.fs
    with filling(fs, target, "a backup") as made, maintenance_locks.alone(engine):
        moment = whole_log.now(engine, committer)
        for link, _, size in moment.pieces:
            copy = file_names.segment(target, link.number)
            _copy(fs, file_names.segment(engine.path, link.number), made.file(copy), size)
            file = fs.open(copy)
            try:
                whole_log.verify(engine, file, link)
            finally:
                file.close()
        for path in moment.others:
            _copy(fs, path, made.file(target / path.relative_to(engine.path)))
        made.end(fs.read(engine.path / file_names.STORE, fmt.STORE_BODY_MAX_BYTES * 2))


def restore(
    source: Path, target: Path, *, progress: Progress | None = None, fs: FileSystem = LOCAL
) -> None:
    """Make a store in an empty or new directory of a backup, which stays as it is.

    OptionError if the target holds something, or lies in the backup; StoreInUseError while a
    process has the backup itself open as a store; NotAStoreError if it is no backup.
    """
    if target.absolute().is_relative_to(source.absolute()):
        raise OptionError(f"{target} is in the backup itself: give a directory outside it")
    storefile.read(fs, source)
    users = users_alone(fs, source)
    try:
        copy_closed(fs, source, target, "the store", progress=progress)
    finally:
        if users is not None:
            users.close()


def copy_closed(
    fs: FileSystem, source: Path, target: Path, what: str, *, progress: Progress | None = None
) -> None:
    """Copy the files of a store that nobody has open, and that the caller keeps closed; ``what``
    the target becomes. OptionError if it holds something."""
    with filling(fs, target, what) as made:
        parts: list[tuple[Path, Path]] = []
        for numbers, name in (
            (file_names.segments, file_names.segment),
            (file_names.hints, file_names.hint),
            (file_names.checkpoints, file_names.checkpoint),
        ):
            parts += [(name(source, each), name(target, each)) for each in numbers(fs, source)]
        for place, (old, new) in enumerate(parts):
            if progress is not None:
                progress(place, len(parts))
            _copy(fs, old, made.file(new))
        made.end(fs.read(source / file_names.STORE, fmt.STORE_BODY_MAX_BYTES * 2))


def size_bytes(path: Path, fs: FileSystem = LOCAL) -> int:
    """Bytes that a backup takes on disk."""
    return fs.tree_bytes(path)


def _copy(fs: FileSystem, source: Path, writing: File, limit_bytes: int | None = None) -> None:
    with closing(writing), closing(fs.open(source)) as reading:
        left = reading.size_bytes() if limit_bytes is None else limit_bytes
        offset = 0
        while left:
            data = reading.pread(min(COPY_BYTES, left), offset)
            if not data:
                raise DamagedStoreError(f"{source} is shorter than it was: run 'logstore check'")
            writing.pwrite(data, offset)
            offset += len(data)
            left -= len(data)
        writing.sync()


def fetch(
    uri: str, target: Path, *, progress: Progress | None = None, fs: FileSystem = LOCAL
) -> Manifest:
    """Make a store in an empty or new directory of what was shipped to a URI.

    NotAStoreError if nothing was shipped there; CorruptionError, SnapshotExpiredError and
    FileSystemError as the objects are.
    """
    place = ShipTarget(uri)
    manifest = place.published()
    with filling(fs, target, "the store") as made:
        total = sum(part.size_bytes for part in manifest.parts)
        done, store = 0, b""
        for part in manifest.parts:
            if progress is not None:
                progress(done, total)
            if part.path == file_names.STORE:
                if part.size_bytes > fmt.STORE_BODY_MAX_BYTES * 2:
                    raise CorruptionError(
                        f"{MANIFEST} at {place.shown} is damaged: its STORE is huge"
                    )
                store = b"".join(place.chunks(part))
            else:
                _fetch_part(made, target / part.path, place, part)
            done += part.size_bytes
        if not store:
            raise CorruptionError(f"{MANIFEST} at {place.shown} is damaged: it names no STORE")
        made.end(store)
    return manifest


def _fetch_part(made: Filling, path: Path, place: ShipTarget, part: ShippedPart) -> None:
    """A file of a store; a hint or a checkpoint that is not as it was shipped is left out, for a
    store needs none."""
    try:
        _write(made.file(path), place.chunks(part))
    except (CorruptionError, SnapshotExpiredError) as exc:
        if not is_derived(part.path):
            raise
        log.warning("what is made of the log is left out: %s", exc)
        made.drop(path)


def _write(file: File, chunks: Iterator[bytes]) -> None:
    offset = 0
    with closing(file):
        for data in chunks:
            file.pwrite(data, offset)
            offset += len(data)
        file.sync()
