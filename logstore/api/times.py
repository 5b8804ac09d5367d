"""Moments as people say them: how long ago, a day, a date and time; turned into IDs.

Text without a time zone, and days, are of UTC, as all times are that the store tells; a
``datetime`` without one is refused, for it is what the machine's clock shows.

Invariants: both ends belong to the interval; of a day all of it does. Everything else is refused by
an OptionError that says what to give.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TypeAlias

from logstore.errors import InvalidIDError, OptionError, shown
from logstore.ids import U64_MAX, StreamID, datetime_ms

When: TypeAlias = timedelta | datetime | date | str
_AGO = re.compile(r"-((?:\d+(?:\.\d+)?(?:ms|[smhdw]))+)")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DAY_MS = 86_400_000


def since_id(when: When, now_ms: int, name: str = "since") -> StreamID:
    """The first ID of a moment, or of a day. OptionError."""
    first_ms, _ = _span(when, now_ms, name)
    return StreamID(first_ms, 0)


def until_id(when: When, now_ms: int, name: str = "until") -> StreamID:
    """The last ID of a moment's millisecond, or of a day. OptionError."""
    _, last_ms = _span(when, now_ms, name)
    return StreamID(last_ms, U64_MAX)


def _span(when: When, now_ms: int, name: str) -> tuple[int, int]:
    """The first and the last millisecond of what was said."""
    given: object = when
    if isinstance(given, str):
        given = _read(given, name)
    if isinstance(given, timedelta):
        if given < timedelta(0):
            raise OptionError(f"{name} is how long ago, and not negative: {shown(when)}")
        moment_ms = max(0, now_ms - given // timedelta(milliseconds=1))
        return moment_ms, moment_ms
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise OptionError(f"{name} is a naive datetime: give it a time zone: {shown(when)}")
        moment_ms = _ms(given, name)
        return moment_ms, moment_ms
    if isinstance(given, date):
        first_ms = _ms(datetime(given.year, given.month, given.day, tzinfo=UTC), name)
        return first_ms, first_ms + _DAY_MS - 1
    raise OptionError(
        f"{name} is a timedelta (how long ago), an aware datetime, a date, or text such as '-1h', "
        f"'2026-01-31' or '2026-01-31T12:00:00Z', not {shown(when)}; IDs are given as start and end"
    )


def _ms(moment: datetime, name: str) -> int:
    try:
        return datetime_ms(moment)
    except InvalidIDError as error:
        raise OptionError(f"{name}: {error.message}") from error


def _read(text: str, name: str) -> timedelta | date | str:
    """What a text says; the text itself if it says nothing."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        parts = _PART.findall(ago[1])
        try:
            return timedelta(milliseconds=sum(float(n) * _UNIT_MS[unit] for n, unit in parts))
        except OverflowError:
            raise OptionError(f"{name} is longer ago than any entry: {shown(text)}") from None
    try:
        if len(text) == len("2026-01-31"):
            return date.fromisoformat(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
