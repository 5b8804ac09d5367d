"""Deciding what happens to a stream as a whole: made empty, renamed, removed, its last ID moved.

Invariants: a stream is its number, so a new name takes along all that belongs to it: entries,
groups and what is pending, settings, what is scheduled or remembered of producers, and when it
expires. Whoever had the new name goes first, in the same commit, and readers that wait under either
name are woken. Every refusal comes before the first frame.
"""

from __future__ import annotations

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.streams import idempotency, latest_entries
from logstore.engine.streams.add import create, existing
from logstore.engine.streams.removal import vacate
from logstore.engine.txn import nodes
from logstore.engine.txn.group_view import UNKNOWN, signed
from logstore.errors import OptionError, UsageError
from logstore.features.ttl_rows import TTLForgotten, TTLRows
from logstore.ids import ZERO_ID, StreamID
from logstore.log import frame as frames
from logstore.log.frame import Group, Rename
from logstore.options import check_name


def create_empty(txn: WriteTxn, name: bytes) -> bool:
    """Make an empty stream; False if there is one."""
    if txn.record_by_name(name) is not None:
        return False
    create(txn, name)
    return True


def drop(txn: WriteTxn, name: bytes) -> bool:
    """Remove a stream with all its entries; False if there is none."""
    record = txn.record_by_name(name)
    if record is None:
        return False
    txn.emit(frames.Drop(record.number))
    return True


def rename(txn: WriteTxn, old: bytes, new: bytes, *, replace: bool = True) -> bool:
    """Give a stream another name; False if that is a stream's already and ``replace`` is False.

    To the name that it has it is nothing. StreamNotFoundError, TooLargeError.
    """
    record = existing(txn, old)
    if txn.record_by_name(new) is not None and not replace:
        return False
    if old != new:
        check_name(new, "a stream name")
        vacate(txn, new)
        txn.emit(Rename(record.number, new))
    return True


def set_id(
    txn: WriteTxn,
    name: bytes,
    last: StreamID,
    entries_added: int | None,
    max_deleted: StreamID | None,
    *,
    reads_follow: bool = False,
) -> None:
    """As XSETID: move the last ID, and with it what is counted.

    ``reads_follow``: no group has read more than was added then, as since Redis 8.10.
    """
    if entries_added is not None and entries_added < 0:
        raise OptionError("entries_added must be positive")
    if max_deleted is not None and last < max_deleted:
        raise UsageError(
            "The ID specified in XSETID is smaller than the provided max_deleted_entry_id"
        )
    record = existing(txn, name)
    # As the peers: 0-0 is the same as none given.
    deleted = record.max_deleted
    if max_deleted is not None and max_deleted != ZERO_ID:
        deleted = max_deleted
    added = record.entries_added if entries_added is None else entries_added
    if last < record.max_deleted:
        raise UsageError("The ID specified in XSETID is smaller than current max_deleted_entry_id")
    if record.length and last < nodes.last_live(txn, record):
        raise UsageError("The ID specified in XSETID is smaller than the target stream top item")
    if entries_added is not None and record.length > entries_added:
        raise UsageError(
            "The entries_added specified in XSETID is smaller than the target stream length"
        )
    lowered = last < record.last
    if (last, added, deleted) != (record.last, record.entries_added, record.max_deleted):
        txn.emit(frames.Record(record.number, record.length, added, *last, *record.first, *deleted))
    if lowered:
        idempotency.forget_above(txn, record.number, last)
        compact = txn.settings.stream(record.number).compact_by is not None
        latest_entries.forget(txn, record.number, remembered=compact)
        _forget_times(txn, record.number, last)
    if reads_follow:
        for group in list(txn.groups.of_stream(record.number)):
            if group.entries_read != UNKNOWN and group.entries_read > added:
                at = (record.number, group.number)
                txn.emit(Group(*at, *group.last, signed(added), group.name))


def _forget_times(txn: WriteTxn, stream: int, above: StreamID) -> None:
    """No entry takes over the time to live of another one that had its ID."""
    if next(TTLRows(txn.index).of_stream(stream, above), None) is not None:
        txn.emit(TTLForgotten(stream, above))
