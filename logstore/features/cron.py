"""When an entry that repeats is added again: its name, and a length of time or a cron expression.

The rule stands in front of the packed fields of a scheduled entry, behind a length that no field
can have; so it goes wherever they go: frames, rows of the index, checkpoints, salvaged copies.

Invariants: a moment is computed from the rule and the time that is given, never from a clock of
its own, so that replay, which has none, computes nothing. Moments that were missed are one: the
next is always later than the given time, and those of a length of time keep their phase. cronsim is
loaded when a cron expression is asked.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import msgpack

from logstore import format as fmt
from logstore.errors import OptionError, shown
from logstore.tuples import NamedTuple

NAME_MAX_BYTES = 200
CRON_MAX_CHARS = 200
RULE_MAX_BYTES = 2000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MARK = fmt.SCHEDULE_PART.pack(fmt.SCHEDULE_RULE)
_HEAD = len(_MARK) + fmt.SCHEDULE_PART.size


class Repeat(NamedTuple):
    """The rule of one repeating schedule; its name is one of its stream's."""

    name: str
    every_ms: int  # 0: by the cron expression
    first_ms: int  # one of the moments of a length of time (unix ms); 0 with a cron expression
    cron: str
    zone: str  # of the cron expression, as IANA names it; empty with a length of time

    def after(self, ms: int) -> int | None:
        """The first moment later than ``ms`` (both unix ms); None: there is none any more.

        OptionError for a cron expression or a time zone that is unknown here.
        """
        if self.every_ms:
            return max(self.first_ms, ms + self.every_ms - (ms - self.first_ms) % self.every_ms)
        return _cron_after(self.cron, self.zone, ms)

    def same_as(self, other: Repeat, *, phase: bool) -> bool:
        """Whether both say the same; without ``phase`` whatever moment they began at."""
        if self._replace(first_ms=0) != other._replace(first_ms=0):
            return False
        return (
            not phase or not self.every_ms or not (self.first_ms - other.first_ms) % self.every_ms
        )

    def packed(self) -> bytes:
        """The rule as bytes, to stand in front of packed fields."""
        kept: dict[str, Any] = {"name": self.name}
        if self.every_ms:
            kept |= {"every": self.every_ms, "first": self.first_ms}
        else:
            kept |= {"cron": self.cron, "zone": self.zone}
        rule: bytes = msgpack.packb(kept)
        return _MARK + fmt.SCHEDULE_PART.pack(len(rule)) + rule


def split(data: bytes) -> tuple[bytes, bytes]:
    """The rule, as it is packed (empty: there is none), and the packed fields. struct.error."""
    if not data.startswith(_MARK):
        return b"", data
    (size,) = fmt.SCHEDULE_PART.unpack_from(data, len(_MARK))
    if size > min(RULE_MAX_BYTES, len(data) - _HEAD):
        raise struct.error("the rule of a repeating schedule is longer than the frame")
    return data[: _HEAD + size], data[_HEAD + size :]


def unpacked(packed: bytes) -> Repeat:
    """A rule from its bytes, as ``split`` gives them. struct.error."""
    try:
        kept = msgpack.unpackb(packed[_HEAD:])
        found = Repeat(
            kept["name"], kept.get("every", 0), kept.get("first", 0), kept.get("cron", ""),
            kept.get("zone", ""),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException) as exc:
        raise struct.error(f"not the rule of a repeating schedule: {exc}") from exc
    if not all(isinstance(text, str) for text in (found.name, found.cron, found.zone)) or not all(
        isinstance(ms, int) and ms >= 0 for ms in (found.every_ms, found.first_ms)
    ):
        raise struct.error("not the rule of a repeating schedule")
    if bool(found.every_ms) == bool(found.cron):
        raise struct.error("a repeating schedule without a time, or with two")
    return found


def of(data: bytes) -> Repeat | None:
    """The rule in front of packed fields; None for an entry that comes once. struct.error."""
    rule = split(data)[0]
    return unpacked(rule) if rule else None


def _cron_after(cron: str, zone: str, ms: int) -> int | None:
    from cronsim import CronSim, CronSimError

    begin = (_EPOCH + timedelta(milliseconds=ms)).astimezone(_zone(zone))
    try:
        moments = CronSim(cron, begin)
    except CronSimError as exc:
        raise OptionError(
            f"{shown(cron)} is no cron expression, or never fires: {exc}; give minute, hour, day "
            "of month, month and day of week, as '30 3 * * MON-FRI'"
        ) from exc
    try:
        found = next(moments, None)
    except (OverflowError, ValueError):  # it looked up to the last year that there is
        found = None
    return None if found is None else (found - _EPOCH) // timedelta(milliseconds=1)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as exc:  # ZoneInfoNotFoundError is a KeyError
        raise OptionError(
            f"the time zone {shown(name)} is unknown here: give an IANA name, as Europe/Berlin "
            "(if this system has none of them: pip install tzdata)"
        ) from exc
