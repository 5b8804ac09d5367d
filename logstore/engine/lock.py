"""The writer lock: flock on LOCK, with a futex word to wait on.

Invariants: LOCK is never unlinked and never broken by a time-out; waiting is interruptible; the
owner's pid stands in WAKE so that a time-out can name it; only the holder of the in-process mutex
takes or releases it. Lock order everywhere: the in-process mutex, this lock, LMDB's write
transaction.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from logstore.engine import process
from logstore.engine.metrics import Metrics
from logstore.engine.wake import Wake
from logstore.errors import LockTimeoutError
from logstore.fs import File, FileSystem

INTERRUPTS_MAX = 100
_CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
SPIN_NS = 50_000 if _CPUS > 1 else 0


def through(step: Callable[[], None]) -> None:
    """Run a step to its end, whatever interrupts come; they are raised behind it."""
    late: KeyboardInterrupt | None = None
    for _ in range(INTERRUPTS_MAX):
        try:
            step()
            break
        except KeyboardInterrupt as exc:
            late = exc
    if late is not None:
        raise late


class WriterLock:
    """One process's handle of LOCK; threads of the process serialise before it."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.file: File = fs.open(path, write=True, create=True)
        self._packed_self = process.packed_self()
        self.metrics = Metrics()  # the engine's
        self.held = False

    def acquire(self, wake: Wake | None, timeout_s: float) -> None:
        """Take the lock; LockTimeoutError names the owner."""
        if not self.file.try_lock(exclusive=True):
            self._wait(wake, timeout_s)
        self.held = True
        if wake is not None:
            wake.set_owner(self._packed_self)

    def _wait(self, wake: Wake | None, timeout_s: float) -> None:
        started = time.monotonic_ns()
        deadline = started + int(timeout_s * 1e9)
        try:
            # Commits are short: who sleeps for one loses more than it saves, above all what the
            # processor's caches held.
            while time.monotonic_ns() - started < SPIN_NS:
                if self.file.try_lock(exclusive=True):
                    return
            while True:
                if wake is not None:
                    wake.announce_waiting()
                # Once more after the announcement: a release in between would have woken nobody.
                if self.file.try_lock(exclusive=True):
                    return
                if time.monotonic_ns() >= deadline:
                    self.metrics.count("lock_timeouts")
                    raise self._timeout(wake, timeout_s)
                if wake is None:
                    time.sleep(0.002)
                else:
                    wake.wait_unlock()
        finally:
            self.metrics.took("lock_wait", time.monotonic_ns() - started, "lock_waits")

    def _timeout(self, wake: Wake | None, timeout_s: float) -> LockTimeoutError:
        pid, start = wake.owner if wake is not None else (0, 0)
        if pid and start and process.start_ticks(pid) != start:
            who = f"a process that took over from pid {pid}"
        elif pid:
            who = f"process {pid}"
        else:
            who = "a process that is opening or recovering the store"
        return LockTimeoutError(
            f"the writer lock was not free within {timeout_s:g} s: {who} holds it; wait, raise "
            "lock_timeout, or look at that process (a stopped one keeps the lock)",
            owner_pid=pid or None,
        )

    def release(self, wake: Wake | None) -> None:
        """Give the lock back, then wake who waits; harmless if it was not taken.

        An interrupt may fall between flock and ``held``: who gives up unlocks in any case.
        """
        self.file.unlock()
        self.held = False
        if wake is not None:
            wake.signal_unlock()

    def close(self, wake: Wake | None = None) -> None:
        """Close without unlocking explicitly (also in a forked child). Who held it wakes the next:
        who closes a store keeps it to the end.
        """
        self.file.close()
        if self.held and wake is not None:
            self.held = False
            wake.signal_unlock()
