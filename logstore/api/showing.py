"""How entries, sizes and times look where people, and not programs, read them.

In terminals, notebooks and web answers. Invariants: what is shown is short, however large an entry
is, and says what was left out; nothing that was stored is taken for markup; numbers are rounded,
and a moment has its time zone, which is UTC. It is loaded when something is shown first, and knows
nothing of stores.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from html import escape
from itertools import islice
from typing import Any

from logstore.ids import ZERO_ID, StreamID
from logstore.loading import load

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
# IDs need not be times: what lies before this was given by hand (the year 2001).
_CLOCK_MS_MIN = 1_000_000_000_000


_SIZE_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def size_unit(count: int) -> str:
    """The unit in which a number of bytes is told: the largest of which there is one."""
    power = max(0, count.bit_length() - 1) // 10
    if 1024 ** (power + 1) - count < 1024**power // 20:  # which would be told as 1024.0
        power += 1
    return _SIZE_UNITS[min(power, len(_SIZE_UNITS) - 1)]


def size_in(count: int, unit: str) -> str:
    """A number of bytes in a unit, without its name: 1.5, or <0.1."""
    if unit == "bytes":
        return str(count)
    amount = count / 1024 ** _SIZE_UNITS.index(unit)
    return "<0.1" if 0 < amount < 0.05 else f"{amount:,.1f}" if count else "0"


def size(count: int) -> str:
    """A number of bytes: 1.5 MiB."""
    unit = size_unit(count)
    return f"{size_in(count, unit)} {unit}"


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


def stamp(ms: int) -> str:
    """The moment of an ID as it can be typed again, 2026-11-23T16:10:05.123Z; nothing
    where they are no time of a clock."""
    moment = clock(ms)
    return "" if moment is None else f"{moment.isoformat(timespec='milliseconds')[:-6]}Z"


def readable(raw: bytes) -> str:
    """Bytes as printable text, unambiguous by its backslash escapes."""
    text = raw.decode("utf-8", "surrogateescape")
    return text if text.isprintable() and "\\" not in text else "".join(map(_escaped, text))


def printable(text: str) -> str:
    """Text without characters that control a terminal; its backslash escapes stay."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def quoted(text: str) -> str:
    """Text as a shell wants it; letters and digits of any language need no quotes there."""
    return text if text and all(map(_is_plain, text)) else shlex.quote(text)


def _is_plain(character: str) -> bool:
    return character.isalnum() or character in "@%+=:,./-_"


def short_length(length: timedelta | None) -> str:
    """A length of time for people, its two largest showing."""
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


VALUE_MAX = 80  # characters or bytes of a value that are shown
FIELDS_MAX = 20  # fields that are shown


def value(given: Any) -> str:
    """A value, cut if it is long; the whole length stands behind it then."""
    if isinstance(given, str | bytes) and len(given) > VALUE_MAX:
        unit = "bytes" if isinstance(given, bytes) else "characters"
        return f"{given[:VALUE_MAX]!r}... ({len(given)} {unit})"
    shown = repr(given)
    return (
        shown
        if len(shown) <= 2 * VALUE_MAX or isinstance(given, str | bytes)
        else (f"{shown[: 2 * VALUE_MAX]}...")
    )


def mapping(fields: Mapping[Any, Any]) -> str:
    """Fields as a dict is shown, long ones and very many of them cut."""
    shown = [f"{value(name)}: {value(fields[name])}" for name in islice(fields, FIELDS_MAX)]
    if len(fields) > FIELDS_MAX:
        shown.append(f"... ({len(fields)} fields)")
    return f"{{{', '.join(shown)}}}"


LINE_MAX = 78  # characters of a line about one thing


