"""Time, as the store sees it.

A :class:`Clock` gives unix milliseconds for IDs and ages; tests inject their own. Monotonic time
(for time-outs and the flusher) is never injected. A length of time that is written as text is read
here, for the API, the command line and Spark alike. Imports errors only.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Protocol

from logstore.errors import OptionError, shown

CLOCK_MAX_MS = 253_402_300_799_999  # the end of the year 9999, the last that a datetime has
SECONDS_MAX = 100_000_000_000  # ms: March 1973; as seconds: the year 5138


_LENGTH = r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])"
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_LENGTH_CHARS_MAX = 100


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


def read_length(text: str) -> timedelta:
    """A length of time as people write it: ``250ms``, ``10m``, ``1h30m``, ``0``.

    Raises:
        ValueError: it says none; the error's text says what to write.
        OverflowError: it is longer than a ``timedelta`` can be.
    """
    import re  # compiled when it is asked for: most processes give no such text

    if len(text) <= _LENGTH_CHARS_MAX and re.fullmatch(f"(?:{_LENGTH})+", text):
        parts = (float(number) * _UNIT_MS[unit] for number, unit in re.findall(_LENGTH, text))
        try:
            return timedelta(milliseconds=sum(parts))
        except OverflowError:
            raise OverflowError(
                f"must be at most {timedelta.max.days} days, not {shown(text)}"
            ) from None
    if text == "0":
        return timedelta(0)
    if len(text) <= _LENGTH_CHARS_MAX and re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text):
        raise ValueError(f"has no unit: for seconds give {text + 's'!r}, not {text!r}")
    raise ValueError(f"is no length of time: give 90s, 1h30m, 7d or the like, not {shown(text)}")


def monotonic_ms() -> int:
    """Milliseconds that never go back within one boot, the same in every process."""
    return time.monotonic_ns() // 1_000_000
