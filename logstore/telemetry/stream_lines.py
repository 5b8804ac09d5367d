"""A line about each stream, and the orders that a list of streams can have.

The command line and the web view share it, and so have the same words.

Invariants: a line is of one moment. Of groups only their numbers are read, neither settings nor
consumers: so a list of 100,000 groups costs as much as a walk over their records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore.ids import StreamID

if TYPE_CHECKING:
    from logstore.api.opening import OpenStore
    from logstore.engine.snapshots.snapshot import Snapshot
    from logstore.index.group_keys import GroupRecord
    from logstore.index.keys import StreamRecord


@dataclass(frozen=True, slots=True)
class StreamLine:
    """A stream in a list."""

    name: bytes
    entries: int
    size_bytes: int  # of its nodes, those with deleted entries in them included
    first_id: StreamID
    last_id: StreamID  # the last one given, also if that entry was deleted
    groups: int
    lag: int | None  # the largest that is known; None: of no group it is known
    pending: int  # in all of its groups


# What streams can be ordered by, the largest first; what is not known comes last.
SORTS: dict[str, Callable[[StreamLine], Any]] = {
    "name": lambda each: each.name,
    "bytes": lambda each: -each.size_bytes,
    "entries": lambda each: -each.entries,
    "last": lambda each: (-each.last_id.ms, -each.last_id.seq),
    "groups": lambda each: -each.groups,
    "lag": lambda each: 1 if each.lag is None else -each.lag,
    "pending": lambda each: -each.pending,
}


def stream_lines(opened: OpenStore[Any], names: Iterable[bytes]) -> Iterator[StreamLine]:
    """A line about each of these streams, in their order; those that are gone are left out."""
    for name in names:
        found = opened.view(partial(_line, name=name))
        if found is not None:
            yield found


def _line(view: Snapshot, name: bytes) -> StreamLine | None:
    from logstore.engine.txn import group_view, nodes  # here, for help must load fast

    record = view.record(name)
    if record is None:
        return None
    size = record.node_bytes + nodes.open_node_bytes(view, record)
    count, pending = 0, 0
    known: int | None = None
    for group in _groups(view, record):
        lag = group_view.lag(record, group)
        if lag is not None and (known is None or lag > known):
            known = lag
        count += 1
        pending += group.pending
    largest = known if count else 0
    return StreamLine(name, record.length, size, record.first, record.last, count, largest, pending)


def _groups(view: Snapshot, record: StreamRecord) -> Iterator[GroupRecord]:
    from logstore.engine.groups.group_rows import PAGE_ROWS

    after: bytes | None = b""
    while after is not None:
        some, after = view.index.groups.page_of_stream(record.number, after, PAGE_ROWS)
        yield from some
