"""How far a group is behind its stream.

Invariants: entries read and lag are reckoned from the two records alone, as Redis 8.2 does in
streamEstimateDistanceFromFirstEverEntry and streamReplyWithCGLag; None is "cannot be known", as the
peers' null. Decides nothing.
"""

from __future__ import annotations

from logstore.ids import ZERO_ID, StreamID
from logstore.index.group_keys import GroupRecord
from logstore.index.keys import StreamRecord

UNKNOWN = -1
_HALF = 1 << 63


def signed(count: int) -> int:
    """A count of entries as servers keep and show it, in 64 bits with a sign: behind 2^63-1 comes
    -2^63. Only a count that was set, with XSETID or RESTORE, ever gets there."""
    return count if -_HALF <= count < _HALF else (count + _HALF) % (2 * _HALF) - _HALF


def tombstones_after(record: StreamRecord, at: StreamID) -> bool:
    """Whether an entry from ``at`` on may have been deleted."""
    return bool(record.length) and record.max_deleted != ZERO_ID and at <= record.max_deleted


def estimate(record: StreamRecord, at: StreamID) -> int:
    """How many entries were ever added up to an ID; -1 if that cannot be known."""
    if record.entries_added == 0:
        return 0
    if not record.length and at <= record.last:
        return signed(record.entries_added)
    if at != ZERO_ID and at < record.max_deleted:
        return UNKNOWN
    if at == record.last:
        return signed(record.entries_added)
    if at > record.last:
        return UNKNOWN
    if record.max_deleted == ZERO_ID or record.max_deleted < record.first:
        if at < record.first:
            return signed(record.entries_added - record.length)
        if at == record.first:
            return signed(record.entries_added - record.length + 1)
    return UNKNOWN


def lag(record: StreamRecord, group: GroupRecord) -> int | None:
    """Entries that were not delivered yet; None if that cannot be known."""
    if record.entries_added == 0 or record.length == 0:
        return 0
    if group.last < record.first and record.max_deleted < record.first:
        return record.length
    if group.entries_read != UNKNOWN and not tombstones_after(record, group.last):
        return signed(record.entries_added - group.entries_read)
    read = estimate(record, group.last)
    return None if read == UNKNOWN else signed(record.entries_added - read)


def delivered(
    record: StreamRecord, group: GroupRecord, ids: list[StreamID]
) -> tuple[StreamID, int]:
    """Last delivered ID and entries read after these were handed out, in order."""
    last, read = group.last, group.entries_read
    count = len(ids)
    if read != UNKNOWN and last >= record.first and not tombstones_after(record, last):
        return ids[-1], signed(read + count)
    for at in ids:
        known = read != UNKNOWN and last >= record.first
        if known and not tombstones_after(record, last):
            read = signed(read + 1)
        elif record.entries_added:
            read = estimate(record, at)
        last = at
    return last, read
