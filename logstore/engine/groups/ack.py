"""Deciding what ends or gives back a delivery: as XACK, XACKDEL, XNACK; and the fenced ack.

Invariants: every refusal comes before the first frame; a fenced ack holds only for the delivery
that was handed out: same consumer, same count, same time. What is given back for the last time is
buried at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import admin
from logstore.engine.groups.dead_letter import Burial, Limit
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


def ack(state: WriteTxn, stream: bytes, group: bytes, ids: Sequence[StreamID]) -> int:
    """As XACK: how many were pending. 0 without such a stream or group."""
    found = admin.maybe(state, stream, group)
    done = 0 if found is None else removal.removed(state, found[1], ids)
    state.counts["acks"] += done
    return done


def fenced_ack(
    state: WriteTxn, stream: bytes, group: bytes, consumer: bytes, id: StreamID, count: int,
    time_ms: int,
) -> None:  # fmt: skip
    """Acknowledge a delivery if it is still this consumer's; else NotOwner, and nothing happens."""
    number = _owned(state, stream, group, consumer, id, count, time_ms)
    state.emit(frames.Ack(number, id.packed()))
    state.counts["acks"] += 1


def fenced_nack(
    state: WriteTxn, stream: bytes, group: bytes, consumer: bytes, id: StreamID, count: int,
    time_ms: int, *, mode: str = "fail", retry_count: int | None = None, error: bytes = b"",
    limit: Limit | None = None,
) -> None:  # fmt: skip
    """Give a delivery back if it is still this consumer's; else NotOwner, and nothing happens."""
    _owned(state, stream, group, consumer, id, count, time_ms)
    nack(
        state, stream, group, [id], mode=mode, retry_count=retry_count, error=error, limit=limit
    )  # fmt: skip


def _owned(
    state: WriteTxn, stream: bytes, group: bytes, consumer: bytes, id: StreamID, count: int,
    time_ms: int,
) -> int:  # fmt: skip
    """The number of the group with which a delivery is pending as it was handed out."""
    found = admin.maybe(state, stream, group)
    if found is not None:
        _, there = found
        who = state.groups.consumer_named(there.number, consumer)
        waiting = pel.find(state.groups.txn, there.number, id)
        held = None if who is None else (who.number, time_ms, count)
        if waiting is not None and waiting[1:] == held:
            return there.number
    raise NotOwner(
        f"entry {id} is no longer pending with this consumer as it was handed out: another one "
        "claimed or acknowledged it; drop what you did with it",
        stream=stream,
    )


def nack(
    state: WriteTxn, stream: bytes, group: bytes, ids: Sequence[StreamID], *, mode: str = "fail",
    retry_count: int | None = None, force: bool = False, error: bytes = b"",
    limit: Limit | None = None,
) -> int:  # fmt: skip
    """As XNACK (by its documentation): give entries back, nobody's, at the head of the line.

    What was delivered too often for its group by then is buried at once, for the reason ``error``;
    ``limit`` is a worker's own, instead of what is set for the group.
    """
    if mode not in NACK_MODES:
        raise OptionError("mode must be SILENT, FAIL, or FATAL")
    if retry_count is not None and retry_count < 0:
        raise OptionError("Invalid RETRYCOUNT value, must be >= 0")
    record, found = admin.existing(state, stream, group)
    lookup = Lookup(state, record)
    burial = Burial(state, record, found, limit)
    place = found.next_nack
    items: dict[StreamID, tuple[int, int]] = {}
    for id in ids:
        waiting = pel.find(state.groups.txn, found.number, id)
        if waiting is None and not (force and id in lookup):
            continue
        count = waiting.count if waiting is not None else 0
        if retry_count is not None:
            count = retry_count
        elif mode == "silent":
            count = max(0, count - 1)
        elif mode == "fatal":
            count = COUNT_MAX
        items[id] = (place, count)
        place += 1
    state.counts["nacks"] += len(items)
    done = len(items)
    for id in [id for id, (_, count) in items.items() if burial.reached(count)]:
        if burial.full:
            break  # the rest is given back, and buried by who would take it over
        del items[id]
        waiting = pel.find(state.groups.txn, found.number, id) or PendingEntry(id, NO_ONE, 0, 0)
        fields = lookup.fields(id)
        if fields is None:
            burial.end(id)
        else:
            burial.put(waiting, fields, error or _reason(mode, waiting.count))
    burial.close()
    if items:
        state.emit(frames.Claim(
            found.number, NO_ONE, 0, 0, tuple((id.ms, id.seq, *items[id]) for id in sorted(items))
        ))  # fmt: skip
    return done


def _reason(mode: str, count: int) -> bytes:
    return b"given back as fatal" if mode == "fatal" else b"given back at delivery %d" % count


def ack_delete(
    state: WriteTxn, stream: bytes, group: bytes, ids: Sequence[StreamID], mode: str = "keep"
) -> list[int]:
    """As XACKDEL, per ID: -1 not pending here, 1 acknowledged and deleted, 2 still referenced."""
    removal.check_mode(mode)
    found = admin.maybe(state, stream, group)
    if found is None:
        return [-1] * len(ids)
    record, there = found
    pending = removal.pending_among(state, there, ids)
    replies: list[int] = []
    going: list[StreamID] = []
    removal.removed(state, there, ids)
    state.counts["acks"] += len(pending)
    for id in ids:
        if (packed := id.packed()) not in pending:
            replies.append(-1)
            continue
        pending.remove(packed)  # named again, it is no longer pending
        if mode == "acked" and removal.referenced(state, record, id):
            replies.append(2)
        else:
            replies.append(1)
            going.append(id)
    if going:
        delete.delete_ids(state, stream, going, mode)
    return replies
