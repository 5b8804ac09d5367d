"""Becoming one of the processes that have a store open, or the first: locks and shared memory.

Three files are shared: LOCK, USERS and WAKE. If one of them is not the file that the others have,
two processes would write over each other's entries, so nobody joins then. What tells is the locks
that living processes hold (``shm.users_file``, ``shm.control_block``), which no copy of a file has,
and for LOCK the inode that WAKE names.

Invariants: LOCK is held; nothing of the store is changed before it is known who has it open; what
looks replaced is looked at again for a while, for a process may be dying meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from logstore.engine.shm import process_identity
from logstore.engine.shm.control_block import NotHeldError, Wake
from logstore.engine.shm.users_file import Settling, Users, replaced
from logstore.engine.shm.writer_lock import WriterLock
from logstore.errors import StoreError, StoreInUseError
from logstore.fs import FileSystem
from logstore.log import file_names


def peek_at_wake(fs: FileSystem, path: Path) -> Wake | None:
    """WAKE as it lies there: only to name the owner of LOCK while waiting for it."""
    try:
        return Wake(fs, path / file_names.WAKE)
    except (OSError, StoreError):
        return None


def join(fs: FileSystem, path: Path, lock: WriterLock, users: Users) -> Wake | None:
    """WAKE of those who have the store open; None, and it is held alone, if nobody has.

    StoreInUseError if they cannot be joined: one of the files that they share was replaced.
    """
    settling = Settling()
    while True:
        alone = users.enter()
        if alone:
            return None
        odd = file_names.USERS
        if alone is not None:
            try:
                return _joined(fs, path, lock)
            except NotHeldError:
                odd = file_names.WAKE
        if not settling.wait():
            users.close()
            raise replaced(path, odd)


def _joined(fs: FileSystem, path: Path, lock: WriterLock) -> Wake:
    try:
        wake = Wake(fs, path / file_names.WAKE, hold=True, join=True)
    except FileNotFoundError:
        raise StoreInUseError(
            f"{path / file_names.WAKE} was removed while the store is open: close it in every "
            "process"
        ) from None
    if wake.lock_file != lock.file.stat().inode:
        raise replaced(path, file_names.LOCK)
    if wake.namespace not in (0, process_identity.pid_namespace()):
        raise StoreInUseError(
            f"{path} is open in another pid namespace (a container?), and LMDB cannot tell the two "
            "apart: let the containers share one pid namespace, or open it in one of them"
        )
    return wake


def first_wake(fs: FileSystem, path: Path, lock: WriterLock, users: Users, failed_at: int) -> Wake:
    """WAKE anew, by the first opener. The store is held shared from here on."""
    # A failed sync stays known until what it left behind was written anew.
    Wake.create(fs, path / file_names.WAKE, failed_at, path / file_names.RESERVE)
    if not users.share():
        raise StoreInUseError(f"{path} was taken by another process: try again")
    wake = Wake(fs, path / file_names.WAKE, hold=True)
    wake.lock_file = lock.file.stat().inode
    wake.namespace = process_identity.pid_namespace()
    wake.set_owner(process_identity.packed_self())  # of LOCK; the words are new
    return wake
