"""Entries of a stream by time and by value, as somebody asks for them in one line.

A line is a condition, ``temp > 20 and room = 'a'``, if it has a sign of one: a comparison, ``is
null``, ``like '..'``, ``in (..)``, ``between .. and``. ``room=cellar`` is one without quotes, as on
the command line. Any other line is a text that a value must contain, large and small letters
alike; one in "double quotes" always is.

Invariants: a search looks at a bounded number of entries and bytes, the newest first, and says at
how many, from where to where, and below which ID it goes on. What cannot be understood is told at
the input that it was typed into.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from logstore.api import coded, showing
from logstore.api.entry import Entry, codec_of, stored_pairs
from logstore.api.info import plain_text
from logstore.api.opening import opened_of
from logstore.api.stream import Stream
from logstore.errors import OptionError, SchemaError, UsageError
from logstore.ids import MAX_ID, ZERO_ID, StreamID, parse_end, since_id, until_id
from logstore.tuples import NamedTuple
from logstore.web.shown_fields import EntryRow, entry_row, kinds_of

ENTRIES_A_PAGE = 50
SEARCHED_MAX = 20_000  # entries that a page looks at for those that are asked for
SEARCHED_MAX_BYTES = 64 << 20
PAGE_MAX_BYTES = 4 << 20  # of entries, behind which the next page begins
LINE_MAX_CHARACTERS = 4000
INPUTS = ("q", "since", "until")  # whose troubles are told

_SIGN: Final = re.compile(
    r"[<>=]|\bis\s+(?:not\s+)?null\b|\blike\s*'|\bin\s*\(|\bbetween\s.*\sand\b", re.IGNORECASE
)
_PAIR: Final = re.compile(r"""([^\s=<>!'"()]+)=([^\s='"()]+)""")
_QUOTED: Final = re.compile(r'"(?:[^"]|"")+"')
_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
_OF_LINE: Final = "where: "
_NO_MOMENT: Final = "This is no moment: write such as -1h, today, 2026-01-31 or 2026-01-31T12:00Z."


class Asked(NamedTuple):
    """What was typed: ``since`` and ``until`` are moments, ``line`` is a condition or a text,
    ``before`` an ID that all entries are below; each may be empty."""

    since: str = ""
    until: str = ""
    line: str = ""
    before: str = ""


@dataclass
class Found:
    """A page of entries, the newest first, and what was looked at for it."""

    rows: list[EntryRow] = field(default_factory=list[EntryRow])
    older: str = ""  # below which ID the next page begins; empty: there is none
    looked_at: int = 0
    newest: StreamID | None = None  # of what was looked at
    oldest: StreamID | None = None
    text: str = ""  # that was looked for; empty: a condition was, or nothing
    id: str = ""  # that the line is
    troubles: dict[str, str] = field(default_factory=lambda: dict.fromkeys(INPUTS, ""))

    @property
    def is_understood(self) -> bool:
        """Whether nothing is wrong with what was typed."""
        return not any(self.troubles.values())

    @property
    def since(self) -> datetime | None:
        """When the oldest that was looked at was added, if its ID tells a time."""
        return None if self.oldest is None else showing.clock(self.oldest.ms)

    @property
    def until(self) -> datetime | None:
        """The same of the newest."""
        return None if self.newest is None else showing.clock(self.newest.ms)


def text_of(line: str) -> str:
    """The text that a line asks for; empty if it is a condition, or nothing."""
    line = line.strip()
    if _QUOTED.fullmatch(line):
        return line[1:-1].replace('""', '"')
    return "" if _SIGN.search(line) else line


def quoted(line: str) -> str:
    """A line that asks for this as a text, whatever is in it."""
    return '"' + line.strip().replace('"', '""') + '"'


def search(stream: Stream[Any], asked: Asked) -> Found:
    """Entries of a stream that is there, as they were asked for.

    Raises:
        InvalidIDError: ``before`` is no ID.
    """
    found = Found()
    low, high = _interval(stream, asked, found.troubles)
    holds: Callable[[Entry[Any]], bool] | None = None
    line = asked.line.strip()
    if len(line) > LINE_MAX_CHARACTERS:
        found.troubles["q"] = f"A search has at most {LINE_MAX_CHARACTERS:,} characters."
    elif line:
        found.text = text_of(line)
        found.id = line if _ID.fullmatch(line) else ""
        try:
            holds, low, high = _test(stream, line, low, high)
        except (OptionError, SchemaError) as error:
            found.troubles["q"] = error.message.removeprefix(_OF_LINE)
    if found.is_understood and low <= high:
        _look(stream, (low, high), holds, found)
    return found


def _interval(
    stream: Stream[Any], asked: Asked, troubles: dict[str, str]
) -> tuple[StreamID, StreamID]:
    """From which ID to which; what is no moment is told. InvalidIDError."""
    now_ms = opened_of(stream).engine().clock.now_ms()
    low, high = ZERO_ID, MAX_ID
    try:
        low = since_id(asked.since.strip(), now_ms) if asked.since.strip() else low
    except UsageError:
        troubles["since"] = _NO_MOMENT
    try:
        high = until_id(asked.until.strip(), now_ms) if asked.until.strip() else high
    except UsageError:
        troubles["until"] = _NO_MOMENT
    if not any(troubles.values()) and low > high:
        troubles["until"] = "until is before since: give the earlier one first"
    if asked.before:
        high = min(high, parse_end(f"({asked.before}"))
    return low, high


def _test(
    stream: Stream[Any], line: str, low: StreamID, high: StreamID
) -> tuple[Callable[[Entry[Any]], bool], StreamID, StreamID]:
    """What says whether an entry is one of those, and where they can be. OptionError, SchemaError
    for a condition that cannot be."""
    text = text_of(line)
    if text:
        return _contains(text, stream), low, high
    match = _matching(stream, line)
    assert match is not None
    return match.holds, max(low, match.interval[0]), min(high, match.interval[1])


def _matching(stream: Stream[Any], line: str) -> Any:
    """A condition as it is asked of entries; FIELD=VALUE, which is none, as the equality it is."""
    try:
        return coded.matching_of(stream, line)
    except (OptionError, SchemaError):
        pair = _PAIR.fullmatch(line)
        if pair is None:
            raise
        return coded.matching_of(stream, f"{pair[1]} = '{pair[2]}'")


def _contains(text: str, stream: Stream[Any]) -> Callable[[Entry[Any]], bool]:
    """What says whether a value of an entry contains a text."""
    if text.isascii() and not isinstance(stream, coded.CodedStream):
        has = re.compile(re.escape(text.encode()), re.IGNORECASE).search
        return lambda entry: any(has(value) for _, value in stored_pairs(entry))
    wanted = text.casefold()
    return lambda entry: any(
        wanted in _as_shown(entry, value).casefold() for _, value in stored_pairs(entry)
    )


def _as_shown(entry: Entry[Any], stored: bytes) -> str:
    from logstore.api.values import typed_text

    codec = codec_of(entry)
    text = None if codec is None else typed_text(codec, stored)
    return plain_text(stored) if text is None else text


def _look(
    stream: Stream[Any],
    interval: tuple[StreamID, StreamID],
    holds: Callable[[Entry[Any]], bool] | None,
    found: Found,
) -> None:
    """Go through entries until a page is full, or enough was looked at."""
    kinds = kinds_of(stream)
    size = looked_bytes = 0
    most = ENTRIES_A_PAGE if holds is None else SEARCHED_MAX
    low, high = interval
    for entry in stream.range(low, high, count=most + 1, reverse=True):
        is_full = len(found.rows) == ENTRIES_A_PAGE or size > PAGE_MAX_BYTES
        if is_full or found.looked_at == most or looked_bytes > SEARCHED_MAX_BYTES:
            found.older = str(found.oldest)
            return
        entry_bytes = sum(len(name) + len(value) for name, value in stored_pairs(entry))
        looked_bytes += entry_bytes
        found.looked_at += 1
        found.newest = found.newest or entry.id
        found.oldest = entry.id
        if holds is None or holds(entry):
            found.rows.append(entry_row(entry, kinds))
            size += entry_bytes
