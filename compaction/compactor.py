"""Compaction in the background: when it is due, and how much of it is done at once.

Due when sealed segments of a minimum age, each dead by more than the threshold, hold more dead
bytes than half a segment, and than a sixteenth of the log. Then those that are dead most are
emptied and dropped, as many as make a bounded amount to move, resting in between: see
``Throttle``. Looking costs at most a small share of the time, however large the store.

Invariants: what is done is what a run by call does, in the same crash order, but for sealing the
active segment; one process at a time (the maintenance lock), and none waits for it; segments that
could not be dropped (a scan names them) are left alone for a while.
"""

from __future__ import annotations

import time

from logstore import format as fmt
from logstore.clock import monotonic_ms
from logstore.compaction import erasure, measure, runner, segment_rewrite
from logstore.compaction.segment_rewrite import CompactionReport
from logstore.engine.commit.committer import Committer
from logstore.engine.maintenance import column_statistics
from logstore.engine.runtime import disk_space, maintenance_locks, pins
from logstore.engine.runtime.background import Pause
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.errors import LockTimeoutError
from logstore.index.keys import SegmentRow
from logstore.tuples import NamedTuple

THRESHOLD = 0.5
MIN_AGE_MS = 60_000  # since it was sealed: single adds are born mostly dead, and die on for a while
ROUND_BYTES, ROUND_S = 256 << 20, 10.0  # of living bytes, moved under the maintenance lock
LOOK_S = 5.0
TOMBSTONES_S = 60.0  # how often tombstones are counted, which takes a look at every node
SHARE = 0.01  # of the time at most goes into looking
INDEX_MIN_BYTES = 64 << 20  # of a file that is worth copying, if most of it is free pages
INDEX_MAX_BYTES = 256 << 20  # in use; copied beside those who commit, in a fraction of a second
AGAIN_S = 600.0  # when to try again with segments that could not be dropped


class Victim(NamedTuple):
    """A segment worth emptying."""

    number: int
    live_bytes: int
    dead_bytes: int


