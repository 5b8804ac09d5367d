"""Deciding scheduled entries: to keep one, to cancel it, to add what is due.

Invariants: adding an entry and keeping it no longer is one commit, so it comes exactly once,
whoever races or is killed; what is due is told by the store's clock, read under LOCK, so it never
comes early; entries are added in the order of (time, scheduling), by the rules of any add, with an
ID of the moment.
"""

from __future__ import annotations

from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime.engine import log
from logstore.engine.streams import add
from logstore.errors import CorruptionError, IDOrderError
from logstore.features.schedule import (
    Key,
    Scheduled,
    ScheduleRow,
    ScheduleRows,
    Unscheduled,
    unpacked,
)
from logstore.tuples import NamedTuple

BATCH_ENTRIES = 100  # added by one commit at most
BATCH_BYTES = 4 << 20
PUT_OFF_MS = 600_000  # what its stream cannot take: the other streams do not wait for it


class When(NamedTuple):
    """A moment (unix ms), or how long from the moment of the commit."""

    ms: int
    from_now: bool = False


def schedule(
    txn: WriteTxn, name: bytes, fields: bytes, when: When, *, create: bool = True
) -> Key | None:
    """Keep an entry until its time; its key. None if the stream is missing and not created."""
    record = txn.record_by_name(name)
    if record is None:
        if not create:
            return None
        record = add.create(txn, name)
    due_ms = when.ms + txn.now_ms if when.from_now else when.ms
    return due_ms, txn.emit(Scheduled(record.number, due_ms, fields))


def cancel(txn: WriteTxn, name: bytes, key: Key) -> bool:
    """Keep an entry no longer; False if the stream has none of this key."""
    record = txn.record_by_name(name)
    if record is None or not ScheduleRows(txn.index).has(record.number, key):
        return False
    txn.emit(Unscheduled(record.number, False, (key,)))
    return True


def add_due(txn: WriteTxn) -> int:
    """Add entries whose time has come, a batch at most; how many are scheduled no longer."""
    rows: list[ScheduleRow] = []
    left_bytes = BATCH_BYTES
    for row in ScheduleRows(txn.index).due(txn.now_ms):
        rows.append(row)
        left_bytes -= len(row.fields)
        if left_bytes <= 0 or len(rows) == BATCH_ENTRIES:
            break
    done: dict[int, list[Key]] = {}
    for row in rows:
        record = txn.record(row.stream)
        if record is not None and 0 < record.expires_ms <= txn.now_ms:
            continue  # it goes with its stream, which is about to be dropped
        if _add(txn, row):
            txn.counts["scheduled_added"] += 1
        else:
            txn.emit(Scheduled(row.stream, txn.now_ms + PUT_OFF_MS, row.fields))
        done.setdefault(row.stream, []).append(row[1:3])
    for stream, keys in done.items():
        txn.emit(Unscheduled(stream, True, tuple(keys)))
    return sum(map(len, done.values()))


def _add(txn: WriteTxn, row: ScheduleRow) -> bool:
    """Add one entry; False if its stream has no ID left, or cannot be added to for damage."""
    record = txn.record(row.stream)
    if record is None:
        raise CorruptionError(
            f"an entry is scheduled for stream {row.stream}, which is gone: close the store, "
            "delete its index directory, and open it again"
        )
    flat = unpacked(row.fields)
    batch = codec().rows([list(zip(flat[::2], flat[1::2], strict=True))])
    before = txn.buffer.end
    try:
        add.add(txn, add.Add(record.name, batch, 0, 1, add.AUTO))
    except (IDOrderError, CorruptionError) as exc:
        if txn.buffer.end != before:
            raise
        log.warning("a scheduled entry of %r is put off by 10 minutes: %s", record.name, exc)
        return False
    return True
