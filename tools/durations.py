"""What is typed: lengths of time (``90s``, ``1h30m``, ``7d``), moments, sizes (``10GiB``).

Knows nothing of stores.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import click

from logstore.api import units

UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds",
         "ms": "milliseconds"}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b|bytes?)?", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


class Length(click.ParamType[Any]):
    """A length of time; a number alone is seconds."""

    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text as a timedelta; click's BadParameter says how to write one."""
        if isinstance(value, timedelta):
            return value
        text = str(value).strip()
        try:
            if _WHOLE.fullmatch(text):
                found = _PART.findall(text)
                parts = (timedelta(**{UNITS[unit]: float(number)}) for number, unit in found)
                return sum(parts, timedelta())
            return timedelta(seconds=float(text))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no length of time: give 90s, 1h30m, 7d", param, ctx)


class Moment(click.ParamType[Any]):
    """A moment: ISO 8601, the local time zone where none is given."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text as an aware datetime; click's BadParameter says how to write one."""
        if isinstance(value, datetime):
            return value
        try:
            return datetime.fromisoformat(str(value)).astimezone()
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no moment: give 2026-11-22T10:00 or 2026-11-22T10:00Z",
                      param, ctx)  # fmt: skip


class Size(click.ParamType[Any]):
    """Bytes: ``10GiB`` and ``10G`` by 1024, ``10GB`` by 1000, as GNU programs have it."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text as a number of bytes; click's BadParameter says how to write one."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(str(value).strip())
        if found is None:
            told = f"{value!r} is no size: give bytes, or 500MiB, 10GiB, 2TB"
            raise click.BadParameter(told, ctx, param)
        number, prefix, binary = found.groups()
        base = 1000 if str(value).strip()[-1] in "bB" and not binary else 1024
        power = base ** _POWERS[prefix.lower()] if prefix else 1
        return int(number) * power if number.isdigit() else int(float(number) * power)


LENGTH, MOMENT, SIZE = Length(), Moment(), Size()


def in_words(length: timedelta) -> str:
    """A length of time as it is said, all of it: 7 seconds, 1 hour 30 minutes."""
    left = length
    parts: list[str] = []
    for name in ("days", "hours", "minutes", "seconds", "milliseconds"):
        count, left = divmod(left, timedelta(**{name: 1}))
        if count:
            parts.append(units.counted(count, name.removesuffix("s")))
    return " ".join(parts) or "0 seconds"


def told(length: timedelta | None) -> str:
    """A length of time for people, its two largest units."""
    if length is None:
        return "-"
    left_ms = round(length / timedelta(milliseconds=1))
    parts: list[str] = []
    for unit, each_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        count, left_ms = divmod(left_ms, each_ms)
        if count or parts:
            parts.append(f"{count}{unit}")
        if len(parts) == 2:
            break
    return "".join(part for part in parts if part[0] != "0") or f"{left_ms}ms"
