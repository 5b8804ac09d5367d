"""Time, as the store sees it.

A :class:`Clock` gives unix milliseconds for IDs and ages; tests inject their own. Monotonic time
(for time-outs and the flusher) is never injected. Imports nothing of ours.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Anything that tells unix time in milliseconds."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        ...


class SystemClock:
    """The machine's real-time clock."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return time.time_ns() // 1_000_000

    def __reduce__(self) -> str:
        return "SYSTEM_CLOCK"  # one object a process, so that options compare equal


SYSTEM_CLOCK = SystemClock()


def monotonic_ms() -> int:
    """Milliseconds that never go back within one boot, the same in every process."""
    return time.monotonic_ns() // 1_000_000
