"""What a process does for a store that nobody asks it for: work that is due, and maintenance.

Due work has a time set: scheduled entries are added, streams and entries that expired are removed.
A word in WAKE says when the next of all that is due, so nobody looks in vain. The background thread
of each process and every waiting reader sleep no longer than until then; the first to wake does it,
the others find the word moved.

The maintenance thread, one a process, writes the hints that sealed segments lack; removes pins that
are over, or whose process is gone; takes a checkpoint when operation frames since the last one
exceed the larger of 64 MiB and its own size; warns when the disk gets full; does the periodic work
of features, such as retention; compacts, under a rate limit, if a way to do that was handed in.

Invariants of due work: it is called with nothing held; what fails here fails nobody else's call: it
is logged, and tried again later. A read-only store does nothing.

Invariants of maintenance: nothing of it is needed for correctness, nor for the promise of
``everysec``, which has a thread of its own; if another process has the maintenance lock, it is left
to that one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from logstore.engine.commit.committer import Committer
from logstore.engine.maintenance import column_statistics
from logstore.engine.runtime import disk_space, maintenance_locks
from logstore.engine.runtime.background import Pause, Repeated, StoppedError, StoreThread, Throttle
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import ClosedError, LockTimeoutError, StoreGoneError
from logstore.features.feature_list import first_due
from logstore.format import Role, segment_of
from logstore.index.txn import IndexTxn
from logstore.log import file_names

if TYPE_CHECKING:
    from logstore.engine.features.due_features import Periodic, Timed
    from logstore.engine.runtime.disk_space import SpaceAlarm

RETRY_S = 1.0
BUSY_S = 0.002  # another thread of this process is at it


class DueWorker:
    """Does what is due, for one process."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer
        self._busy = threading.Lock()
        self._retry_at = 0.0
        self._trouble = Repeated("adding what is due, or dropping what expired,")

    def add(self, due_ms: int) -> float:
        """Do a batch of what is due; after how many seconds to look again.

        ``due_ms`` is the word that says so.
        """
        if (wait_s := self._retry_at - time.monotonic()) > 0:
            return wait_s
        if not self._busy.acquire(blocking=False):
            return BUSY_S
        try:
            from logstore.engine.features.due_features import (
                TIMED,  # (not loaded where nothing is due)
            )

            engine = self._engine
            engine.check_open()
            if not any(self._do(timed) for timed in TIMED) and engine.wake.next_due_ms == due_ms:
                self._put_right()  # nobody was faster, and there was nothing
                return BUSY_S  # or the clock was put back meanwhile
        except ClosedError:
            return RETRY_S
        except Exception as exc:  # noqa: BLE001  whoever waits did not ask for this
            self._retry_at = time.monotonic() + RETRY_S
            self._trouble.failed(exc)
            return RETRY_S
        finally:
            self._busy.release()
        self._trouble.went()
        return 0.0

    def _do(self, timed: Timed) -> bool:
        """Do a batch of one kind of work, if its time has come; whether anything was done."""
        engine, first_due_of = self._engine, timed.feature.first_due
        assert first_due_of is not None
        first_ms = snapshot.read(engine, lambda view: first_due_of(view.index))
        if not 0 < first_ms <= engine.clock.now_ms():
            return False
        if timed.frees:
            return bool(self._committer.free(timed.work))
        disk_space.check(engine)
        return bool(self._committer.run(timed.work))

    def _put_right(self) -> None:
        with self._committer.locked():
            refresh_locked(self._engine)


def refresh_locked(engine: Engine) -> None:
    """Set the word from the index, which stands where WAKE says. LOCK is held."""
    generation = engine.index()
    with generation.env.begin() as txn:
        engine.wake.next_due_ms = first_due(IndexTxn(generation, txn))


POLL_S = 0.2
SETTLED_S = 1.0  # who has a store open for less loads nothing of compaction
PINS_LOOK_S = 20.0  # how soon what the dead left is given back
OPERATIONS_MAX_BYTES = 64 << 20
READING_BYTES_S = 256 << 20  # for checkpoints, statistics: no limit but for resting half the time
Compact = Callable[[Pause], None]


