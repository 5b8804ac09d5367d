"""The page of one entry: what it holds, where it lies, its neighbours, how it stands with groups.

It is made of an ID whose entry is gone, too: groups may have it pending still.

Invariants: it reads one entry and the ones beside it, and some of the groups; what a group did with
an entry that is not pending is told as far as its last delivered ID says it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from logstore.api import showing
from logstore.api.entry import Entry, stored_pairs
from logstore.api.info import plain_text
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.api.stream import Stream
from logstore.engine.groups.group_rows import EntryState, entry_states
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import OptionError
from logstore.format import position_parts
from logstore.ids import StreamID
from logstore.index.keys import StreamRecord
from logstore.tuples import NamedTuple
from logstore.web.dead_letters import Origin, origin_of
from logstore.web.shown_fields import WholeField, whole_fields

GROUPS_SHOWN_MAX = 100


class NodePlace(NamedTuple):
    """Where the node of an entry lies: its frame, or that with which the open node began."""

    segment: int
    offset: int
    node_id: str
    is_open: bool
    size_bytes: int  # of the frame's payload; 0 of the open node
    entries: int  # in the node


@dataclass(frozen=True, slots=True)
class EntryGroup:
    """A group, and how the entry stands with it: pending, passed (acked, or never handed out), or
    to come."""

    name: str
    state: str
    consumer: str = ""  # empty: with nobody
    idle: timedelta | None = None
    deliveries: int = 0


@dataclass(frozen=True, slots=True)
class EntryPage:
    """All that the page shows; of an entry that is gone there are no fields and no place."""

    id: StreamID
    there: bool
    fields: list[WholeField]
    left_out: int
    size_bytes: int
    place: NodePlace | None
    newer: StreamID | None
    older: StreamID | None
    missing: list[str]  # columns of the schema that the entry has no value for
    why: str  # it is not there
    origin: Origin | None  # of a dead letter
    groups: list[EntryGroup]
    groups_in_all: int  # that were looked at
    more_groups: str  # where others begin; empty: there are none

    @property
    def time(self) -> datetime | None:
        """When it was added, if its ID tells a time."""
        return showing.clock(self.id.ms)


def entry_page(store: Store[bytes], stream: Stream[Any], id: StreamID, after: str) -> EntryPage:
    """The page of an ID.

    Args:
        store: an open store.
        stream: a stream that is there.
        id: of an entry, which need not be there.
        after: which groups are shown: those behind this place, in hex; empty: the first.

    Raises:
        OptionError: ``after`` is no place.
        StreamNotFoundError: the stream is gone.
    """
    name, schema = stream.name, stream.schema
    entry = stream.get(id)
    fields, left_out = ([], 0) if entry is None else whole_fields(entry, schema)
    pairs = [] if entry is None else stored_pairs(entry)
    there = {field for field, _ in pairs}
    columns = () if schema is None or entry is None else schema.columns
    groups, in_all, more = _groups(store, name, id, after, gone=entry is None)
    newer, older = _beside(stream, id)
    return EntryPage(
        id,
        entry is not None,
        fields,
        left_out,
        0 if entry is None else entry.size_bytes,
        None if entry is None else opened_of(store).view(partial(_place, stream=name, id=id)),
        newer,
        older,
        [column.name for column in columns if column.field not in there],
        "" if entry is not None else _why_gone(stream, id),
        origin_of(pairs),
        groups,
        in_all,
        more,
    )


def _beside(stream: Stream[Any], id: StreamID) -> tuple[StreamID | None, StreamID | None]:
    """The IDs of the next entry above and below."""
    newer = next(stream.range(f"({id}", count=1), None)
    older = next(stream.range(end=f"({id}", count=1, reverse=True), None)
    return None if newer is None else newer.id, None if older is None else older.id


def _why_gone(stream: Stream[Any], id: StreamID) -> str:
    """What can be known of an entry that is not there."""
    if id > stream.last_id:
        return f"No entry was given this ID yet: the last one is {stream.last_id}."
    return "It was deleted or trimmed, or there never was one."


def _place(view: Snapshot, stream: bytes, id: StreamID) -> NodePlace | None:
    record = view.record(stream)
    ref = None if record is None else nodes.ref_of(view, record, id)
    return None if record is None or ref is None else _of_node(record, ref)


def _of_node(record: StreamRecord, ref: nodes.NodeRef) -> NodePlace:
    locator = ref.locator
    segment, offset = position_parts(record.open_version if locator is None else locator.position)
    size = 0 if locator is None else locator.payload_bytes
    return NodePlace(segment, offset, str(ref.master), locator is None, size, ref.live)


# -- groups -----------------------------------------------------------------------------------
_ORDER = ("pending", "to come", "passed")


def _groups(
    store: Store[bytes], stream: bytes, id: StreamID, after: str, *, gone: bool
) -> tuple[list[EntryGroup], int, str]:
    """Groups that have the entry pending, then those that will get it, then the others, neither of
    one that is gone; how many were looked at, and where others begin."""
    try:
        begin = bytes.fromhex(after)
    except ValueError as exc:
        raise OptionError("no page of groups begins there: open the entry again") from exc
    look = partial(entry_states, stream=stream, id=id, after=begin)
    states, following = opened_of(store).view(look)
    found = sorted(map(_of_state, states), key=lambda each: (_ORDER.index(each.state), each.name))
    shown = [each for each in found if not gone or each.state == "pending"]
    return shown[:GROUPS_SHOWN_MAX], len(found), "" if following is None else following.hex()


def _of_state(state: EntryState) -> EntryGroup:
    row, name = state.pending, plain_text(state.group)
    if row is None:
        return EntryGroup(name, "passed" if state.passed else "to come")
    idle = timedelta(milliseconds=row.idle_ms) if row.consumer else None
    return EntryGroup(name, "pending", plain_text(row.consumer), idle, row.count)


# -- one value --------------------------------------------------------------------------------
def whole_value(stream: Stream[Any], id: StreamID, number: str) -> bytes | None:
    """The bytes of one field of an entry, by its number from 1 on; None if there is none."""
    entry: Entry[Any] | None = stream.get(id)
    pairs = [] if entry is None else stored_pairs(entry)
    at = int(number) if number.isascii() and number.isdigit() and len(number) < 9 else 0
    return pairs[at - 1][1] if 0 < at <= len(pairs) else None
