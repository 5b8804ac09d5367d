"""Time, as the store sees it.

A :class:`Clock` gives unix milliseconds for IDs and ages; tests inject their own. Monotonic time
(for time-outs and the flusher) is never injected. Imports errors only.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from logstore.errors import OptionError, shown

CLOCK_MAX_MS = 253_402_300_799_999  # the end of the year 9999, the last that a datetime has
SECONDS_MAX = 100_000_000_000  # ms: March 1973; as seconds: the year 5138


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


class CheckedClock:
    """A clock that somebody gave: what it tells is checked before the store works with it."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        """Unix time in milliseconds; OptionError if the clock tells something else."""
        given: object = self._clock.now_ms()
        if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= CLOCK_MAX_MS:
            return given
        raise OptionError(
            f"clock.now_ms() must give unix milliseconds of the years 1970 to 9999, not "
            f"{shown(given)}"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CheckedClock) and self._clock == other._clock

    def __repr__(self) -> str:
        return repr(self._clock)

    def __reduce__(self) -> Any:
        return (CheckedClock, (self._clock,))


def checked(clock: Clock | None) -> Clock:
    """The system's clock for None, and any other one with what it tells checked."""
    if clock is None or clock is SYSTEM_CLOCK or isinstance(clock, CheckedClock):
        return clock or SYSTEM_CLOCK
    if not callable(getattr(clock, "now_ms", None)):
        raise OptionError(f"clock must have now_ms(), unix milliseconds: {shown(clock)}")
    return CheckedClock(clock)


def monotonic_ms() -> int:
    """Milliseconds that never go back within one boot, the same in every process."""
    return time.monotonic_ns() // 1_000_000
