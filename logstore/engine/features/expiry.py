"""Deciding when streams expire, and deleting streams and entries whose time has come.

A stream expires as a whole. An entry that was added with a time to live expires alone: in a group
that has a dead letter stream, it moves there if nobody acked it so far, with ``expired`` as its
error, whether it was delivered or not. It is pending nowhere afterwards.

Invariants of streams: from its time on a stream is gone for every reader and every writer at once,
by the store's clock (``Snapshot.record``, ``TxnView.record_by_name``), whether or not it was
dropped yet. It goes with a DROP frame, in the commit that gives its name to another stream
(``removal.vacate``) or in the background, and nothing is ever added to it in between. A clock that
is put back before the drop brings it back. Adding and reading compare one number, and look nothing
up.

Invariants of entries: dead letters, acks, deletes and the frame that ends the times are one commit,
in this order, so that an entry expires once, whoever races to do it and whoever is killed
meanwhile. What is due is read off the store's clock under LOCK, so an entry never goes early. What
a damaged node holds is put off, and keeps no other entry waiting. On a full disk this is done in
the space set aside: a commit is small for that.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import groupby, islice
from operator import attrgetter
from typing import Literal, TypeAlias

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.features.due_entries import DueTime
from logstore.engine.groups.dead_letter import DeadLettering, Limit
from logstore.engine.runtime.engine import log
from logstore.engine.streams import removal
from logstore.engine.txn import pel
from logstore.engine.txn.nodes import Lookup
from logstore.engine.txn.pel import PendingEntry
from logstore.errors import CorruptionError, OptionError
from logstore.features.ttl_rows import TTL, Expire, ExpiryRows, TTLEnded, TTLRows, pack_ids
from logstore.ids import StreamID
from logstore.index.group_keys import GroupRecord
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames

EXPIRES_MAX_MS = (1 << 63) - 1
STREAMS_A_COMMIT = 100
NODES_A_COMMIT = 10_000  # a stream with more goes in a commit of its own
# Only if the stream never expires; only if it does; only to a later time; only to an earlier one.
Condition: TypeAlias = Literal["never", "already", "later", "sooner"]
BATCH_ENTRIES = 500  # that one commit deletes at most
DEAD_BYTES = 256 << 10  # of an entry's fields, after which a commit takes no more entries
PUT_OFF_MS = 600_000  # what stands in a damaged node
EXPIRED = b"expired"


def expire(
    txn: WriteTxn, name: bytes, when: DueTime, conditions: AbstractSet[Condition] = frozenset()
) -> bool:
    """Set when a stream expires; False if there is none, or a condition was not met.

    A time that has come already drops it. OptionError for one that cannot be counted in 63 bits.
    """
    record = txn.record_by_name(name)
    if record is None:
        return False
    at_ms = when.ms + txn.now_ms if when.from_now else when.ms
    if at_ms > EXPIRES_MAX_MS:
        raise OptionError(f"a stream cannot expire that late: {at_ms} ms is above 63 bits")
    if not _met(conditions, record.expires_ms, at_ms):
        return False
    expire_at(txn, record, at_ms)
    return True


def _met(conditions: AbstractSet[Condition], before_ms: int, at_ms: int) -> bool:
    """Whether all of the conditions are; "never" counts as later than any time."""
    return not (
        ("never" in conditions and before_ms)
        or ("already" in conditions and not before_ms)
        or ("later" in conditions and (not before_ms or at_ms <= before_ms))
        or ("sooner" in conditions and before_ms and at_ms >= before_ms)
    )


def expire_at(txn: WriteTxn, record: StreamRecord, at_ms: int) -> None:
    """The stream expires then (unix ms); it is dropped if that is now or was before."""
    if at_ms <= txn.now_ms:
        txn.emit(frames.Drop(record.number))
    else:
        txn.emit(Expire(record.number, at_ms))


def persist(txn: WriteTxn, name: bytes) -> bool:
    """The stream expires no longer; False if there is none, or it never did."""
    record = txn.record_by_name(name)
    if record is None or not record.expires_ms:
        return False
    txn.emit(Expire(record.number, 0))
    return True


def drop_expired(txn: WriteTxn) -> int:
    """Drop streams whose time has come, a batch at most; how many."""
    expired: list[int] = []
    left = NODES_A_COMMIT
    for stream in ExpiryRows(txn.index).expired(txn.now_ms):
        record = txn.record(stream)
        if record is None:
            raise CorruptionError(
                f"stream {stream} is to expire, and is gone: close the store, delete its index "
                "directory, and open it again"
            )
        expired.append(stream)
        left -= record.nodes
        if left <= 0 or len(expired) == STREAMS_A_COMMIT:
            break
    for stream in expired:
        txn.emit(frames.Drop(stream))
    txn.counts["expired_streams"] += len(expired)
    return len(expired)


def expire_due(txn: WriteTxn) -> int:
    """Delete entries whose time to live is over, a batch at most; how many it was done with."""
    rows = list(islice(TTLRows(txn.index).due(txn.now_ms), BATCH_ENTRIES))
    done = 0
    for stream, due in groupby(sorted(rows, key=attrgetter("stream")), attrgetter("stream")):
        record = txn.record(stream)
        ids = sorted(row.id for row in due)
        if record is None:
            raise CorruptionError(
                f"entries of stream {stream} are to expire, and it is gone: close the store, "
                "delete its index directory, and open it again"
            )
        if 0 < record.expires_ms <= txn.now_ms:
            continue  # they go with their stream, which is about to be dropped
        done += _expire(txn, record, ids)
    return done


def _expire(txn: WriteTxn, record: StreamRecord, ids: list[StreamID]) -> int:
    """Delete entries of one stream, as many as a commit may; how many it was done with."""
    before = txn.buffer.end
    try:
        there, seen = _take(txn, record, ids)
        for group in txn.groups.of_stream(record.number):
            _leave(txn, record, group, there)
        deleted = removal.delete_entries(txn, record, list(there))
    except CorruptionError as exc:
        if txn.buffer.end != before:
            raise
        log.warning("entries of %r expire 10 minutes later: %s", record.name, exc)
        txn.emit(TTL(record.number, txn.now_ms + PUT_OFF_MS, pack_ids(ids)))
        return len(ids)
    txn.counts["expired_entries"] += deleted
    txn.emit(TTLEnded(record.number, pack_ids(ids[:seen])))
    return seen


def _take(
    txn: WriteTxn, record: StreamRecord, ids: list[StreamID]
) -> tuple[dict[StreamID, list[bytes]], int]:
    """The entries that are still there, with their fields; how many were looked up."""
    lookup = Lookup(txn, record)
    there: dict[StreamID, list[bytes]] = {}
    size_bytes = 0
    for seen, id in enumerate(ids, 1):
        items = lookup.fields(id)
        if items is not None:
            there[id] = items
            size_bytes += sum(map(len, items))
        if size_bytes >= DEAD_BYTES:
            return there, seen
    return there, len(ids)


def _leave(
    txn: WriteTxn, record: StreamRecord, group: GroupRecord, there: dict[StreamID, list[bytes]]
) -> None:
    """The entries are no longer of a group: what it did not ack moves to its dead letter stream."""
    settings = txn.settings.group(group.number)
    if settings.dead_letter is None:
        removal.removed(txn, group, list(there))
        return
    dead = DeadLettering(txn, record, group, Limit(1, settings.dead_letter))
    moves = dead.reached(1)
    for id, items in there.items():
        pending = pel.find(txn.groups.index, group.number, id)
        if pending is None and id > group.last:
            pending = PendingEntry(id, 0, 0, 0)  # it was not delivered
        if pending is not None and moves:
            dead.put(pending, items, EXPIRED)
        elif pending is not None:
            dead.end(id)
    dead.close()
