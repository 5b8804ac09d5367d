"""Deciding what ends or gives back a delivery: as XACK, XACKDEL, XNACK; and the fenced ack.

Invariants: every refusal comes before the first frame; a fenced ack holds only for the delivery
that was handed out: same consumer, same count, same time. What is given back for the last time is
moved to the dead letter stream at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import admin
from logstore.engine.groups.dead_letter import DeadLettering, Limit
from logstore.engine.groups.deliver import COUNT_MAX
from logstore.engine.streams import delete, removal
from logstore.engine.txn import pel
from logstore.engine.txn.nodes import Lookup
from logstore.engine.txn.pel import PendingEntry
from logstore.errors import NotOwner, OptionError
from logstore.ids import StreamID
from logstore.index.group_keys import NO_ONE
from logstore.log import groupframe as frames

NACK_MODES = ("silent", "fail", "fatal")


def ack(txn: WriteTxn, stream: bytes, group: bytes, ids: Sequence[StreamID]) -> int:
    """As XACK: how many were pending. 0 without such a stream or group."""
    known = admin.maybe(txn, stream, group)
    done = 0 if known is None else removal.removed(txn, known[1], ids)
    txn.counts["acks"] += done
    return done


def fenced_ack(
    txn: WriteTxn,
    stream: bytes,
    group: bytes,
    consumer: bytes,
    id: StreamID,
    count: int,
    time_ms: int,
) -> None:
    """Acknowledge a delivery if it is still this consumer's; else NotOwner, and nothing happens."""
    number = _owned(txn, stream, group, consumer, id, count, time_ms)
    txn.emit(frames.Ack(number, id.packed()))
    txn.counts["acks"] += 1


def fenced_nack(
    txn: WriteTxn,
    stream: bytes,
    group: bytes,
    consumer: bytes,
    id: StreamID,
    count: int,
    time_ms: int,
    *,
    mode: str = "fail",
    retry_count: int | None = None,
    error: bytes = b"",
    limit: Limit | None = None,
) -> None:
    """Give a delivery back if it is still this consumer's; else NotOwner, and nothing happens."""
    _owned(txn, stream, group, consumer, id, count, time_ms)
    nack(txn, stream, group, [id], mode=mode, retry_count=retry_count, error=error, limit=limit)


def _owned(
    txn: WriteTxn,
    stream: bytes,
    group: bytes,
    consumer: bytes,
    id: StreamID,
    count: int,
    time_ms: int,
) -> int:
    """The number of the group with which a delivery is pending as it was handed out."""
    known = admin.maybe(txn, stream, group)
    if known is not None:
        _, there = known
        who = txn.groups.consumer_named(there.number, consumer)
        pending = pel.find(txn.groups.index, there.number, id)
        held = None if who is None else (who.number, time_ms, count)
        if pending is not None and pending[1:] == held:
            return there.number
    raise NotOwner(
        f"entry {id} is no longer pending with this consumer as it was handed out: another one "
        "claimed or acknowledged it; drop what you did with it",
        stream=stream,
    )


def nack(
    txn: WriteTxn,
    stream: bytes,
    group: bytes,
    ids: Sequence[StreamID],
    *,
    mode: str = "fail",
    retry_count: int | None = None,
    force: bool = False,
    error: bytes = b"",
    limit: Limit | None = None,
) -> int:
    """As XNACK (by its documentation): give entries back. They belong to no consumer then,
    and are read before all others.

    What was delivered too often for its group by then is dead-lettered at once, for the reason
    ``error``;
    ``limit`` is a worker's own, instead of what is set for the group.
    """
    if mode not in NACK_MODES:
        raise OptionError("mode must be SILENT, FAIL, or FATAL")
    if retry_count is not None and retry_count < 0:
        raise OptionError("Invalid RETRYCOUNT value, must be >= 0")
    record, group_record = admin.existing(txn, stream, group)
    lookup = Lookup(txn, record)
    dead_letters = DeadLettering(txn, record, group_record, limit)
    place = group_record.next_nack
    items: dict[StreamID, tuple[int, int]] = {}
    for id in ids:
        pending = pel.find(txn.groups.index, group_record.number, id)
        if pending is None and not (force and id in lookup):
            continue
        count = pending.count if pending is not None else 0
        if retry_count is not None:
            count = retry_count
        elif mode == "silent":
            count = max(0, count - 1)
        elif mode == "fatal":
            count = COUNT_MAX
        items[id] = (place, count)
        place += 1
    txn.counts["nacks"] += len(items)
    done = len(items)
    for id in [id for id, (_, count) in items.items() if dead_letters.reached(count)]:
        if dead_letters.full:
            break  # the rest is given back; the read that would take it over moves it
        del items[id]
        pending = pel.find(txn.groups.index, group_record.number, id) or PendingEntry(
            id, NO_ONE, 0, 0
        )
        fields = lookup.fields(id)
        if fields is None:
            dead_letters.end(id)
        else:
            dead_letters.put(pending, fields, error or _reason(mode, pending.count))
    dead_letters.close()
    if items:
        txn.emit(
            frames.Claim(
                group_record.number,
                NO_ONE,
                0,
                0,
                tuple((id.ms, id.seq, *items[id]) for id in sorted(items)),
            )
        )
    return done


def _reason(mode: str, count: int) -> bytes:
    return b"given back as fatal" if mode == "fatal" else b"given back at delivery %d" % count


def ack_delete(
    txn: WriteTxn, stream: bytes, group: bytes, ids: Sequence[StreamID], mode: str = "keep"
) -> list[int]:
    """As XACKDEL, per ID: -1 not pending here, 1 acknowledged and deleted, 2 still referenced."""
    removal.check_mode(mode)
    known = admin.maybe(txn, stream, group)
    if known is None:
        return [-1] * len(ids)
    record, there = known
    pending = removal.pending_among(txn, there, ids)
    replies: list[int] = []
    going: list[StreamID] = []
    if pending:
        txn.emit(frames.Ack(there.number, b"".join(sorted(pending))))
    txn.counts["acks"] += len(pending)
    groups = txn.groups.of_stream(record.number) if mode == "acked" else []
    for id in ids:
        if (packed := id.packed()) not in pending:
            replies.append(-1)
            continue
        pending.remove(packed)  # named again, it is no longer pending
        if removal.referenced(txn, groups, id):
            replies.append(2)
        else:
            replies.append(1)
            going.append(id)
    if mode == "delete":
        removal.release(txn, record, going)
    delete.delete_entries(txn, record, going)
    return replies
