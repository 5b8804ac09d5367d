"""RESERVE: space set aside, so that deletes and compaction can start on a full disk.

Invariants: it is given up only when the disk is full, for an operation that gives space back or for
the index to follow what is in the log already; from then on adds are refused until it could be set
aside again, so that they do not take the rest. It is made anew when a store is opened or was
compacted. Where it is gone already, the hints are given up: a rebuild is slower without them, and
no less right.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from logstore.engine.runtime.engine import Engine, log
from logstore.errors import DiskFullError, FileSystemError
from logstore.fs import FileSystem
from logstore.log import file_names

RESERVE_BYTES = 1 << 20
T = TypeVar("T")


def ensure(engine: Engine) -> None:
    """Set the space aside if it is not."""
    path = engine.path / file_names.RESERVE
    if engine.fs.exists(path):
        engine.wake.full = False
        return
    temporary = path.with_name(path.name + file_names.TEMPORARY)
    try:
        file = engine.fs.open_new(temporary)
        try:
            file.allocate(RESERVE_BYTES)
        finally:
            file.close()
        engine.fs.rename(temporary, path)
        engine.wake.full = False
    except FileNotFoundError:
        engine.wake.full = not engine.fs.exists(path)  # another one made it at the same time
    except FileSystemError as exc:
        log.warning("no space could be set aside: %s", exc)
        engine.fs.remove(temporary)
        engine.wake.full = True


def release(engine: Engine) -> bool:
    """Give space up; False if there is nothing left that can be."""
    path = engine.path / file_names.RESERVE
    engine.wake.full = True
    if not engine.fs.exists(path):
        return give_up_hints(engine.fs, engine.path)
    log.warning("the disk is full: the space set aside is given up")
    engine.fs.remove(path)
    return True


def give_up_hints(fs: FileSystem, store: Path) -> bool:
    """Remove the hints; False if there are none. They are written again when there is room."""
    hints = [name for name in fs.names(store / file_names.LOG) if file_names.is_hint(name)]
    for name in hints:
        fs.remove(store / file_names.LOG / name)
    if hints:
        log.warning("the disk is full: %d hints are given up", len(hints))
    return bool(hints)


def check(engine: Engine) -> None:
    """Before an add: DiskFullError while the space that was given up cannot be set aside again."""
    if engine.wake.full:
        ensure(engine)
        if engine.wake.full:
            raise DiskFullError(
                f"the disk of {engine.path} is full: delete or trim entries and compact, or make "
                "room on it"
            )


def freeing(engine: Engine, work: Callable[[], T]) -> T:
    """Run what gives space back; on a full disk once more, in the space set aside."""
    try:
        return work()
    except DiskFullError:
        if not release(engine):
            raise
        return work()
