"""Where a batch read begins and ends, stream by stream.

The options say it in words, as an ID, or as JSON with a line for each stream; a group's last
delivered ID is looked up when the read is planned. What begins at an offset begins behind it, what
ends at one ends with it: so a read from where another one ended has each entry once.

Invariants: an offset for a stream that is not read is an OptionError, and so is a group that a
stream does not have: neither is passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import TypeAlias

from logstore.errors import InvalidIDError, OptionError
from logstore.ids import MAX_ID, ZERO_ID, StreamID, parse_id
from logstore.tuples import NamedTuple

EARLIEST, LATEST = "earliest", "latest"
Range: TypeAlias = tuple[StreamID, StreamID]


class Offsets(NamedTuple):
    """Of one end of the range: for all streams, or by name for some; None: no such option."""

    every: StreamID | None = None
    named: tuple[tuple[str, StreamID], ...] = ()


EVERY = Offsets()


def parse(option: str, text: str, *, start: bool) -> Offsets:
    """The value of 'startingOffsets' or 'endingOffsets'."""
    if not text.lstrip().startswith("{"):
        return Offsets(_offset(option, text, start=start))
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise OptionError(f"option {option!r} is no JSON object of offsets: {error}") from None
    named: list[tuple[str, StreamID]] = []
    for name, value in found:
        if not isinstance(value, str):
            raise OptionError(f"option {option!r}: the offset of {name!r} must be text: {value!r}")
        named.append((name, _offset(option, value, start=start)))
    return Offsets(None, tuple(named))


def _once(pairs: list[tuple[str, object]]) -> list[tuple[str, object]]:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"{name!r} is there twice")
        seen.add(name)
    return pairs


def _offset(option: str, text: str, *, start: bool) -> StreamID:
    """The first ID, or the last one."""
    allowed = EARLIEST if start else LATEST
    if text == allowed:
        return ZERO_ID if start else MAX_ID
    if text in (EARLIEST, LATEST):
        raise OptionError(f"option {option!r} would leave nothing to read: {text!r}")
    try:
        found = parse_id(text)
    except InvalidIDError as error:
        raise OptionError(
            f"option {option!r} is {allowed}, an ID, or JSON such as "
            f'{{"laps": "{allowed}", "pits": "5-0"}}: {error}'
        ) from None
    if start and found == MAX_ID:
        raise OptionError(f"option {option!r} would leave nothing to read: {text!r}")
    return found.next() if start else found


def check(option: str, offsets: Offsets, names: Collection[bytes]) -> None:
    """OptionError for an offset of a stream that is not read."""
    known = {shown(name) for name in names} if offsets.named else set()
    for name, _ in offsets.named:
        if name not in known:
            raise OptionError(
                f"option {option!r} names {name!r}, which is not among the streams that are read"
            )


def shown(name: bytes) -> str:
    """The name of a stream in options and tables: what is not UTF-8 as ``\\xff``."""
    return name.decode("utf-8", "backslashreplace")


def meant(text: str) -> bytes:
    """The name that `shown` shows so, unless a stream is really called by the text."""
    return re.sub(rb"\\x([0-9a-f]{2})", lambda at: bytes.fromhex(at[1].decode()), text.encode())


def ranges(
    names: Sequence[bytes],
    every: Range,
    starts: Offsets,
    ends: Offsets,
    behind: dict[bytes, StreamID],
) -> dict[Range, list[bytes]]:
    """The streams by their range, without those of which there is nothing to read; ``behind``:
    where those begin that a group has read."""
    first, last = dict(starts.named), dict(ends.named)
    found: dict[Range, list[bytes]] = {}
    for name in names:
        text = shown(name)
        start = behind.get(name, first.get(text, every[0]))
        end = last.get(text, every[1])
        if start <= end:
            found.setdefault((start, end), []).append(name)
    return found
