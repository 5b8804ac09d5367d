"""Keeping streams compact in the background: what was added is gone through, bit by bit.

Snapshots are looked at first, and no lock is taken while nothing was added. Several processes may
be at it, one after another, and the second finds it done.
"""

from __future__ import annotations

import time
from functools import partial

from logstore.engine.commit.committer import Committer
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import latest_entries
from logstore.errors import CorruptionError
from logstore.features.latest import LatestRows
from logstore.features.setting_rows import OF_STREAM, SettingRows

LOOK_S = 1.0
LOOK_SHARE = 0.02  # of the time at most goes into looking
TICK_S = 0.1  # of work, then what else is due has its turn
PAUSE_S = 0.001  # between commits, for those who wait for the lock
STREAMS_A_LOOK = 1000
FAILED_AGAIN_S = 60.0  # when to try again with a stream whose nodes are damaged


def look(view: Snapshot, after: int) -> tuple[list[int], int]:
    """Streams above ``after`` with entries to go through; the last one seen, 0 at the end."""
    due: list[int] = []
    rows = LatestRows(view.index)
    for count, (number, kept) in enumerate(SettingRows(view.index).rows(OF_STREAM, after), 1):
        if "compact_by" in kept:
            record = view.index.record(number)
            if record is not None and record.last > rows.upto(number):
                due.append(number)
        if count == STREAMS_A_LOOK:
            return due, number
    return due, 0


def run(engine: Engine, committer: Committer) -> int:
    """Go through all that was added, by call; how many entries were replaced."""
    entries = after = 0
    while True:
        due, after = snapshot.read(engine, partial(look, after=after))
        for number in due:
            more = True
            while more:
                replaced = _commit(committer, number)
                entries, more = entries + replaced.entries, replaced.more
        if not after:
            return entries


def _commit(committer: Committer, number: int) -> latest_entries.Replaced:
    replaced: latest_entries.Replaced = committer.free(partial(latest_entries.go_on, stream=number))
    if replaced.more:
        time.sleep(PAUSE_S)
    return replaced


class KeepCompact:
    """Keeps a store's streams compact, for one process."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer
        self._next_s = 0.0
        self._after = 0  # the last stream that was looked at
        self._failed: dict[int, float] = {}

    def tick(self) -> None:
        """Do what is due, for a bounded time."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_S  # whatever fails below is not tried at once
        due, self._after = snapshot.read(self._engine, partial(look, after=self._after))
        looked_s = time.monotonic() - now_s
        for number in due:
            if self._failed.get(number, 0.0) <= now_s and self._work(number, now_s + TICK_S):
                self._next_s, self._after = now_s, number - 1  # the rest is for the next tick
                return
        self._next_s = now_s if self._after else now_s + max(LOOK_S, looked_s / LOOK_SHARE)

    def _work(self, number: int, until_s: float) -> bool:
        """Whether time ran out before all of a stream was gone through."""
        try:
            while _commit(self._committer, number).more:
                if time.monotonic() >= until_s:
                    return True
        except CorruptionError as exc:
            log.warning("stream %d is not kept compact for now: %s", number, exc)
            self._failed[number] = time.monotonic() + FAILED_AGAIN_S
        return False
