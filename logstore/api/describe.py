"""Descriptions: what ``info`` tells of a stream and of its groups, gathered on one snapshot.

Invariants: all of a description is of one moment; of the entries only the first and the last are
decoded; the numbers are those that the peers' XINFO gives for the same history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from logstore.api import scheduling
from logstore.api.configuring import told
from logstore.api.entry import Entry, make_entry
from logstore.api.info import ConsumerInfo, GroupInfo, StreamInfo
from logstore.api.radix import radix_tree
from logstore.codec import codec
from logstore.engine.groups import admin, describe
from logstore.engine.groups.describe import ConsumerRow, GroupRow
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import StreamNotFoundError
from logstore.ids import MAX_ID, ZERO_ID
from logstore.index.keys import StreamRecord
from logstore.options import elapsed

if TYPE_CHECKING:
    from logstore.api.store import Store

T = TypeVar("T", bytes, str)


def stream_info(view: Snapshot, name: bytes, encoding: str | None) -> StreamInfo[Any]:
    """All fields of XINFO STREAM; StreamNotFoundError if there is no stream."""
    record = view.record(name)
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=name)
    open_bytes = 0
    if record.open_version:
        node = view.open_node(record.number)
        open_bytes = nodes.open_bytes(node) if node is not None else 0
    count, tree_nodes = radix_tree(_keys(view, record))
    schedules = view.index.schedules
    due_ms = schedules.next_of(record.number)
    told_name: Any = name if encoding is None else name.decode(encoding, "surrogateescape")
    return StreamInfo(
        told_name,
        record.length, count, tree_nodes, record.last,
        record.max_deleted, record.entries_added, record.first,
        len(view.index.groups.of_stream(record.number)),
        _edge(view, record, encoding, reverse=False), _edge(view, record, encoding, reverse=True),
        record.node_bytes, open_bytes, view.index.settings.stream(record.number),
        schedules.count(record.number), None if due_ms is None else scheduling.moment(due_ms),
        *view.index.producers.tally(record.number), scheduling.expires_at(record.expires_ms),
    )  # fmt: skip


def _keys(view: Snapshot, record: StreamRecord) -> Iterator[bytes]:
    """The keys of a stream's nodes, packed."""
    for master, _ in view.index.nodes(record.number):
        yield master.packed()
    if record.open_version:
        yield record.open_master.packed()


def _edge(
    view: Snapshot, record: StreamRecord, encoding: str | None, *, reverse: bool
) -> Entry[Any] | None:
    walk = nodes.refs_reverse if reverse else nodes.refs
    for ref in walk(view, record):
        if ref.live:
            lp, vector = nodes.listpack(view, record, ref)
            found = codec().entries(lp, *ref.master, vector, ZERO_ID, MAX_ID, 1, reverse)
            if found:
                _, ms, seq, flat = found[0]
                return make_entry(ms, seq, flat, encoding)
    return None


def group_number(view: Snapshot, stream: bytes, group: bytes) -> int | None:
    """The number of a group, None if there is no such group."""
    record = view.record(stream)
    found = None if record is None else view.index.group(record.number, group)
    return None if found is None else found.number


def group_row(view: Snapshot, stream: bytes, group: bytes) -> GroupRow:
    """One group's row of XINFO GROUPS; GroupNotFoundError."""
    for row in describe.group_rows(view, stream):
        if row.name == group:
            return row
    raise admin.not_found(stream, group)


def held(view: Snapshot, stream: bytes, group: bytes, consumer: bytes) -> int:
    """How many entries are pending with a consumer; 0 if there is no such consumer."""
    number = group_number(view, stream, group)
    if number is None:
        return 0
    who = view.index.groups.consumer_number(number, consumer)
    found = None if who is None else view.index.groups.consumer(number, who)
    return 0 if found is None else found.pending


def group_info(row: GroupRow, text: Callable[[bytes], T]) -> GroupInfo[T]:
    """A row of XINFO GROUPS, typed."""
    return GroupInfo(
        text(row.name),
        row.consumers,
        row.pending,
        row.last_delivered_id,
        row.entries_read,
        row.lag,
        told(row.settings, text),
    )


def group_infos(store: Store[T], stream: bytes) -> list[GroupInfo[T]]:
    """All groups of a stream; StreamNotFoundError."""
    rows = snapshot.read(store._engine(), lambda view: describe.group_rows(view, stream))
    return [group_info(row, lambda name: cast(T, store._text(name))) for row in rows]


def consumer_info(row: ConsumerRow, text: Callable[[bytes], T]) -> ConsumerInfo[T]:
    """A row of XINFO CONSUMERS, typed."""
    never = row.inactive_ms < 0
    return ConsumerInfo(
        text(row.name), row.pending, elapsed(row.idle_ms),
        None if never else elapsed(row.inactive_ms),
    )  # fmt: skip
