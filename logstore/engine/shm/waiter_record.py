"""One slot of a waiter as it was read (``shm.waiters``): who waits, for what, and whether it lives.

Invariant: read without a lock, so that its owner may have changed it since.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from logstore.clock import monotonic_ms
from logstore.engine.shm import process
from logstore.engine.shm.pace import PACE


class Row(NamedTuple):
    """One slot as it was read."""

    word: int
    state: int
    ticket: int
    key: int
    pid: int
    start: int
    beat_ms: int
    line: int
    wish: int
    slot: int

    def alive(self) -> bool:
        """Whether its owner lives and stirs."""
        return self.owner_state() != process.GONE

    def owner_state(self) -> int:
        """As ``process.state_of`` says; gone, too, is one that does not stir."""
        if monotonic_ms() - self.beat_ms > PACE.stale_ms:
            return process.GONE
        return process.RUNS if self.pid == os.getpid() else process.state_of(self.pid, self.start)
