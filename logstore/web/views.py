"""What the pages show of a store: rows of plain values, read anew for each request.

Invariants: a page reads a bounded number of rows and of bytes of each value, however large the
store is. A stream or group that is dropped meanwhile is left out. Knows nothing of HTTP or HTML.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from logstore.api import coded, showing
from logstore.api.entry import Entry, codec_of, stored_pairs
from logstore.api.info import GroupInfo, living_pins, plain_text, some_consumers, some_groups
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.api.stream import Stream
from logstore.compaction.usage import SpaceUsage, usage
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import GroupNotFoundError, OptionError
from logstore.features.setting_rows import OF_GROUP, SettingRows
from logstore.options import GroupSettings, restored
from logstore.schema.column_types import Fixed
from logstore.tuples import NamedTuple
from logstore.web.stream_list import StreamRow, stream_rows

ENTRIES_A_PAGE = 50
SEARCHED_MAX = 20_000  # entries that a page looks at for those of a condition
VALUE_MAX_CHARACTERS = 2000
FIELDS_MAX = 100
PAGE_MAX_BYTES = 4 << 20  # of entries, behind which the next page begins
GROUPS_A_PAGE = 100
CONSUMERS_A_GROUP = 50
PENDING_A_GROUP = 20
SEGMENTS_MAX = 2000
BARS_MAX = 60  # with more segments each is a square


class Shown(NamedTuple):
    """A field as it is shown; ``kind``: number, time, json, or empty for text."""

    name: str
    value: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class EntryRow:
    """An entry as it is shown."""

    id: str
    time: datetime | None
    fields: list[Shown]
    left_out: int  # how many more fields there are


# -- entries --------------------------------------------------------------------------------------
def entries(
    stream: Stream[Any], since: str, until: str, before: str, where: str = ""
) -> tuple[list[EntryRow], str]:
    """Entries of a stream, the newest first.

    Args:
        stream: a stream that is there.
        since: a moment, as in ``Stream.range``; empty: from the first entry on.
        until: a moment likewise; empty: up to the last.
        before: an ID: only entries below it; empty: none.
        where: a condition; empty: all entries.

    Returns:
        The rows of a page, fewer if they are large or many entries were looked at, and the ID below
        which the next page begins, or nothing.

    Raises:
        OptionError: ``since`` or ``until`` is no moment, or ``where`` is no condition.
        SchemaError: ``where`` does not fit the schema.
        InvalidIDError: ``before`` is no ID.
    """
    ends: dict[str, Any] = {"since": since} if since else {"start": "-"}
    if before:
        ends["end"] = f"({before}"
    elif until:
        ends["until"] = until
    match = coded.matching_of(stream, where) if where.strip() else None
    kinds = _kinds(stream)
    rows: list[EntryRow] = []
    size = 0
    last = ""
    most = ENTRIES_A_PAGE if match is None else SEARCHED_MAX
    newest = stream.range(**ends, count=most + 1, reverse=True)
    for looked_at, entry in enumerate(newest):
        if len(rows) == ENTRIES_A_PAGE or size > PAGE_MAX_BYTES or looked_at == most:
            return rows, last
        pairs = stored_pairs(entry)
        if match is None or match.holds(entry):
            rows.append(_entry_row(entry, kinds))
            size += sum(len(name) + len(value) for name, value in pairs)
        last = str(entry.id)
    return rows, ""


_NUMBERS = ("int", "long", "double")
_TIMES = ("date", "timestamp", "time")


def _kinds(stream: Stream[Any]) -> dict[bytes, str]:
    """How the columns of a schema are shown."""
    schema = stream.schema
    found: dict[bytes, str] = {}
    for column in () if schema is None else schema.columns:
        name = column.type.name
        if name in _NUMBERS or isinstance(column.type, Fixed):
            found[column.field] = "number"
        elif name in _TIMES:
            found[column.field] = "time"
        elif name == "json":
            found[column.field] = "json"
    return found


def _entry_row(entry: Entry[Any], kinds: dict[bytes, str]) -> EntryRow:
    pairs = stored_pairs(entry)
    codec = codec_of(entry)
    shown = [_shown(name, value, kinds, codec) for name, value in pairs[:FIELDS_MAX]]
    return EntryRow(str(entry.id), showing.at(entry.id.ms), shown, max(0, len(pairs) - FIELDS_MAX))


def _shown(name: bytes, stored: bytes, kinds: dict[bytes, str], codec: Any) -> Shown:
    """A field, by its type or its codec; what a codec cannot read, and what is long, as it is."""
    if codec is not None and len(stored) <= VALUE_MAX_CHARACTERS:
        from logstore.api.values import typed_text

        text = typed_text(codec, stored)
        if text is not None:
            return Shown(_cut(name), _cut(text.encode()), _kind_of(codec.decode(stored)))
    return Shown(_cut(name), _cut(stored), kinds.get(name, ""))


def _kind_of(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    if isinstance(value, date):
        return "time"
    return "" if isinstance(value, str | bytes) else "json"


def _cut(value: bytes) -> str:
    text = plain_text(value[: 4 * VALUE_MAX_CHARACTERS])
    cut = len(text) > VALUE_MAX_CHARACTERS or len(value) > 4 * VALUE_MAX_CHARACTERS
    return f"{text[:VALUE_MAX_CHARACTERS]}… ({len(value):,} bytes)" if cut else text


# -- groups and dead letters ----------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group, its first consumers, and its first pending entries."""

    info: GroupInfo[bytes]
    consumers: list[tuple[str, int, timedelta]]  # name, pending, idle
    pending: list[tuple[str, str, timedelta | None, int]]  # ID, consumer, idle, deliveries

    @property
    def name(self) -> str:
        """The name, as text."""
        return plain_text(self.info.name)


