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
from logstore.engine.groups.deliver import COUNT_MAX, redelivery_idle_ms
from logstore.engine.streams import removal
from logstore.engine.txn import pel
from logstore.engine.txn.nodes import Lookup
from logstore.engine.txn.pel import GIVEN_BACK_MS, PendingEntry
from logstore.errors import NotOwnerError, OptionError
from logstore.ids import StreamID
from logstore.index.group_keys import NO_ONE, NOBODY, GroupRecord
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames
from logstore.options import backoff_ms
from logstore.tuples import NamedTuple

NACK_MODES = ("silent", "fail", "fatal")


class NackDelay(NamedTuple):
    """How long what is given back waits: after its first delivery, and at most (ms)."""

    first_ms: int
    most_ms: int
    idle_ms: int | None = None  # a worker's own ``min_idle``


AT_ONCE = NackDelay(0, 0)


def ack(txn: WriteTxn, stream: bytes, group: bytes, ids: Sequence[StreamID]) -> int:
    """As XACK: how many were pending. 0 without such a stream or group."""
    known = admin.maybe(txn, stream, group)
    done = 0 if known is None else removal.removed(txn, known[1], ids)
    txn.counts["acks"] += done
    return done


class Fence(NamedTuple):
    """What must still be so for a delivery to be its consumer's."""

    stream: bytes
    group: bytes
    consumer: bytes
    id: StreamID
    deliveries: int  # how often it was delivered
    time_ms: int  # when it was delivered


def fenced_ack(txn: WriteTxn, fence: Fence) -> None:
    """Acknowledge a delivery. NotOwnerError if it is not this consumer's any more."""
    number = _owned(txn, fence)
    txn.emit(frames.Ack(number, fence.id.packed()))
    txn.counts["acks"] += 1


def fenced_nack(
    txn: WriteTxn,
    fence: Fence,
    *,
    mode: str = "fail",
    retry_count: int | None = None,
    error: bytes = b"",
    limit: Limit | None = None,
    later: NackDelay | None = None,
) -> None:
    """Give a delivery back. NotOwnerError if it is not this consumer's any more."""
    _owned(txn, fence)
    nack(
        txn,
        fence.stream,
        fence.group,
        [fence.id],
        mode=mode,
        retry_count=retry_count,
        error=error,
        limit=limit,
        later=later,
    )


def own_ack(txn: WriteTxn, fence: Fence) -> bool:
    """Acknowledge an entry that is pending with the fence's consumer, also if that got it again
    since; False if it is not: another one claimed it, or it was acknowledged."""
    number = _own(txn, fence)
    if number is None:
        return False
    txn.emit(frames.Ack(number, fence.id.packed()))
    txn.counts["acks"] += 1
    return True


def own_nack(
    txn: WriteTxn, fence: Fence, *, mode: str, error: bytes, later: NackDelay | None
) -> bool:
    """Give an entry back that is pending with the fence's consumer; False if it is not."""
    if _own(txn, fence) is None:
        return False
    nack(txn, fence.stream, fence.group, [fence.id], mode=mode, error=error, later=later)
    return True


def _own(txn: WriteTxn, fence: Fence) -> int | None:
    """The number of the group with which the entry is pending for the consumer."""
    known = admin.maybe(txn, fence.stream, fence.group)
    if known is None:
        return None
    number = known[1].number
    who = txn.groups.consumer_named(number, fence.consumer)
    pending = pel.find(txn.groups.index, number, fence.id)
    if who is None or pending is None or pending.consumer != who.number:
        return None
    return number


def _owned(txn: WriteTxn, fence: Fence) -> int:
    """The number of the group with which a delivery is pending as it was handed out."""
    stream, group, consumer, id, count, time_ms = fence
    known = admin.maybe(txn, stream, group)
    if known is not None:
        _, there = known
        who = txn.groups.consumer_named(there.number, consumer)
        pending = pel.find(txn.groups.index, there.number, id)
        held = None if who is None else (who.number, time_ms, count)
        if pending is not None and pending[1:] == held:
            return there.number
    raise NotOwnerError(
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
    later: NackDelay | None = None,
) -> int:
    """As XNACK (by its documentation): give entries back. They belong to no consumer then,
    and are read before all others.

    What was delivered too often for its group by then is dead-lettered at once, for the reason
    ``error``;
    ``limit`` is a worker's own, instead of what is set for the group, and so is ``later``.
    """
    if mode not in NACK_MODES:
        raise OptionError("mode must be SILENT, FAIL, or FATAL")
    if retry_count is not None and retry_count < 0:
        raise OptionError("Invalid RETRYCOUNT value, must be >= 0")
    record, group_record = admin.existing(txn, stream, group)
    later = _later(txn, group_record, mode, later)
    lookup = Lookup(txn, record)
    dead_letters = DeadLettering(txn, record, group_record, limit)
    place = group_record.next_nack
    items: dict[StreamID, tuple[int, int]] = {}
    for id in ids:
        pending = pel.find(txn.groups.index, group_record.number, id)
        if pending is None and not (force and id in lookup):
            continue
        before = pending.count if pending is not None else 0
        count = _count(before, mode) if retry_count is None else retry_count
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
    if items and later is not None:
        _put_off(txn, record, group_record, items, later)
    elif items:
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


def _count(before: int, mode: str) -> int:
    """How often an entry counts as delivered when it is given back."""
    if mode == "silent":
        return max(0, before - 1)
    return COUNT_MAX if mode == "fatal" else before


def _later(
    txn: WriteTxn, group: GroupRecord, mode: str, asked: NackDelay | None
) -> NackDelay | None:
    """How long what is given back waits, and the idle time by which it is read (None: nothing is
    set, so it joins the line of what was given back when its wait is over); None: it does not."""
    settings = txn.settings.group(group.number)
    if asked is None and mode == "fail" and settings.backoff_ms is not None:
        asked = NackDelay(settings.backoff_ms, settings.backoff_max_ms)
    if asked is None or not asked.first_ms:
        return None
    return asked._replace(idle_ms=redelivery_idle_ms(settings, asked.idle_ms))


def _put_off(
    txn: WriteTxn,
    record: StreamRecord,
    group: GroupRecord,
    items: dict[StreamID, tuple[int, int]],
    later: NackDelay,
) -> None:
    """Have entries pending with nobody's name, and idle for long enough when their wait is over,
    or without an idle time to read by in the line of what was given back then.

    Not with consumer 0, whose entries are offered at once; and not with who had them, who would get
    them with its backlog.
    """
    nobody = admin.consumer(txn, group, NOBODY)
    put_off: list[tuple[int, int, int, int]] = []
    for id in sorted(items):
        _, count = items[id]
        wait_ms = backoff_ms(later.first_ms, later.most_ms, count)
        due_ms = txn.now_ms + wait_ms
        if later.idle_ms is None:
            at_ms = pel.put_off_until(due_ms)
        else:
            at_ms = max(GIVEN_BACK_MS, due_ms - later.idle_ms)
        put_off.append((id.ms, id.seq, at_ms, count))
    txn.emit(
        frames.Claim(group.number, nobody.number, nobody.seen_ms, nobody.active_ms, tuple(put_off))
    )
    txn.woken.add(record.name)  # who waits may know of nothing that comes as early


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
    removal.delete_entries(txn, record, going)
    return replies
