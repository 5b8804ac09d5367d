"""Counts of one process: commits, bytes, syncs, lock waits. Plain numbers, read as a mapping."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Metrics:
    """Counters since the store was opened in this process."""

    commits: int = 0
    commit_bytes: int = 0
    operations: int = 0
    syncs: int = 0
    sync_ns: int = 0
    sync_ns_max: int = 0
    rolls: int = 0
    torn_tails: int = 0

    def sync(self, took_ns: int) -> None:
        """Count one sync."""
        self.syncs += 1
        self.sync_ns += took_ns
        self.sync_ns_max = max(self.sync_ns_max, took_ns)

    def as_dict(self) -> dict[str, int]:
        """All counters by name."""
        return asdict(self)
