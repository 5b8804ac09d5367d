"""Is what this process holds open still the store that lies in its directory?

The store is reached through its open directory, so a directory that was renamed is still the same
store. But it may have been removed, or parts of it taken away or replaced: then nothing more may be
acknowledged, for no other process will ever see it. Where the system has no paths that begin at a
descriptor, the directory is reached by its name, and a renamed one counts as gone, too.

So are the files that the processes of a store share, LOCK, USERS and WAKE: who opens the store next
does not join through a copy of one (``recovery.store_opening``), and who has it open stops here.

Invariants: once a store was found gone it stays so in this process; looked at at most every
``LOOK_NS`` by commits, every poll by the flusher, and before what makes, moves or removes files by
name: rolls, rebuilds, checkpoints, compaction, closing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from logstore.engine.shm.commit_words import SIZE_BYTES
from logstore.errors import NotAStoreError, StoreGoneError
from logstore.log import file_names, storefile
from logstore.store_path import PUT_BACK, gone

if TYPE_CHECKING:
    from pathlib import Path

    from logstore.engine.shm.commit_words import Wake
    from logstore.engine.shm.users_file import Users
    from logstore.engine.shm.writer_lock import WriterLock
    from logstore.fs import File, FileSystem

LOOK_NS = 200_000_000
_SHARED = "and open it again: what was acknowledged is there"


class HeldStore(Protocol):
    """What a process holds open of a store: an engine, which looks at itself."""

    fs: FileSystem
    path: Path
    uuid: bytes
    lock: WriterLock
    users: Users | None
    wake: Wake
    gone: str
    looked_ns: int

    def check_open(self) -> None:
        """Raise if it is closed, or was found gone."""
        ...

    def active_file(self, number: int) -> File:
        """The active segment, open for writing."""
        ...


def check(engine: HeldStore) -> None:
    """StoreGoneError if the directory was removed, or a file that processes share is another one by
    now: a process that opened the store with that one would not know of us, nor we of it.
    """
    try:
        engine.fs.check_held(engine.path)
    except StoreGoneError as exc:
        engine.gone = exc.message
        raise
    engine.check_open()
    if engine.users is not None:
        wake = engine.path / file_names.WAKE
        _same(engine, engine.wake.file_id, wake, _SHARED)
        if engine.fs.size_bytes(wake) != SIZE_BYTES:  # it was cut
            raise _gone(engine, wake, _SHARED)
        _same(engine, engine.lock.file.stat()[:2], engine.path / file_names.LOCK, _SHARED)
        _same(engine, engine.users.file.stat()[:2], engine.path / file_names.USERS, _SHARED)


def check_whole(engine: HeldStore) -> None:
    """As ``check``, and STORE must be of this store: before files are made, moved or removed."""
    check(engine)
    try:
        uuid = storefile.read(engine.fs, engine.path).uuid
    except NotAStoreError:
        uuid = b""
    if uuid != engine.uuid:
        raise _gone(engine, engine.path / file_names.STORE)


def check_active_locked(engine: HeldStore, number: int) -> None:
    """Before a commit: is the file that it goes to still the active segment by name?"""
    engine.looked_ns = time.monotonic_ns()
    check(engine)
    path = file_names.segment(engine.path, number)
    try:
        file = engine.active_file(number)
    except FileNotFoundError:
        raise _gone(engine, path) from None
    _same(engine, file.stat()[:2], path)


def _same(engine: HeldStore, held: tuple[int, int], path: Path, then: str = PUT_BACK) -> None:
    """StoreGoneError unless a name still leads to the file that is held, by device and inode."""
    try:
        named = engine.fs.stat(path)[:2]
    except FileNotFoundError:
        named = (0, 0)
    if named != held:
        raise _gone(engine, path, then)


def _gone(engine: HeldStore, path: Path, then: str = PUT_BACK) -> StoreGoneError:
    how = f"lost its file {path.relative_to(engine.path)} (it was cut, removed, or replaced)"
    error = gone(engine.path, how, then)
    engine.gone = error.message
    return error
