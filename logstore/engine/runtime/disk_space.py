"""A full disk: space set aside for it, and a warning before.

RESERVE is the space set aside, so that deletes and compaction can start on a full disk. The alarm
warns in the log before adds are refused for want of space.

Invariants: RESERVE is given up only when the disk is full, for an operation that gives space back
or for the index to follow what is in the log already; from then on adds are refused until it could
be set aside again, so that they do not take the rest. It is made anew when a store is opened or was
compacted. Where it is gone already, the hints are given up: a rebuild is slower without them, and
no less right.

Invariants of the alarm: a look costs one system call, and comes at most once in ``LOOK_S``. It
warns when space gets low, then once an hour, and says once that this is over. The alarm, ``logstore
doctor`` and the metrics have the same rule.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from logstore import fsinfo
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
        log.warning(
            "%s: no space could be set aside: %s; adds are refused until there is: make room",
            engine.path,
            exc,
        )
        engine.fs.remove(temporary)
        engine.wake.full = True


def release(engine: Engine) -> bool:
    """Give space up; False if there is nothing left that can be."""
    path = engine.path / file_names.RESERVE
    engine.wake.full = True
    if not engine.fs.exists(path):
        return give_up_hints(engine.fs, engine.path)
    log.warning(
        "%s: its disk is full: the space set aside is given up, and adds are refused: delete "
        "entries and compact, or make room",
        engine.path,
    )
    engine.fs.remove(path)
    return True


def give_up_hints(fs: FileSystem, store: Path) -> bool:
    """Remove hints and statistics; False if there are none. They are written again when there is
    room."""
    derived = [name for name in fs.names(store / file_names.LOG) if file_names.is_derived(name)]
    for name in derived:
        fs.remove(store / file_names.LOG / name)
    if derived:
        log.warning(
            "%s: its disk is full: %d hints and statistics are given up, and are written again "
            "when there is room",
            store,
            len(derived),
        )
    return bool(derived)


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


LOOK_S = 30.0
AGAIN_S = 3600.0
SEGMENTS_OF_ROOM = 2  # for compaction: what it writes, before it removes what it read
FREE_SHARE = 0.05
FREE_MAX_BYTES = 10 << 30  # of a large disk a share would be more than anybody misses
FULL_BYTES = 64 << 10  # below it an add of some kilobytes finds no room
OVER_SHARE = 1.1  # it is over a little above, so that it does not come and go


def needed_bytes(engine: Engine, disk_bytes: int) -> int:
    """Below so many free bytes space is low: what ``open(low_space_bytes=)`` says, or twice a
    segment, and a twentieth of the file system, but 10 GiB of it at most."""
    asked = engine.options.low_space_bytes
    if asked is not None:
        return asked
    share = min(int(disk_bytes * FREE_SHARE), FREE_MAX_BYTES)
    return max(SEGMENTS_OF_ROOM * engine.limits.segment_bytes, share)


def is_low(engine: Engine, free_bytes: int, disk_bytes: int) -> bool:
    """Whether so little is free; False where the system does not say (0, 0)."""
    return bool(disk_bytes) and free_bytes < needed_bytes(engine, disk_bytes)


def is_full(free_bytes: int, disk_bytes: int) -> bool:
    """Whether adds are refused, or will be at once; False where the system does not say (0, 0)."""
    return bool(disk_bytes) and free_bytes < FULL_BYTES


class SpaceAlarm:
    """Looks at the disk of one store for one process."""

    def __init__(
        self,
        engine: Engine,
        space: Callable[[Path], tuple[int, int]] = fsinfo.space,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._space = space
        self._clock = clock
        self._look_at_s = 0.0
        self._tell_at_s = 0.0
        self._is_low = False

    def tick(self) -> None:
        """Look at the disk if it is time to, and warn."""
        now_s = self._clock()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_S
        engine = self._engine
        free, disk = self._space(engine.path)
        if is_low(engine, free, disk):
            if not self._is_low or now_s >= self._tell_at_s:
                self._tell_at_s = now_s + AGAIN_S
                log.warning(
                    "%s: only %d MiB are free on its disk; adds are refused when it is full: make "
                    "room, set a retention, or compact",
                    engine.path,
                    free >> 20,
                )
            self._is_low = True
        elif self._is_low and free >= needed_bytes(engine, disk) * OVER_SHARE:
            self._is_low = False
            log.warning("%s: %d MiB are free on its disk again", engine.path, free >> 20)
