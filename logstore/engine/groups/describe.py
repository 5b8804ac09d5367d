"""Looking at groups: pending summary and detail, groups and consumers. As XPENDING and XINFO.

Invariants: reads one snapshot and changes nothing; a group or stream that is missing is refused in
the words of the command.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.engine.groups import admin
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.txn import groups, pel
from logstore.errors import StreamNotFoundError
from logstore.features.settings import SettingRows
from logstore.ids import StreamID
from logstore.index.group_keys import NO_ONE, GroupRecord
from logstore.index.keys import StreamRecord
from logstore.settings import GroupSettings


class PendingSummary(NamedTuple):
    """How much is pending, from which ID to which, and with whom (by name, only who has some)."""

    count: int  # type: ignore[assignment]
    first: StreamID | None
    last: StreamID | None
    consumers: list[tuple[bytes, int]]


class PendingRow(NamedTuple):
    """One pending entry; of nobody's, ``consumer`` is empty and ``idle_ms`` -1."""

    id: StreamID
    consumer: bytes
    idle_ms: int
    count: int  # type: ignore[assignment]  # deliveries


class GroupRow(NamedTuple):
    """A group, as XINFO GROUPS tells; None is "not known"."""

    name: bytes
    consumers: int
    pending: int
    last_delivered_id: StreamID
    entries_read: int | None
    lag: int | None
    settings: GroupSettings[bytes] = GroupSettings()


class ConsumerRow(NamedTuple):
    """A consumer, as XINFO CONSUMERS tells; -1 is "never"."""

    name: bytes
    pending: int
    seen_ms: int
    active_ms: int
    idle_ms: int
    inactive_ms: int


def _existing(view: Snapshot, stream: bytes, group: bytes) -> tuple[StreamRecord, GroupRecord]:
    record = view.record(stream)
    found = None if record is None else view.index.group(record.number, group)
    if record is None or found is None:
        raise admin.not_found(stream, group)
    return record, found


def summary(view: Snapshot, stream: bytes, group: bytes) -> PendingSummary:
    """As XPENDING without a range."""
    _, found = _existing(view, stream, group)
    if not found.pending:
        return PendingSummary(0, None, None, [])
    txn = view.index.groups
    last = txn.run_floor(found.number, b"\xff" * 16)
    first = next(iter(txn.runs(found.number)), None)
    assert first is not None
    assert last is not None
    consumers = [(each.name, each.pending) for each in txn.consumers(found.number) if each.pending]
    return PendingSummary(
        found.pending, StreamID.unpacked(first.first), StreamID.unpacked(last.last), consumers
    )


def detail(
    view: Snapshot, stream: bytes, group: bytes, start: StreamID, end: StreamID, count: int, *,
    consumer: bytes | None = None, min_idle_ms: int = 0, now_ms: int,
) -> list[PendingRow]:  # fmt: skip
    """As XPENDING with a range: at most ``count`` entries of a closed interval."""
    _, found = _existing(view, stream, group)
    txn = view.index.groups
    only: int | None = None
    if consumer is not None:
        only = txn.consumer_number(found.number, consumer)
        if only is None:
            return []
    names = {each.number: each.name for each in txn.consumers(found.number)}
    rows: list[PendingRow] = []
    if count <= 0 or start > end:
        return rows
    for waiting in pel.by_id(txn, found.number, start, end, only):
        idle_ms = waiting.idle_ms(now_ms)
        if min_idle_ms and idle_ms < min_idle_ms:
            continue
        shown = -1 if waiting.consumer == NO_ONE else idle_ms
        rows.append(PendingRow(
            waiting.id, names.get(waiting.consumer, b""), shown, waiting.count
        ))  # fmt: skip
        if len(rows) >= count:
            break
    return rows


def group_rows(view: Snapshot, stream: bytes) -> list[GroupRow]:
    """As XINFO GROUPS; StreamNotFoundError."""
    record = view.record(stream)
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=stream)
    return [
        GroupRow(
            each.name, each.consumers, each.pending, each.last,
            None if each.entries_read == groups.UNKNOWN else each.entries_read,
            groups.lag(record, each),
            SettingRows(view.index).group(each.number),
        )
        for each in view.index.groups.of_stream(record.number)
    ]  # fmt: skip


def consumer_rows(view: Snapshot, stream: bytes, group: bytes, now_ms: int) -> list[ConsumerRow]:
    """As XINFO CONSUMERS; StreamNotFoundError, GroupNotFoundError."""
    record = view.record(stream)
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=stream)
    found = view.index.group(record.number, group)
    if found is None:
        raise admin.no_group(stream, group)
    return [
        ConsumerRow(
            each.name,
            each.pending,
            each.seen_ms,
            each.active_ms,
            max(0, now_ms - each.seen_ms),
            -1 if each.active_ms < 0 else max(0, now_ms - each.active_ms),
        )
        for each in view.index.groups.consumers(found.number)
    ]
