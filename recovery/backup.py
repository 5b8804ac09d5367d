"""A backup: a copy of the log that is itself a store, taken without stopping anybody; and a store
made of one.

Crash order: as ``filling`` has it. Invariants: only bytes below the position that was published and
durable at the start are copied, and the copy is read again: of a log that is damaged no backup is
made; the maintenance lock keeps compaction from unlinking meanwhile. No index goes along: it is
derived.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from logstore import format as fmt
from logstore.engine.commit.committer import Committer
from logstore.engine.maintenance import whole_log
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.users_file import users_alone
from logstore.errors import DamagedStoreError, OptionError
from logstore.fs import LOCAL, File, FileSystem
from logstore.log import file_names, storefile
from logstore.recovery.filling import filling

COPY_BYTES = 4 << 20
Progress = Callable[[int, int], None]


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
        with filling(fs, target, "the store") as made:
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
    finally:
        if users is not None:
            users.close()


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
