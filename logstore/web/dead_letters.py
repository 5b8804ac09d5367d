"""Dead letters as they are shown: why an entry died, and where it came from, apart from its fields.

Invariants: an entry of such a stream that somebody put there without an origin is shown as it is;
what stands in an origin is as hostile as any value, and is cut as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from logstore.api import showing
from logstore.api.entry import Entry, stored_pairs
from logstore.api.info import plain_text
from logstore.api.stream import Stream
from logstore.engine.groups.dead_letter import ORIGIN_FIELDS
from logstore.web.addresses import id_of, key_of
from logstore.web.entry_search import ENTRIES_A_PAGE, PAGE_MAX_BYTES
from logstore.web.shown_fields import EntryRow, entry_row, kinds_of, short_name


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a dead letter came from."""

    error: str
    stream: str
    key: str  # of the stream, in addresses
    id: str  # of the entry there; empty where it is no ID
    time: datetime | None  # when that was added
    group: str
    consumer: str  # empty: it was given back
    deliveries: str


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """A dead letter in a list; ``row`` has the entry's own fields."""

    row: EntryRow
    origin: Origin | None


def origin_of(pairs: list[tuple[bytes, bytes]]) -> Origin | None:
    """Where an entry of these pairs came from; None if it does not say so as a dead letter does."""
    last = pairs[-len(ORIGIN_FIELDS) :]
    if tuple(name for name, _ in last) != ORIGIN_FIELDS:
        return None
    stream, id, group, consumer, deliveries, error = (value for _, value in last)
    known = id_of(plain_text(id[:64]))
    return Origin(
        short_name(error),
        short_name(stream),
        key_of(stream),
        "" if known is None else str(known),
        None if known is None else showing.clock(known.ms),
        short_name(group),
        short_name(consumer),
        short_name(deliveries),
    )


def dead_letters(stream: Stream[Any]) -> list[DeadLetterRow]:
    """The newest dead letters of a stream, a page of them."""
    kinds = kinds_of(stream)
    rows: list[DeadLetterRow] = []
    size = 0
    for entry in stream.range(count=ENTRIES_A_PAGE, reverse=True):
        rows.append(_row(entry, kinds))
        size += entry.size_bytes
        if size > PAGE_MAX_BYTES:
            break
    return rows


def _row(entry: Entry[Any], kinds: dict[bytes, str]) -> DeadLetterRow:
    pairs = stored_pairs(entry)
    origin = origin_of(pairs)
    own = len(pairs) - (len(ORIGIN_FIELDS) if origin is not None else 0)
    return DeadLetterRow(entry_row(entry, kinds, own), origin)
