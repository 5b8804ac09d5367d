"""Counts of one process and store: commits, entries, syncs, waits. Plain numbers, in a mapping.

A counter is one line in ``COUNTERS``, and one in docs/metrics.md. What an operation decides is
counted in ``State.counts``: it joins these when its commit is through, and never if it is decided
again. All else is counted here at once.

Invariants: counting never fails, waits for nobody but another count, and may be cut off by a signal
whose handler counts, too; no clock is read for it but where something waits anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

# Names say what is counted, the unit comes last. Times are kept in ns and given in seconds (`_s`).
COUNTERS = (
    "commits",
    "operations",
    "commit_bytes",
    "added_entries",
    "added_bytes",
    "duplicate_adds",
    "deleted_entries",
    "trimmed_entries",
    "retained_entries",
    "retained_bytes",
    "read_entries",
    "deliveries",
    "redeliveries",
    "claims",
    "acks",
    "nacks",
    "scheduled_added",
    "expired_streams",
    "expired_entries",
    "dead_letters",
    "syncs",
    "sync_ns",
    "sync_ns_max",
    "lock_waits",
    "lock_wait_ns",
    "lock_wait_ns_max",
    "lock_timeouts",
    "waits",
    "wakeups",
    "handed",
    "rolls",
    "torn_tails",
    "index_reopened",
    "checkpoints",
    "compactions",
    "compaction_bytes",
)


class Metrics:
    """Counters since the store was opened in this process."""

    __slots__ = ("_counts", "_guard", "more")

    def __init__(self) -> None:
        self._counts: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        # Re-entrant: a signal handler or a finaliser that reads may come in the midst of a count.
        self._guard = threading.RLock()
        # What somebody else counted since it was asked last: compiled code, without a lock.
        self.more: Callable[[], Mapping[str, int]] | None = None

    def count(self, name: str, more: int = 1) -> None:
        """Count something that happened; KeyError for what is not in ``COUNTERS``."""
        with self._guard:
            self._counts[name] += more

    def took(self, what: str, ns: int, times: str) -> None:
        """Count one of ``times``, its length, and the longest: ``<what>_ns``, ``<what>_ns_max``."""
        with self._guard:
            counts = self._counts
            counts[times] += 1
            counts[f"{what}_ns"] += ns
            longest = f"{what}_ns_max"
            counts[longest] = max(counts[longest], ns)

    def committed(self, operations: int, size_bytes: int, counts: Mapping[str, int]) -> None:
        """Count a commit, and what its operations counted."""
        with self._guard:
            mine = self._counts
            mine["commits"] += 1
            mine["operations"] += operations
            mine["commit_bytes"] += size_bytes
            for name, more in counts.items():
                mine[name] += more

    def add(self, counts: Mapping[str, int]) -> None:
        """Count what was counted elsewhere."""
        with self._guard:
            mine = self._counts
            for name, more in counts.items():
                mine[name] = max(mine[name], more) if name.endswith("_max") else mine[name] + more

    def as_dict(self) -> dict[str, int | float]:
        """All counters by name, of one moment; times in seconds."""
        with self._guard:
            if self.more is not None:
                self.add(self.more())
            counts = dict(self._counts)
        values: dict[str, int | float] = {}
        for name, value in counts.items():
            what, at, rest = name.partition("_ns")
            values[f"{what}_s{rest}" if at else name] = value / 1e9 if at else value
        return values
