"""How long it takes until somebody else commits after a kill."""

from __future__ import annotations

import bisect
from typing import NamedTuple


class Kill(NamedTuple):
    """One moment at which writers were killed."""

    at_ns: int
    slots: frozenset[int]
    alive: int  # how many were left
    locked: bool  # one of the killed held LOCK


class Commits:
    """When which writer's commit was acknowledged, and when writers were killed."""

    def __init__(self) -> None:
        self._times: list[tuple[int, int]] = []
        self._kills: list[Kill] = []

    def add(self, at_ns: int, slot: int) -> None:
        """A commit; slot -1 is the test's own."""
        self._times.append((at_ns, slot))

    def killed(self, at_ns: int, slots: list[int], *, alive: int, locked: bool) -> None:
        """A kill."""
        self._kills.append(Kill(at_ns, frozenset(slots), alive, locked))

    def took_ms(self, *, alive: bool, locked: bool | None = None) -> list[float]:
        """Milliseconds from each kill to the next commit of another process, sorted.

        ``alive``: of kills that left writers, or of those that left none, after which the store is
        opened anew; ``locked``: only of those that hit the holder of LOCK, or did not.
        """
        times = sorted(self._times)
        found: list[float] = []
        for kill in self._kills:
            if bool(kill.alive) != alive or locked not in (None, kill.locked):
                continue
            at = bisect.bisect_left(times, (kill.at_ns, -2))
            following = (t for t, slot in times[at:] if slot not in kill.slots)
            next_ns = next(following, None)
            if next_ns is not None:
                found.append((next_ns - kill.at_ns) / 1e6)
        return sorted(found)


def middle(values: list[float]) -> float:
    """The median; 0 of nothing."""
    return values[len(values) // 2] if values else 0.0
