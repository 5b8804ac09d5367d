"""Looking at groups: pending summary and detail, groups and consumers. As XPENDING and XINFO.

What may be long comes in pages, so that a reader need not hold one snapshot for all of it.
Invariants: a function reads one snapshot and changes nothing; a group or stream that is missing is
refused in the words of the command.
"""

from __future__ import annotations

from logstore.engine.groups import admin
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import pel
from logstore.engine.txn.group_view import UNKNOWN, lag
from logstore.errors import StreamNotFoundError
from logstore.features.setting_rows import SettingRows
from logstore.ids import StreamID
from logstore.index.group_keys import NO_ONE, GroupRecord
from logstore.index.keys import StreamRecord
from logstore.options import GroupSettings
from logstore.tuples import NamedTuple

PAGE_ENTRIES = 2000  # pending entries that are looked at on one snapshot
PAGE_ROWS = 1000  # groups or consumers


class PendingSummary(NamedTuple):
    """How much is pending, from which ID to which, and with which consumers, by name."""

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


class EntryState(NamedTuple):
    """How one entry stands with a group: pending, or else handed out before (``passed``: it is not
    above the last delivered ID) or not yet."""

    group: bytes
    pending: PendingRow | None
    passed: bool


class GroupRow(NamedTuple):
    """A group, as XINFO GROUPS shows it; None is "not known"."""

    name: bytes
    consumers: int
    pending: int
    last_delivered_id: StreamID
    entries_read: int | None
    lag: int | None
    settings: GroupSettings[bytes] = GroupSettings()


class ConsumerRow(NamedTuple):
    """A consumer, as XINFO CONSUMERS shows it; -1 is "never"."""

    name: bytes
    pending: int
    seen_ms: int
    active_ms: int
    idle_ms: int
    inactive_ms: int


def _existing(view: Snapshot, stream: bytes, group: bytes) -> tuple[StreamRecord, GroupRecord]:
    record = view.record(stream)
    group_record = None if record is None else view.index.group(record.number, group)
    if record is None or group_record is None:
        raise admin.not_found(stream, group)
    return record, group_record


def pending_bounds(
    view: Snapshot, stream: bytes, group: bytes
) -> tuple[int, StreamID, StreamID] | None:
    """How many entries are pending, the first and the last ID; None if none are."""
    return _bounds(view, _existing(view, stream, group)[1])


def _bounds(view: Snapshot, group: GroupRecord) -> tuple[int, StreamID, StreamID] | None:
    if not group.pending:
        return None
    txn = view.index.groups
    last = txn.run_floor(group.number, b"\xff" * 16)
    first = next(iter(txn.runs(group.number)), None)
    assert first is not None
    assert last is not None
    return group.pending, StreamID.unpacked(first.first), StreamID.unpacked(last.last)


def summary(view: Snapshot, stream: bytes, group: bytes) -> PendingSummary:
    """As XPENDING without a range."""
    _, record = _existing(view, stream, group)
    bounds = _bounds(view, record)
    if bounds is None:
        return PendingSummary(0, None, None, [])
    consumers = view.index.groups.consumers(record.number)
    return PendingSummary(*bounds, [(row.name, row.pending) for row in consumers if row.pending])


class PendingRange(NamedTuple):
    """Which pending entries are asked for: at most ``limit`` of a closed interval."""

    start: StreamID
    end: StreamID
    limit: int
    now_ms: int
    consumer: bytes | None = None  # of this one alone
    min_idle_ms: int = 0


def detail(view: Snapshot, stream: bytes, group: bytes, asked: PendingRange) -> list[PendingRow]:
    """As XPENDING with a range."""
    rows: list[PendingRow] = []
    following: StreamID | None = asked.start
    while following is not None:
        rest = asked._replace(start=following, limit=asked.limit - len(rows))
        page, following = detail_page(view, stream, group, rest)
        rows += page
    return rows


def detail_page(
    view: Snapshot, stream: bytes, group: bytes, asked: PendingRange
) -> tuple[list[PendingRow], StreamID | None]:
    """The rows of some thousand pending entries of ``detail``, and the ID from which the next page
    goes on; None: there is none."""
    start, end, count, now_ms, consumer, min_idle_ms = asked
    _, group_record = _existing(view, stream, group)
    txn = view.index.groups
    rows: list[PendingRow] = []
    only: int | None = None
    if consumer is not None:
        only = txn.consumer_number(group_record.number, consumer)
        if only is None:
            return rows, None
    if count <= 0 or start > end:
        return rows, None
    names: dict[int, bytes] = {NO_ONE: b""}
    for looked, entry in enumerate(pel.by_id(txn, group_record.number, start, end, only)):
        if looked >= PAGE_ENTRIES:
            return rows, entry.id
        idle_ms = entry.idle_ms(now_ms)
        if min_idle_ms and idle_ms < min_idle_ms:
            continue
        name = names.get(entry.consumer)
        if name is None:
            owner = txn.consumer(group_record.number, entry.consumer)
            name = names[entry.consumer] = b"" if owner is None else owner.name
        shown = -1 if entry.consumer == NO_ONE else idle_ms
        rows.append(PendingRow(entry.id, name, shown, entry.count))
        if len(rows) >= count:
            break
    return rows, None


