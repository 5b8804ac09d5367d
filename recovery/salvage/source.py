"""A damaged store, opened for reading all that is left of it.

The index is that of the store itself, if it was closed cleanly, is trusted by the rules of opening,
and every row of it proves right (in a process of its own: LMDB may end the process that reads a
damaged page); then all is known that the log had told. Otherwise a private one is built from what
can be read of the log.

Invariants: nothing below the store's directory is written. USERS is held, so that nobody opens it.
"""

from __future__ import annotations

from pathlib import Path

from logstore.engine.runtime.engine import Engine, log
from logstore.engine.shm.control_block import LogWords, Wake
from logstore.engine.shm.writer_lock import WriterLock
from logstore.errors import CorruptionError, StoreInUseError
from logstore.fs import File, FileSystem
from logstore.index.env import open_untouched
from logstore.log import names
from logstore.options import StoreOptions
from logstore.recovery import index_validity, rebuild, shutdown_marker
from logstore.recovery.check import check
from logstore.recovery.check_log import Progress
from logstore.recovery.report import RecoveryReport
from logstore.recovery.salvage.probe import cannot_be_read
from logstore.recovery.salvage.repaired_view import Repaired


class Damaged:
    """What is left of a store; ``close`` it."""

    def __init__(self, fs: FileSystem, path: Path, progress: Progress | None = None) -> None:
        self._fs = fs
        self.home = fs.temporary_directory()
        self._users: File | None = None
        self.report = RecoveryReport()
        try:
            self._users = _alone(fs, path)
            self.repaired = Repaired(fs, path, self.home)
            # Before the index is opened: one process opens it once.
            self.seen = check(path, progress=progress, careful=True, fs=self.repaired.fs)
            self.engine = self._engine(path)
            self.own_index = self._trusted()
            if not self.own_index:
                self.engine.rebuild_locked()
        except BaseException:
            self.close()
            raise

    def _engine(self, path: Path) -> Engine:
        fs, home, content = self.repaired.fs, self.home, self.repaired.content
        Wake.create(fs, home / names.WAKE)
        engine = Engine(
            fs, path, content.uuid, content.limits, StoreOptions(readonly=True, background=False),
            lock=WriterLock(fs, home / names.LOCK),
            users=fs.open(home / names.USERS, write=True, create=True),
            wake=Wake(fs, home / names.WAKE),
            rebuild=lambda found: rebuild.build(found, self.report),
        )  # fmt: skip
        engine.index_home = home
        engine.accept_loss = True
        return engine

    def _trusted(self) -> bool:
        """Use the store's own index, if it is to be trusted whole."""
        engine = self.engine
        if self.repaired.damage:
            return False
        known = shutdown_marker.read(engine.fs, engine.path)
        if known is None or not known.clean_applied or index_validity.why_not(engine, known):
            return False
        path = names.generation(engine.path, known.generation)
        if why := cannot_be_read(path, known.generation):
            log.error("the index is damaged (%s): what is left is read from the log", why)
            return False
        try:
            own = open_untouched(path, known.generation)
        except FileNotFoundError:
            return False  # of an older format
        try:
            index_validity.check_applied(engine, own, known)
        except CorruptionError:
            own.close()
            return False
        engine.switch_generation(own)
        engine.wake.set_log(LogWords(0, 0, 0, 0, 0, own.number, 0))
        return True

    def close(self) -> None:
        """Let go of everything; the private index is removed."""
        engine = getattr(self, "engine", None)
        if engine is not None:
            engine.release_files()
        if self._users is not None:
            self._users.close()
        self._fs.remove_tree(self.home)


def _alone(fs: FileSystem, path: Path) -> File | None:
    try:
        users = fs.open(path / names.USERS)
    except FileNotFoundError:
        return None
    if users.try_lock(exclusive=True):
        return users
    users.close()
    raise StoreInUseError(f"{path} is open in another process: close it there first")
