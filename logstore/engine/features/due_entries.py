"""Deciding scheduled entries: to keep one, to cancel it, to add what is due.

Invariants: adding an entry and keeping it no longer is one commit, so it comes exactly once,
whoever races or is killed; what is due is read off the store's clock under LOCK, so it never
comes early; entries are added in the order of (time, scheduling), by the rules of any add, with an
ID of the moment. One that repeats is scheduled for its next time, which is later than now, in the
commit that adds it: so times that were missed are made up for by one entry. Of a name, a stream
schedules one.
"""

from __future__ import annotations

from itertools import islice

from logstore.clock import CLOCK_MAX_MS
from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime.engine import log
from logstore.engine.streams import add
from logstore.errors import CorruptionError, IDOrderError, OptionError
from logstore.features import cron as repeating
from logstore.features.cron import Repeat
from logstore.features.schedule_rows import (
    Key,
    Scheduled,
    ScheduleRow,
    ScheduleRows,
    Unscheduled,
    batch,
    packed,
    unpacked,
)
from logstore.index.keys import StreamRecord
from logstore.tuples import NamedTuple

BATCH_ENTRIES = 100  # added by one commit at most
BATCH_BYTES = 4 << 20
DUE_MAX_MS = CLOCK_MAX_MS
PUT_OFF_MS = 600_000  # what its stream cannot take: the other streams do not wait for it


class DueTime(NamedTuple):
    """A moment (unix ms), or how long from the moment of the commit."""

    ms: int
    from_now: bool = False


def schedule(
    txn: WriteTxn, name: bytes, fields: bytes, when: DueTime, *, create: bool = True
) -> Key | None:
    """Keep an entry until its time; its key. None if the stream is missing and not created."""
    record = txn.record_by_name(name)
    if record is None:
        if not create:
            return None
        record = add.create(txn, name)
    fields = _written(txn, record, fields)
    due_ms = when.ms + txn.now_ms if when.from_now else when.ms
    return due_ms, txn.emit(Scheduled(record.number, due_ms, fields))


def repeat(
    txn: WriteTxn,
    name: bytes,
    fields: bytes,
    rule: Repeat,
    *,
    create: bool = True,
) -> Key | None:
    """Keep an entry that is added at each time of a rule; the key of the next one.

    It takes the place of the stream's schedule of this name. If that has the same rule, its next
    time stays; a rule that names no first moment (0) begins now, or keeps what it has. None if the
    stream is missing and not created. OptionError for a rule without a time to come.
    """
    record = txn.record_by_name(name)
    if record is None and not create:
        return None
    if record is not None:
        fields = _written(txn, record, fields)
    rows = ScheduleRows(txn.index)
    key = None if record is None else rows.named(record.number, rule.name)
    due_ms = None
    if record is not None and key is not None:
        kept = rows.fields(record.number, key) or b""
        before = repeating.of(kept)
        if before is not None and before.same_as(rule, phase=rule.first_ms > 0):
            rule, due_ms = before, key[0]
            if repeating.split(kept)[1] == fields:
                return key
    if due_ms is None:
        if rule.every_ms and not rule.first_ms:
            rule = rule._replace(first_ms=txn.now_ms + rule.every_ms)
        due_ms = _next(rule, txn.now_ms)
        if due_ms is None:
            raise OptionError(
                f"the schedule {rule.name!r} has no time to come: it would never fire"
            )
    if record is None:
        record = add.create(txn, name)
    number = txn.emit(Scheduled(record.number, due_ms, rule.packed() + fields))
    if key is not None:
        txn.emit(Unscheduled(record.number, False, (key,)))
    return due_ms, number


def _written(txn: WriteTxn, record: StreamRecord, fields: bytes) -> bytes:
    """The fields of an entry as the schema of its stream writes them. SchemaError."""
    if not record.schema_at:
        return fields
    from logstore.features.typed_rows import schema_of

    schema = schema_of(txn.index, record)
    assert schema is not None
    flat = unpacked(fields)
    row = schema.row(zip(flat[::2], flat[1::2], strict=True))
    return packed([part for pair in row for part in pair])


def cancel_named(txn: WriteTxn, stream: bytes, name: str) -> bool:
    """Repeat an entry no longer; False if the stream has no schedule of this name."""
    record = txn.record_by_name(stream)
    key = None if record is None else ScheduleRows(txn.index).named(record.number, name)
    return key is not None and cancel(txn, stream, key)


def cancel(txn: WriteTxn, name: bytes, key: Key) -> bool:
    """Keep an entry no longer; False if the stream has none of this key."""
    record = txn.record_by_name(name)
    if record is None or not ScheduleRows(txn.index).has(record.number, key):
        return False
    txn.emit(Unscheduled(record.number, False, (key,)))
    return True


def add_due(txn: WriteTxn) -> int:
    """Add entries whose time has come, a batch at most; how many are scheduled no longer."""
    due = batch(ScheduleRows(txn.index).due(txn.now_ms), BATCH_BYTES)
    done: dict[int, list[Key]] = {}
    for row in list(islice(due, BATCH_ENTRIES)):
        record = txn.record(row.stream)
        if record is not None and 0 < record.expires_ms <= txn.now_ms:
            continue  # it goes with its stream, which is about to be dropped
        due_ms: int | None = txn.now_ms + PUT_OFF_MS
        name = b"" if record is None else record.name
        try:
            rule = repeating.of(row.fields)
            next_ms = None if rule is None else _next(rule, txn.now_ms)
        except OptionError as exc:  # this machine knows less than where it was scheduled
            log.warning("a repeating schedule of %r is put off by 10 minutes: %s", name, exc)
        else:
            if _add(txn, row):
                txn.counts["scheduled_added"] += 1
                due_ms = next_ms
        if due_ms is not None:
            txn.emit(Scheduled(row.stream, due_ms, row.fields))
        done.setdefault(row.stream, []).append(row.key)
    for stream, keys in done.items():
        txn.emit(Unscheduled(stream, True, tuple(keys)))
    return sum(map(len, done.values()))


def _next(rule: Repeat, now_ms: int) -> int | None:
    """When a rule's next time is, by now; None if it has none."""
    due_ms = rule.after(now_ms)
    return None if due_ms is None or due_ms > DUE_MAX_MS else due_ms


def _add(txn: WriteTxn, row: ScheduleRow) -> bool:
    """Add one entry; False if its stream has no ID left, or cannot be added to for damage."""
    record = txn.record(row.stream)
    if record is None:
        raise CorruptionError(
            f"an entry is scheduled for stream {row.stream}, which is gone: close the store, "
            "delete its index directory, and open it again"
        )
    flat = unpacked(row.fields)
    rows = codec().rows([list(zip(flat[::2], flat[1::2], strict=True))])
    before = txn.buffer.end
    try:
        add.add(txn, add.Add(record.name, rows, 0, 1, add.AUTO, schema_at=add.AS_STORED))
    except (IDOrderError, CorruptionError) as exc:
        if txn.buffer.end != before:
            raise
        log.warning("a scheduled entry of %r is put off by 10 minutes: %s", record.name, exc)
        return False
    return True