class MaintenanceThread(StoreThread):
    """Looks after one store for one process. It stops in the midst of a compaction, too: what that
    did so far counts."""

    NAME = "logstore-maintenance"

    def __init__(
        self, engine: Engine, committer: Committer, compact: Compact | None = None
    ) -> None:
        super().__init__()
        self._engine = engine
        self._committer = committer
        self._compact = compact
        self._space: SpaceAlarm | None = None  # made when it first looks: many are open for less
        self._periodic: list[Periodic] | None = None  # made at the first look, for the same reason
        self._active = 0
        self._lacks_statistics = False
        self._pins_next_s = 0.0
        self._waiting = 0  # callers that want the maintenance lock
        self._guard = threading.Lock()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """For work by call that needs the maintenance lock: what this process does in the
        background ends soon, and does not begin meanwhile.
        """
        with self._guard:
            self._waiting += 1
        try:
            yield
        finally:
            with self._guard:
                self._waiting -= 1

    def _run(self) -> None:
        trouble = Repeated("work in the background")
        settled_s = time.monotonic() + SETTLED_S
        while not self._stop.wait(POLL_S):
            try:
                self.tick()
                if time.monotonic() >= settled_s:
                    self._compact_some()
                trouble.went()
            except StoppedError:
                continue
            except StoreGoneError:
                return  # the flusher says it
            except Exception as exc:  # noqa: BLE001  it is tried again; what it is for can wait
                trouble.failed(exc)
                if self._engine.wake.failed_at:
                    return

    def tick(self) -> None:
        """Do what is due, but for compaction."""
        self._committer.leave_sealed()
        active = self._engine.wake.log().active_segment
        # A compaction by call seals a segment first, and mostly empties it: it needs no hint.
        if active != self._active and not self._waiting:
            self._active = active
            self._after_seal()
        if self._lacks_statistics and not self._waiting:
            self._write_statistics()
        if time.monotonic() >= self._pins_next_s:
            self._pins_next_s = time.monotonic() + PINS_LOOK_S
            self._look_at_pins()
        self._tick_features()

    def _compact_some(self) -> None:
        rate = self._engine.options.compact_rate_bytes_s
        if self._compact is not None and rate > 0 and not self._waiting:
            self._compact(self._throttle(rate))

    def _tick_features(self) -> None:
        if self._space is None:
            from logstore.engine.runtime.disk_space import SpaceAlarm

            self._space = SpaceAlarm(self._engine)
        self._space.tick()
        if self._periodic is None:
            from logstore.engine.features.due_features import PERIODIC

            self._periodic = [make(self._engine, self._committer) for make in PERIODIC]
        for periodic in self._periodic:
            periodic.tick()

    def _look_at_pins(self) -> None:
        engine = self._engine
        if engine.fs.names(engine.path / file_names.PINS):
            from logstore.engine.runtime import pins  # (not loaded where there are none)

            pins.living(engine.fs, engine.path, engine.clock.now_ms())

    def _throttle(self, rate_bytes_s: float) -> Pause:
        return Throttle(
            rate_bytes_s, self._stop, self._tick_features, lambda: self._waiting > 0
        ).spend

    def _write_statistics(self) -> None:
        self._lacks_statistics = False
        try:
            column_statistics.write_missing(self._engine, pause=self._throttle(READING_BYTES_S))
        except StoppedError:  # somebody else goes first
            self._lacks_statistics = True
            raise

    def _after_seal(self) -> None:
        maintenance_locks.write_missing_hints(self._engine)
        self._lacks_statistics = True
        if due(self._engine):
            try:
                from logstore.engine.maintenance import checkpoint

                with maintenance_locks.alone(self._engine, 0):
                    pause = self._throttle(READING_BYTES_S)
                    checkpoint.take_alone(self._engine, self._committer, pause)
            except LockTimeoutError:
                return  # somebody compacts or takes one already


def due(engine: Engine) -> bool:
    """Whether enough operation frames stand behind the last checkpoint."""
    positions = file_names.checkpoints(engine.fs, engine.path)
    last = positions[-1] if positions else 0
    own = 0
    if last:
        own = engine.fs.size_bytes(file_names.checkpoint(engine.path, last))
    since = snapshot.read(engine, lambda view: _operation_bytes(view, segment_of(last)))
    return since > max(OPERATIONS_MAX_BYTES, own)


def _operation_bytes(view: Snapshot, from_segment: int) -> int:
    """Bytes of sealed main segments that are no living nodes."""
    return sum(
        row.total_bytes - row.live_bytes
        for number, row in view.index.segment_rows().items()
        if row.role == Role.MAIN and number >= from_segment and row.total_bytes
    )
