"""The alarm of the disk: a warning in the log before adds are refused for want of space.

Invariants: a look costs one call of the system, and none is made more often than each ``LOOK_S``;
that space is low is told when it becomes so, then once an hour, and when it is over, once. The rule
is the same for the alarm, ``logstore doctor`` and the metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from logstore import fsinfo
from logstore.engine.runtime.engine import Engine, log

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
    """Whether so little is free; not where the system does not tell (0, 0)."""
    return bool(disk_bytes) and free_bytes < needed_bytes(engine, disk_bytes)


def is_full(free_bytes: int, disk_bytes: int) -> bool:
    """Whether adds are refused, or will be at once; not where the system does not tell (0, 0)."""
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
        """Look, if it is time; tell what is to be told."""
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
