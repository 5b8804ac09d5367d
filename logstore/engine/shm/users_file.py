"""Who has a store open: flocks that each process keeps for as long as it has it open, shared.

There are two, on USERS and on the directory log/, because a file may be replaced: some backup and
sync tools write a file beside it and rename that over it. A copy of USERS is held by nobody, so
whoever opens the store next would take it for idle, and make WAKE anew under the others; the lock
on log/ shows that they are there.

Invariants: both are taken and looked at under LOCK, or by who wants the store for itself; log/ is
let go first, so that who has it is among those who have USERS, but for the moment of a death.
"""

from __future__ import annotations

import time
from pathlib import Path

from logstore.errors import StoreInUseError
from logstore.fs import File, FileSystem, named
from logstore.fsinfo import flock_owner
from logstore.log import file_names

SETTLE_S = 1.0  # a process that dies lets go of one lock after the other
LOOK_AGAIN_S = 0.005


class Users:
    """The locks of one process."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        """Nothing is held yet. FileNotFoundError if there is no log/."""
        self._path = path
        self.file: File = fs.open(path / file_names.USERS, write=True, create=True)
        try:
            self._log: File = fs.open(path / file_names.LOG)
        except BaseException:
            self.file.close()
            raise

    def enter(self) -> bool | None:
        """Whether nobody else has the store open: both locks are held alone then. If others have,
        they are held shared.

        None if one says so and the other not, and neither is held. It may be so for a moment, while
        a process dies; ``replaced`` is the error of who looked again in vain (``SettleTime``).
        StoreInUseError while somebody wants the store for itself.
        """
        first, alone = self.file.try_lock(exclusive=True), self._log.try_lock(exclusive=True)
        if first and alone:
            return True
        if not first and not self.file.try_lock(exclusive=False):
            raise StoreInUseError(
                f"{self._path} is held exclusively by another process (a salvage?): wait until it "
                "is done"
            )
        if not first and not alone and self._log.try_lock(exclusive=False):
            return False
        self._log.unlock()
        self.file.unlock()
        return None

    def share(self) -> bool:
        """Let others in, who was alone; False if somebody was quicker."""
        return self._log.try_lock(exclusive=False) and self.file.try_lock(exclusive=False)

    def alone(self) -> bool:
        """Whether no other process has the store open any more; held alone then."""
        return self.file.try_lock(exclusive=True)

    def close(self) -> None:
        """Let go, without unlocking: a child of a fork may close what it inherited."""
        self._log.close()
        self.file.close()
        self._path = named(self._path)  # the one before keeps the store's directory open


def replaced(path: Path, name: str) -> StoreInUseError:
    """The error of who would share a store through a file that is not the one of the others."""
    pid = flock_owner(path / file_names.LOG) or flock_owner(path / file_names.USERS)
    who = f"process {pid} has" if pid else "other processes have"
    return StoreInUseError(
        f"{path / name} was replaced while {who} the store open: two that do not share it would "
        "write over each other's entries. Nothing is lost: close the store in every process, and "
        "open it again; keep backup and sync tools from writing to a store that is open"
    )


class SettleTime:
    """How long to look again, where locks or files do not agree."""

    def __init__(self) -> None:
        self._until = time.monotonic() + SETTLE_S

    def wait(self) -> bool:
        """Before the next look; False if this was long enough."""
        if time.monotonic() >= self._until:
            return False
        time.sleep(LOOK_AGAIN_S)
        return True


def users_alone(fs: FileSystem, path: Path) -> File | None:
    """Hold a store's USERS alone, so that nobody opens it until the file is closed; None: it was
    never opened. StoreInUseError while somebody has it open."""
    try:
        users = fs.open(path / file_names.USERS)
    except FileNotFoundError:
        return None
    if users.try_lock(exclusive=True) and _is_free(fs, path / file_names.LOG):
        return users
    users.close()
    raise StoreInUseError(f"{path} is open in another process: close it there first")


def _is_free(fs: FileSystem, folder: Path) -> bool:
    try:
        file = fs.open(folder)
    except FileNotFoundError:
        return True
    try:
        return file.try_lock(exclusive=True)
    finally:
        file.close()
