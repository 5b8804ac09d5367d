"""How often who waits looks by itself, and the times that follow from it.

Waiters are woken by commits, and by each other. What gets lost (a wake-up given to a process that
was killed, a writer that died before it woke anybody) is found by looking once a slice. Tests of
wake-ups make the slice so long that nothing is found by looking.

Invariants: all processes of a store keep the same pace; no time here decides what is right, only
how long a loss goes unnoticed.
"""

from __future__ import annotations

SLICE_S = 0.15


class Pace:
    """The length of a slice, and its multiples."""

    __slots__ = ("announced_ms", "fresh_ms", "slice_s", "stale_ms")

    def __init__(self, slice_s: float) -> None:
        self.set(slice_s)

    def set(self, slice_s: float) -> None:
        """Look every ``slice_s`` seconds from now on."""
        self.slice_s = slice_s
        slice_ms = int(slice_s * 1000)
        self.fresh_ms = slice_ms + slice_ms // 2  # who stirred since then is taken for alive
        self.stale_ms = 10 * slice_ms  # who did not is taken for stopped: it loses its turn
        self.announced_ms = 10 * slice_ms  # for how long a waiter announces itself


PACE = Pace(SLICE_S)
