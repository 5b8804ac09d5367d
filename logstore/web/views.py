"""What the pages show of a store: rows of plain values, read anew for each request.

Invariants: a page reads a bounded number of rows and of bytes of each value, however large the
store is. A stream or group that is dropped meanwhile is left out. Knows nothing of HTTP or HTML.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from logstore.api.info import GroupInfo, living_pins, plain_text, some_consumers, some_groups
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.compaction.usage import SpaceUsage, usage
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import GroupNotFoundError, OptionError
from logstore.features.setting_rows import OF_GROUP, SettingRows
from logstore.options import GroupSettings, restored
from logstore.tuples import NamedTuple
from logstore.web.stream_list import StreamRow, stream_rows

GROUPS_A_PAGE = 100
CONSUMERS_A_GROUP = 50
PENDING_A_GROUP = 20
DEAD_STREAMS_A_PAGE = 20
SEGMENTS_MAX = 2000
BARS_MAX = 60  # with more segments each is a square


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
    rows = stream_rows(store, names[begin : begin + DEAD_STREAMS_A_PAGE])
    return rows, max(1, -(-len(names) // DEAD_STREAMS_A_PAGE))


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
