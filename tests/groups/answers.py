"""What both sides answer, in one form, and where two answers differ.

Invariants: IDs are ``StreamID``, names and fields bytes, rows tuples; a time is :class:`Ms` and is
compared with a slack, everything else exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from logstore.ids import StreamID, parse_id

Answer = Any  # None, a number, bytes, StreamID, Ms, Refused, or a tuple or dict of those


@dataclass(frozen=True)
class Ms:
    """A duration or a moment, compared with a slack."""

    ms: int


@dataclass(frozen=True)
class Refused:
    """An error: the peer's words, or ours, which begin with the peer's."""

    words: str


@dataclass(frozen=True)
class Trim:
    """A trimming rule; ``references`` is "keep", "delete" or "acked"."""

    max_entries: int | None = None
    min_id: StreamID | None = None
    approximate: bool = False
    references: str = "keep"


class Group(NamedTuple):
    """A row of XINFO GROUPS."""

    name: bytes
    consumers: int
    pending: int
    last: StreamID
    entries_read: int | None
    lag: int | None


class DifferenceError(AssertionError):
    """Two answers that must be the same are not."""


def entry_id(text: bytes) -> StreamID:
    """The ID in a reply."""
    return parse_id(text)


def difference(ours: Answer, theirs: Answer, slack_ms: int, where: str = "") -> str | None:
    """Where the first difference is, None if there is none."""
    if isinstance(ours, Ms) and isinstance(theirs, Ms):
        same = abs(ours.ms - theirs.ms) <= slack_ms
        return None if same else f"{where}: {ours} ours, {theirs} theirs, slack {slack_ms} ms"
    if isinstance(ours, Refused) and isinstance(theirs, Refused):
        same = ours.words.startswith(theirs.words)
        return None if same else f"{where}: {ours} ours, {theirs} theirs"
    if isinstance(ours, dict) and isinstance(theirs, dict) and list(ours) == list(theirs):
        keys, pairs = list(ours), list(zip(ours.values(), theirs.values(), strict=True))
    elif isinstance(ours, tuple) and isinstance(theirs, tuple) and len(ours) == len(theirs):
        fields: tuple[str, ...] | None = getattr(ours, "_fields", None)
        keys, pairs = list(fields or range(len(ours))), list(zip(ours, theirs, strict=True))
    else:
        same = type(ours) is type(theirs) and ours == theirs
        return None if same else f"{where}: {ours!r} ours, {theirs!r} theirs"
    for key, (one, other) in zip(keys, pairs, strict=True):
        found = difference(one, other, slack_ms, f"{where}/{key}")
        if found is not None:
            return found
    return None