def group_rows(view: Snapshot, stream: bytes) -> list[GroupRow]:
    """As XINFO GROUPS, by name; StreamNotFoundError."""
    rows: list[GroupRow] = []
    following: bytes | None = b""
    while following is not None:
        page, following = group_page(view, stream, following)
        rows += [row for row, _ in page]
    return sorted(rows, key=lambda row: row.name)


def group_page(
    view: Snapshot, stream: bytes, after: bytes
) -> tuple[list[tuple[GroupRow, int]], bytes | None]:
    """Some of the rows of ``group_rows`` with the groups' numbers, in no order, and what to give as
    ``after`` for the next ones (None: there are none); it is b"" for the first.
    StreamNotFoundError."""
    record = view.record(stream)
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=stream)
    groups, following = view.index.groups.page_of_stream(record.number, after, PAGE_ROWS)
    settings = SettingRows(view.index)
    return [(_group_row(record, row, settings), row.number) for row in groups], following


def entry_states(
    view: Snapshot, stream: bytes, id: StreamID, after: bytes = b""
) -> tuple[list[EntryState], bytes | None]:
    """How an entry, which need not be there, stands with some of the groups, by pages as
    ``group_page`` has them. StreamNotFoundError."""
    record = view.record(stream)
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=stream)
    txn = view.index.groups
    groups, following = txn.page_of_stream(record.number, after, PAGE_ROWS)
    states: list[EntryState] = []
    for group in groups:
        found = pel.find(txn, group.number, id)
        row = None
        if found is not None:
            owner = None if found.consumer == NO_ONE else txn.consumer(group.number, found.consumer)
            name = b"" if owner is None else owner.name
            idle_ms = found.idle_ms(view.now_ms) if name else -1
            row = PendingRow(id, name, idle_ms, found.count)
        states.append(EntryState(group.name, row, id <= group.last))
    return states, following


def _group_row(record: StreamRecord, row: GroupRecord, settings: SettingRows) -> GroupRow:
    return GroupRow(
        row.name,
        row.consumers,
        row.pending,
        row.last,
        None if row.entries_read == UNKNOWN else row.entries_read,
        lag(record, row),
        settings.group(row.number),
    )


def consumer_rows(view: Snapshot, stream: bytes, group: bytes, now_ms: int) -> list[ConsumerRow]:
    """As XINFO CONSUMERS, by name; StreamNotFoundError, GroupNotFoundError."""
    rows: list[ConsumerRow] = []
    following: int | None = 0
    while following is not None:
        page, following = consumer_page(view, stream, group, following, now_ms)
        rows += page
    return sorted(rows, key=lambda row: row.name)


def consumer_page(
    view: Snapshot, stream: bytes, group: bytes, after: int, now_ms: int, most: int = PAGE_ROWS
) -> tuple[list[ConsumerRow], int | None]:
    """At most ``most`` of the rows of ``consumer_rows``, in no order, and what to give as ``after``
    for the next ones (None: there are none); ``after`` is 0 for the first."""
    record = view.record(stream)
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=stream)
    group_record = view.index.group(record.number, group)
    if group_record is None:
        raise admin.no_group(stream, group)
    consumers = view.index.groups.page_of_consumers(group_record.number, after, most)
    rows = [
        ConsumerRow(
            row.name,
            row.pending,
            row.seen_ms,
            row.active_ms,
            max(0, now_ms - row.seen_ms),
            -1 if row.active_ms < 0 else max(0, now_ms - row.active_ms),
        )
        for row in consumers
    ]
    return rows, consumers[-1].number if len(consumers) == most else None


def group_number(view: Snapshot, stream: bytes, group: bytes) -> int | None:
    """The number of a group, None if there is no such group."""
    record = view.record(stream)
    group_record = None if record is None else view.index.group(record.number, group)
    return None if group_record is None else group_record.number


def group_row(view: Snapshot, stream: bytes, group: bytes) -> GroupRow:
    """One group's row of XINFO GROUPS; StreamNotFoundError, GroupNotFoundError."""
    record = view.record(stream)
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=stream)
    found = view.index.group(record.number, group)
    if found is None:
        raise admin.not_found(stream, group)
    return _group_row(record, found, SettingRows(view.index))


def held(view: Snapshot, stream: bytes, group: bytes, consumer: bytes) -> int:
    """How many entries are pending with a consumer; 0 if there is no such consumer."""
    number = group_number(view, stream, group)
    if number is None:
        return 0
    who = view.index.groups.consumer_number(number, consumer)
    consumer_record = None if who is None else view.index.groups.consumer(number, who)
    return 0 if consumer_record is None else consumer_record.pending