class Compactor:
    """Compacts one store for one process, a round at a time."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer
        self._next_s = 0.0
        self._counted_at = 0
        self._shrink_next_s = 0.0
        self._tombstones: dict[int, tuple[int, int]] = {}  # bytes, and the live bytes at that time
        self._left: dict[int, float] = {}  # segments that could not be dropped, and until when
        self._left_for: set[str] = set()  # the pins there were then
        self._tidy = False
        self._looked = False

    def tick(self, pause: Pause) -> None:
        """Do a round, if one is due."""
        started_s = time.monotonic()
        if started_s < self._next_s:
            return
        self._next_s = started_s + LOOK_S  # whatever fails below is not tried at once
        if self._looked:  # not by who has it open for a moment: it takes a look at every node
            self._count_tombstones(pause)
        self._looked = True
        self._shrink_index()
        due = bool(self._victims())
        took_s = time.monotonic() - started_s
        self._next_s = time.monotonic() + max(LOOK_S, took_s / SHARE)
        if not due:
            return
        try:
            with maintenance_locks.alone(self._engine, 0):
                disk_space.freeing(self._engine, lambda: self._round(pause))
        except LockTimeoutError:
            return  # somebody compacts, or takes a checkpoint or a backup

    def _round(self, pause: Pause) -> None:
        engine, started_ns = self._engine, time.monotonic_ns()
        if not self._tidy:
            segment_rewrite.remove_garbage(engine, self._committer)
            self._tidy = True
        victims = {victim.number for victim in self._victims()}  # others may have been quicker
        if not victims:
            return
        report = CompactionReport()
        maintenance_locks.write_missing_hints(engine)
        column_statistics.write_missing(engine, victims, pause=pause)
        # Only what lies in victims is moved: with a threshold of 1, no other node has to be.
        runner.sweep(engine, self._committer, report, victims, 1.0, pause)
        disk_space.ensure(engine)
        again_s = time.monotonic() + AGAIN_S
        rows, _ = measure.rows_and_active(engine)
        self._left |= dict.fromkeys(victims & set(rows), again_s)
        self._left_for = self._pins() if self._left else set()
        runner.finish(engine, report, started_ns)

    def _shrink_index(self) -> None:
        """Copy an index that is mostly free pages, and not so large that it takes long."""
        engine = self._engine
        now_s = time.monotonic()
        if now_s < self._shrink_next_s:
            return
        self._shrink_next_s = now_s + TOMBSTONES_S
        used, live = snapshot.read(engine, runner.index_bytes)
        if used < INDEX_MIN_BYTES or live > min(used // 4, INDEX_MAX_BYTES):
            return
        try:
            with maintenance_locks.alone(engine, 0):
                runner.renew_index(engine, self._committer)
        except LockTimeoutError:
            return

    def _pins(self) -> set[str]:
        engine = self._engine
        return {pin.id for pin in pins.living(engine.fs, engine.path, engine.clock.now_ms())}

    def _victims(self) -> list[Victim]:
        """The segments to empty now; none if that would give too little back."""
        engine = self._engine
        rows, active = measure.rows_and_active(engine)
        if self._left and self._left_for - self._pins():
            self._left.clear()  # what held them may be gone
        sealed_ms = _sealed(rows)
        now_s, now_ms = time.monotonic(), engine.clock.now_ms()
        found: list[Victim] = []
        log_bytes = 0
        for number, row in rows.items():
            if number >= active:
                continue
            size = row.total_bytes or measure.size_bytes(engine, number)
            body = max(1, size - fmt.SEGMENT_HEAD_BYTES)
            log_bytes += size
            live = min(body, max(0, self._live_bytes(number, row)))
            young = abs(now_ms - sealed_ms[number]) < MIN_AGE_MS  # the clock may have gone back
            left = self._left.get(number, 0.0) > now_s
            if live < (1 - THRESHOLD) * body and not young and not left:
                found.append(Victim(number, live, body - live))
        enough = max(engine.limits.segment_bytes // 2, log_bytes // 16)
        if sum(victim.dead_bytes for victim in found) < enough:
            return []
        found.sort(key=lambda victim: victim.live_bytes / (victim.live_bytes + victim.dead_bytes))
        most = min(ROUND_BYTES, ROUND_S * engine.options.compact_rate_bytes_s)
        moved, some = found[0].live_bytes, found[:1]
        for victim in found[1:]:
            moved += victim.live_bytes
            if moved > most:
                break
            some.append(victim)
        return some

    def _live_bytes(self, number: int, row: SegmentRow) -> int:
        gone, of = self._tombstones.get(number, (0, 1))
        if of != row.live_bytes:  # nodes went since they were counted, and tombstones with them
            gone = gone * row.live_bytes // max(1, of)
        return row.live_bytes + row.live_nodes * fmt.FRAME_HEAD_BYTES - gone

    def _count_tombstones(self, pause: Pause) -> None:
        """Deleted entries do not show in the rows of segments; they are counted now and then.

        By one of the processes that have the store open: each looks at every node for it, and all
        at once would take the processor from those who have work to do.
        """
        started_s, applied = time.monotonic(), self._engine.wake.applied
        if applied == self._counted_at or not self._may_count():
            return
        rows, _ = measure.rows_and_active(self._engine)
        counted = erasure.tombstoned_bytes(self._engine, pause)
        self._tombstones = {
            number: (gone, rows[number].live_bytes)
            for number, gone in counted.items()
            if number in rows
        }
        self._counted_at = applied
        again_s = max(TOMBSTONES_S, (time.monotonic() - started_s) / SHARE)
        self._engine.wake.next_count_ms = monotonic_ms() + int(again_s * 1000)

    def _may_count(self) -> bool:
        """Whether it is time to count, and no other process does; from now on others leave it."""
        wake = self._engine.wake
        if monotonic_ms() < wake.next_count_ms:
            return False
        try:
            with maintenance_locks.alone(
                self._engine, 0
            ):  # one of those that see so at the same time
                if monotonic_ms() < wake.next_count_ms:
                    return False
                wake.next_count_ms = monotonic_ms() + int(TOMBSTONES_S * 1000)
        except LockTimeoutError:
            return False  # somebody compacts
        return True


def _sealed(rows: dict[int, SegmentRow]) -> dict[int, int]:
    """When segments were sealed: as the main one behind was born; a compacted one at its birth."""
    found: dict[int, int] = {}
    following_ms = 0
    for number in sorted(rows, reverse=True):
        row = rows[number]
        found[number] = following_ms or row.born_ms
        if row.role == fmt.Role.MAIN:
            following_ms = row.born_ms
        else:
            found[number] = row.born_ms
    return found