def lines_of(info: Any) -> str:
    """A dataclass of facts as lines of names and values; what is nothing is left out."""
    from dataclasses import fields  # here: a command that adds shows no facts

    said: dict[str, str] = {}
    for field in fields(info):
        given = getattr(info, field.name)
        if getattr(given, "_field_defaults", None):  # settings: those that were changed
            said |= {name: _setting(name, each) for name, each in given._asdict().items()
                     if each != given._field_defaults[name]}  # fmt: skip
        elif field.name == "length" or given not in (None, 0, "", b"", ()):
            said[field.name] = _fact(field.name, given)
    shown = {_without_unit(name): text for name, text in said.items() if text}
    width = max(map(len, shown), default=0)
    return "\n".join(_cut(f"{name:{width}}  {text}") for name, text in shown.items())


def _without_unit(name: str) -> str:
    """The name of a fact, whose value has its unit."""
    if name != "max_bytes":  # the name of an option
        name = name.removesuffix("_bytes").removesuffix("_ms").removesuffix("_s")
    return name.replace("_", " ")


def _fact(name: str, given: Any) -> str:
    """A fact for people; empty for an ID that is none."""
    if isinstance(given, StreamID):
        moment = clock(given.ms)
        known = f"{given}" if moment is None else f"{given}, {ago(moment)}"
        return "" if given == ZERO_ID else known
    if isinstance(given, datetime):
        return f"{date(given)}, {ago(given)}"
    if isinstance(given, timedelta):
        return length(given)
    if isinstance(given, int) and name.endswith("_ms"):
        return ago(at(given))
    if isinstance(given, list | tuple) and not hasattr(given, "_fields"):
        return f"{len(given):,}"
    return _setting(name, given)


def _setting(name: str, given: Any) -> str:
    """A number with the unit that its name has, or a text."""
    if isinstance(given, int) and not isinstance(given, bool):
        if name.endswith(("_ms", "_s")):
            return length(timedelta(milliseconds=given if name.endswith("_ms") else 1000 * given))
        return size(given) if name.endswith("_bytes") else f"{given:,}"
    return given if isinstance(given, str) and given.isprintable() else str(given)


def _cut(line: str) -> str:
    return line if len(line) <= LINE_MAX else f"{line[: LINE_MAX - 3]}..."


def table(caption: str | None, pairs: Iterable[tuple[Any, Any]]) -> str:
    """Fields as a table of HTML."""
    every = list(pairs)
    rows = [
        f"<tr><th>{escape(_cell(name))}</th><td>{escape(_cell(given))}</td></tr>"
        for name, given in every[:FIELDS_MAX]
    ]
    if len(every) > FIELDS_MAX:
        rows.append(f"<tr><td colspan='2'>... ({len(every)} fields)</td></tr>")
    head = "" if caption is None else f"<caption>{escape(caption)}</caption>"
    return f"<table>{head}{''.join(rows)}</table>"


def _cell(given: Any) -> str:
    """Text as it is, all else as Python writes it."""
    if isinstance(given, str) and len(given) <= VALUE_MAX and given.isprintable():
        return given
    return value(given)


def pydantic_schema(made: type[Any], make: Callable[[dict[str, Any]], Any] | None) -> Any:
    """What pydantic needs to know of entries: instances are taken, and given as ``as_dict``; what
    looks so becomes an entry again by ``make``.
    """
    schemas = load("pydantic_core.core_schema")  # only pydantic calls this
    shape = schemas.typed_dict_schema(
        {
            "id": schemas.typed_dict_field(schemas.str_schema()),
            "fields": schemas.typed_dict_field(
                schemas.nullable_schema(
                    schemas.dict_schema(schemas.any_schema(), schemas.any_schema())
                )
            ),
        }
    )
    taken: Any = shape
    python: Any = schemas.is_instance_schema(made)
    if make is not None:
        taken = schemas.no_info_after_validator_function(make, shape)
        python = schemas.union_schema([python, taken])
    return schemas.json_or_python_schema(
        json_schema=taken,
        python_schema=python,
        serialization=schemas.plain_serializer_function_ser_schema(
            made.as_dict, return_schema=shape
        ),
    )
