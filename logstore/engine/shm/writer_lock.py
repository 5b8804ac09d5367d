"""The writer lock: flock on LOCK, with a futex word to wait on.

Invariants: LOCK is never unlinked and never broken by a time-out; waiting is interruptible; the
owner's pid stands in WAKE so that a time-out can name it; only the holder of the in-process mutex
takes or releases it. Lock order everywhere: the in-process mutex, this lock, LMDB's write
transaction. A thread that waits with a deadline gives the mutex up now and then (``StillHeld``): if
it kept it, the threads behind it would wait for its time-out, and then for their own. A process
that has taken the lock again and again over one that waits lets that one go first: whoever is woken
by a release comes too late for the next commit of the one that released it, and would starve.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logstore.engine.shm import process_identity
from logstore.engine.shm.commit_words import Wake
from logstore.engine.shm.metrics import Metrics
from logstore.errors import LockTimeoutError
from logstore.fs import File, FileSystem

INTERRUPTS_MAX = 100
SHARE_NS = 50_000_000  # the longest wait for LOCK with the mutex held
PAUSE_S = 0.001  # without it the one that gave the mutex up would be the next to have it
_CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
PASSED_OVER_MAX = 8  # times in a row that one who waited was woken, and did not get the lock
SPIN_NS = 50_000 if _CPUS > 1 else 0


def through(step: Callable[..., None], *args: Any) -> None:
    """Run a step to its end, whatever interrupts come; they are raised behind it."""
    late: KeyboardInterrupt | None = None
    for _ in range(INTERRUPTS_MAX):
        try:
            step(*args)
            break
        except KeyboardInterrupt as exc:
            late = exc
    if late is not None:
        raise late


class StillHeld(Exception):  # noqa: N818  (what is so, not a mistake)
    """Another process has LOCK, and there is time left: give the mutex up, and try again."""


class WriterLock:
    """One process's handle of LOCK; threads of the process serialise before it."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.file: File = fs.open(path, write=True, create=True)
        self._packed_self = process_identity.packed_self()
        self.metrics = Metrics()  # the engine's
        self.held = False
        # Releases in a row at which somebody waited; a lane of plain adds counts its own.
        self.passed_over = 0

    @property
    def owes_a_turn(self) -> bool:
        """Whether the next to take the lock should be another process, which has waited."""
        return self.passed_over >= PASSED_OVER_MAX

    def give_way(self) -> None:
        """Between two commits of a run: a process that waited for LOCK goes first. Without this it
        would wake too late, as the run takes LOCK again at once."""
        if self.passed_over:
            time.sleep(PAUSE_S)

    def acquire(self, wake: Wake | None, timeout_s: float, deadline_ns: int = 0) -> None:
        """Take the lock; LockTimeoutError, which names the owner, after ``timeout_s``.

        With a deadline (of ``time.monotonic_ns``), which is the end of these seconds for one who
        began earlier, StillHeld after some milliseconds.
        """
        if self.passed_over >= PASSED_OVER_MAX:
            self.passed_over = 0
            time.sleep(PAUSE_S)
        if not self.file.try_lock(exclusive=True):
            self.passed_over = 0
            self._wait(wake, timeout_s, deadline_ns)
        self.held = True
        if wake is not None:
            wake.set_owner(self._packed_self)

    def acquired(self, wake: Wake | None, timeout_s: float, deadline_ns: int) -> bool:
        """As ``acquire``; False if the lock is still held, and there is time left."""
        try:
            self.acquire(wake, timeout_s, deadline_ns)
        except StillHeld:
            return False
        return True

    def _wait(self, wake: Wake | None, timeout_s: float, deadline_ns: int) -> None:
        now = started = time.monotonic_ns()
        shared = False
        deadline = deadline_ns or started + int(timeout_s * 1e9)
        until = min(deadline, started + SHARE_NS) if deadline_ns else deadline
        try:
            # Commits are short: who sleeps for one loses more than it saves, above all what the
            # processor's caches held.
            while now - started < SPIN_NS and now < until:
                if self.file.try_lock(exclusive=True):
                    return
                now = time.monotonic_ns()
            while True:
                if wake is not None:
                    wake.announce_waiting()
                # Once more after the announcement: a release in between would have woken nobody.
                if self.file.try_lock(exclusive=True):
                    return
                now = time.monotonic_ns()
                if now >= deadline:
                    raise self.timeout(wake, timeout_s)
                if now >= until:
                    shared = True
                    raise StillHeld
                if wake is None:
                    time.sleep(0.002)
                else:
                    wake.wait_unlock()
        finally:
            if not shared:  # it goes on waiting otherwise
                began = deadline - int(timeout_s * 1e9)
                self.metrics.took("lock_wait", time.monotonic_ns() - began, "lock_waits")

    def timeout(self, wake: Wake | None, timeout_s: float) -> LockTimeoutError:
        """The error of who waited so long, which names the owner; it is counted."""
        self.metrics.count("lock_timeouts")
        pid, start = wake.owner if wake is not None else (0, 0)
        if pid and start and process_identity.start_ticks(pid) != start:
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
            self.passed_over = self.passed_over + 1 if wake.signal_unlock() else 0

    def close(self, wake: Wake | None = None) -> None:
        """Close without unlocking explicitly (also in a forked child). The holder wakes the next
        process: a close keeps the lock to the end.
        """
        self.file.close()
        if self.held and wake is not None:
            self.held = False
            wake.signal_unlock()
