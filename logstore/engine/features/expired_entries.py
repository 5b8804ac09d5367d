"""Deleting entries whose time to live is over, and what becomes of them in groups.

In a group that has a dead letter stream, an entry that nobody acked so far moves there, with
``expired`` as its error, whether it was delivered or not. It is pending nowhere afterwards.

Invariants: dead letters, acks, deletes and the frame that ends the times are one commit, in this
order, so that an entry expires once, whoever races to do it and whoever is killed meanwhile. What
is due is told by the store's clock, read under LOCK, so it never goes early. What a damaged node
holds is put off, and keeps no other entry waiting. On a full disk this is done in the space set
aside: a commit is small for that.
"""

from __future__ import annotations

from itertools import groupby, islice
from operator import attrgetter

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups.dead_letter import DeadLettering, Limit
from logstore.engine.runtime.engine import log
from logstore.engine.streams import delete, removal
from logstore.engine.txn import pel
from logstore.engine.txn.nodes import Lookup
from logstore.engine.txn.pel import PendingEntry
from logstore.errors import CorruptionError
from logstore.features.entry_ttl import TTL, TTLEnded, TTLRows, packed
from logstore.ids import StreamID
from logstore.index.group_keys import GroupRecord
from logstore.index.keys import StreamRecord

BATCH_ENTRIES = 500  # that one commit deletes at most
DEAD_BYTES = 256 << 10  # of an entry's fields, after which a commit takes no more entries
PUT_OFF_MS = 600_000  # what stands in a damaged node
EXPIRED = b"expired"


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
        deleted = delete.delete_entries(txn, record, list(there))
    except CorruptionError as exc:
        if txn.buffer.end != before:
            raise
        log.warning("entries of %r expire 10 minutes later: %s", record.name, exc)
        txn.emit(TTL(record.number, txn.now_ms + PUT_OFF_MS, packed(ids)))
        return len(ids)
    txn.counts["expired_entries"] += deleted
    txn.emit(TTLEnded(record.number, packed(ids[:seen])))
    return seen


def _take(
    txn: WriteTxn, record: StreamRecord, ids: list[StreamID]
) -> tuple[dict[StreamID, list[bytes]], int]:
    """Those of the entries that are still there, with their fields; how many were looked up."""
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
