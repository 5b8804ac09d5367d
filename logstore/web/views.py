"""What the pages show of a store: rows of plain values, read anew for each request.

Invariants: a page reads a bounded number of rows and of bytes of each value, however large the
store is. A stream or group that is dropped meanwhile is left out. Knows nothing of HTTP or HTML.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from logstore.api import showing
from logstore.api.info import GroupInfo, plain_text, some_consumers, some_groups, summaries
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.compaction.usage import SpaceUsage, usage
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import GroupNotFoundError, InvalidIDError, OptionError
from logstore.features.setting_rows import OF_GROUP, SettingRows
from logstore.ids import StreamID, parse_id
from logstore.options import GroupSettings, restored
from logstore.telemetry.gathering import gather
from logstore.tuples import NamedTuple

STREAMS_A_PAGE = 100
GROUPS_A_PAGE = 100
CONSUMERS_A_GROUP = 50
PENDING_A_GROUP = 20
DEAD_STREAMS_A_PAGE = 20
SEGMENTS_MAX = 2000
HEX = "0x"


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream in the list."""

    name: str
    key: str  # the name in addresses
    length: int
    size_bytes: int
    last_time: datetime | None
    groups: list[GroupInfo[bytes]]
    lag: int | None  # the largest lag of its groups
    pending: int


@dataclass(frozen=True, slots=True)
class StreamList:
    """A page of the list of streams."""

    rows: list[StreamRow]
    matching: int
    in_all: int
    page: int

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return max(1, -(-self.matching // STREAMS_A_PAGE))


# -- names and IDs in addresses -----------------------------------------------------------------
def key_of(name: bytes) -> str:
    """A name in an address: its text, or ``0x`` and its bytes in hex if they are not UTF-8."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return HEX + name.hex()
    return HEX + name.hex() if text.startswith(HEX) else text


def name_of(key: str) -> bytes:
    """The name in an address; OptionError for one that `key_of` never makes."""
    try:
        return bytes.fromhex(key[len(HEX) :]) if key.startswith(HEX) else key.encode()
    except ValueError as exc:
        raise OptionError("no stream has this name") from exc


def id_of(text: str) -> StreamID | None:
    """The ID in an address; None if it is none."""
    try:
        return parse_id(text.strip()) if "-" in text else None
    except InvalidIDError:
        return None


# -- streams ----------------------------------------------------------------------------------
def stream_list(store: Store[bytes], text: str, page: int) -> StreamList:
    """The streams whose names contain a text, a page of them, by name.

    Args:
        store: an open store.
        text: what a name must contain; empty: all.
        page: from 1 on; one behind the last is the last.
    """
    names = store.streams()
    wanted = [name for name in names if text.casefold() in plain_text(name).casefold()]
    last = max(1, -(-len(wanted) // STREAMS_A_PAGE))
    page = min(max(page, 1), last)
    begin = (page - 1) * STREAMS_A_PAGE
    rows = _stream_rows(store, wanted[begin : begin + STREAMS_A_PAGE])
    return StreamList(rows, len(wanted), len(names), page)


def _stream_rows(store: Store[bytes], names: list[bytes]) -> list[StreamRow]:
    return [
        StreamRow(
            plain_text(found.name),
            key_of(found.name),
            found.length,
            found.size_bytes,
            showing.clock(found.last_id.ms),
            found.groups,
            found.lag,
            found.pending,
        )
        for found in summaries(opened_of(store), names)
    ]


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


def dead_letter_streams(store: Store[bytes], page: int) -> tuple[list[StreamRow], int]:
    """The streams that groups name for their dead letters, by name: a page of them, from 1 on, and
    how many pages there are. One that is not there yet is left out."""
    names = sorted(opened_of(store).view(_dead_letter_names))
    begin = (page - 1) * DEAD_STREAMS_A_PAGE
    rows = _stream_rows(store, names[begin : begin + DEAD_STREAMS_A_PAGE])
    return rows, max(1, -(-len(names) // DEAD_STREAMS_A_PAGE))


def _dead_letter_names(view: Snapshot) -> set[bytes]:
    """The streams that settings of groups name; streams are not read for that."""
    rows = SettingRows(view.index).rows(OF_GROUP)
    named = (restored(GroupSettings, kept).dead_letter for _, kept in rows)
    return {name for name in named if name is not None}


# -- the store ------------------------------------------------------------------------------------
def numbers(store: Store[bytes]) -> dict[str, int]:
    """What ``logstore metrics`` tells of the store, by its names without ``logstore_``: at a cost
    that does not grow with the history."""
    families = gather(opened_of(store), series_max=0)
    return {
        family.name.removeprefix("logstore_"): int(family.samples[0][1])
        for family in families
        if not family.labels
    }


def used(store: Store[bytes]) -> SpaceUsage:
    """The usage of the space: the segments, oldest first."""
    return usage(opened_of(store).engine())