class GroupPlace(NamedTuple):
    """Where a page of groups begins: of those that are read and sorted at once, from the one at
    this number on."""

    after: str = ""  # of which others are read: as hex
    page: int = 1


def group_rows(
    store: Store[bytes], stream: bytes, place: GroupPlace
) -> tuple[list[GroupRow], GroupPlace | None]:
    """A page of the groups of a stream, with the first consumers of each and the first entries that
    are pending; and where the next page begins, if there is one.

    Some are read and sorted by name at once. Of more groups than that the pages behind these are of
    others, with any names: so a page costs the same however many there are.

    Raises:
        OptionError: no page begins there.
    """
    opened, rows = opened_of(store), []
    try:
        after = bytes.fromhex(place.after)
    except ValueError as exc:
        raise OptionError("no page of groups begins there") from exc
    found, following = some_groups(opened, stream, after)
    begin = (max(place.page, 1) - 1) * GROUPS_A_PAGE
    end = begin + GROUPS_A_PAGE
    behind = None
    if len(found) > end:
        behind = GroupPlace(place.after, max(place.page, 1) + 1)
    elif following is not None:
        behind = GroupPlace(following.hex(), 1)
    for info in found[begin:end]:
        group = store.stream(stream).group(info.name)
        with suppress(GroupNotFoundError):  # it was destroyed meanwhile
            consumers = [
                (plain_text(who.name), who.pending, who.idle)
                for who in some_consumers(opened, stream, info.name, CONSUMERS_A_GROUP)
            ]
            pending = [
                (
                    str(entry.id),
                    "nobody" if entry.consumer is None else plain_text(entry.consumer),
                    entry.idle,
                    entry.delivery_count,
                )
                for entry in group.pending_entries(count=PENDING_A_GROUP)
            ]
            rows.append(GroupRow(info, consumers, pending))
    return rows, behind


def dead_letter_streams(store: Store[bytes]) -> list[StreamRow]:
    """The streams that groups name for their dead letters, by name."""
    return stream_rows(store, sorted(opened_of(store).view(_dead_letter_names)))


def _dead_letter_names(view: Snapshot) -> set[bytes]:
    """The streams that settings of groups name; streams are not read for that."""
    rows = SettingRows(view.index).rows(OF_GROUP)
    named = (restored(GroupSettings, kept).dead_letter for _, kept in rows)
    return {name for name in named if name is not None}


# -- the store ------------------------------------------------------------------------------------
def used(store: Store[bytes]) -> SpaceUsage:
    """The usage of the space: the segments, oldest first."""
    engine = opened_of(store).engine()
    return usage(engine, living_pins(engine))
