"""Timers: whoever sleeps in a store wakes for what is due next.

A word of the control block says when that is. The background thread of each process and every
waiting reader sleep no longer than until then; the first to wake does the work (``due_work``), the
others find that the word moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from logstore.engine.runtime.engine import Engine


class DueWork(Protocol):
    """What does the work that a time was set for."""

    def add(self, due_ms: int) -> float:
        """Do a batch of what is due; after how many seconds to look again."""
        ...


def within(engine: Engine, left_s: float, late_ms: int = 0) -> float:
    """How long to sleep of ``left_s``, so as to wake for what is due next.

    What is due now is done, a batch at most; 0.0 then: look whether it is what you wait for.
    ``late_ms``: leave it to others for so long.
    """
    due_ms, work = engine.wake.next_due_ms, engine.due_work
    if not due_ms or work is None or left_s <= 0:
        return left_s
    ahead_ms = due_ms + late_ms - engine.clock.now_ms()
    if ahead_ms > 0:
        return min(left_s, ahead_ms / 1000)
    return min(left_s, work.add(due_ms))
