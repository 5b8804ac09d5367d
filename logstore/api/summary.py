"""A line about each stream: how long and large it is, its ends, its groups. For lists of streams.

Invariants: a line is of one moment, two lines may be of two; what it costs does not grow with the
stream (no entry is decoded, no node is counted); a stream that goes meanwhile is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from logstore.api.describe import group_info
from logstore.api.info import GroupInfo
from logstore.api.opening import OpenStore
from logstore.engine.groups import describe as pel
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.features.settings import SettingRows
from logstore.ids import StreamID
from logstore.settings import StreamSettings


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """A stream in a list."""

    name: bytes
    length: int
    size_bytes: int  # of its nodes, those with deleted entries in them included
    first_id: StreamID
    last_id: StreamID  # the last one given, also if that entry was deleted
    groups: list[GroupInfo[bytes]]
    settings: StreamSettings

    @property
    def lag(self) -> int | None:
        """The lag of the group that is furthest behind, of those that are known; None: of no group
        it is known."""
        known = [group.lag for group in self.groups if group.lag is not None]
        return max(known, default=None if self.groups else 0)

    @property
    def pending(self) -> int:
        """What is pending in all of its groups."""
        return sum(group.pending for group in self.groups)


def summaries(opened: OpenStore[Any], names: Iterable[bytes]) -> Iterator[StreamSummary]:
    """A line about each of these streams, in their order."""
    for name in names:
        found = opened.view(partial(_summary, name=name))
        if found is not None:
            yield found


def _summary(view: Snapshot, name: bytes) -> StreamSummary | None:
    record = view.record(name)
    if record is None:
        return None
    size = record.node_bytes
    if record.open_version:
        node = view.open_node(record.number)
        size += 0 if node is None else nodes.open_bytes(node)
    return StreamSummary(
        name,
        record.length,
        size,
        record.first,
        record.last,
        [group_info(row, bytes) for row in pel.group_rows(view, name)],
        SettingRows(view.index).stream(record.number),
    )
