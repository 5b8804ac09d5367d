"""Sizes, moments and lengths of time as people read them: in terminals, and in the web view.

Invariants: the texts are short and rounded, so programs take the raw numbers instead; a moment
has its time zone, which is UTC. Knows nothing of stores.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
# IDs need not be times: what lies before this was given by hand (the year 2001).
_CLOCK_MS_MIN = 1_000_000_000_000


def size(count: int) -> str:
    """A number of bytes: 1.5 MiB."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"


def share(part: int, whole: int) -> str:
    """A part of a whole: 34 %."""
    if not whole:
        return "0 %"
    percent = 100 * part / whole
    return "<1 %" if 0 < percent < 1 else f"{percent:.0f} %"


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things: 1 segment, 1,200 segments."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def length(span: timedelta | None) -> str:
    """A length of time, in its largest unit: 3 h; nothing for none."""
    if span is None:
        return ""
    seconds = span.total_seconds()
    for unit, name in _UNITS:
        if seconds >= unit:
            return f"{seconds / unit:,.0f} {name}"
    return "now"


def age(moment: datetime | None) -> str:
    """How long ago a moment is, as ``length`` tells it; nothing for none."""
    if moment is None:
        return ""
    return length(timedelta(seconds=time.time() - moment.timestamp()))


def ago(moment: datetime | None) -> str:
    """The same in a sentence: 3 h ago, just now, in 2 d."""
    if moment is None:
        return "never"
    seconds = time.time() - moment.timestamp()
    text = length(timedelta(seconds=abs(seconds)))
    if text == "now":
        return "just now"
    return f"{text} ago" if seconds > 0 else f"in {text}"


def at(ms: int) -> datetime | None:
    """The moment of unix milliseconds; None past the year 9999."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def clock(ms: int) -> datetime | None:
    """The moment of an ID's milliseconds; None where they are no time of a clock of today."""
    moment = at(ms) if ms >= _CLOCK_MS_MIN else None
    return None if moment is None or moment.year > datetime.now(UTC).year + 100 else moment


def date(moment: datetime | None) -> str:
    """A moment to the second: 2026-11-23 16:10:05 UTC; nothing for none."""
    if moment is None:
        return ""
    return f"{moment.astimezone(UTC).isoformat(' ', 'seconds')[:19]} UTC"
