"""Deciding group reads: new entries, a consumer's own history, what others left. As XREADGROUP.

A read of new entries first takes over what was pending for ``min_idle``, of its group or of the
read itself, whichever is shorter; what was given back needs no time. A
read without acknowledgement (``noack``) takes over only what it asks for itself: nobody would ack
the rest. The same rule holds for readers that wait, and for the read that they commit in the end.

Invariants: every refusal comes before the first frame; the group's last delivered ID, the entries
read and the pending entries change in one frame; an entry that is gone is never delivered as new;
what was delivered too often for its group is moved to its dead letter stream, not delivered again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import admin
from logstore.engine.groups.dead_letter import DeadLettering, Limit
from logstore.engine.streams.budget import ByteBudget
from logstore.engine.txn import group_view, nodes, pel
from logstore.engine.txn.nodes import Lookup
from logstore.engine.txn.pel import GIVEN_BACK_MS
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.group_keys import ConsumerRecord, GroupRecord
from logstore.index.group_txn import GroupTxn
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames
from logstore.options import AMOUNT_MAX, GroupSettings
from logstore.tuples import NamedTuple

_PACK_IDS: Final[Any] = codec().pack_ids
_FIRST_DELIVERIES: Final[Any] = codec().first_deliveries
GIVEN_BACK_ONLY = AMOUNT_MAX  # as a time to be idle: what somebody has is never idle for so long


def redelivery_idle_ms(
    settings: GroupSettings[bytes], asked_ms: int | None, *, noack: bool = False
) -> int | None:
    """For how long an entry must be pending to be taken over by a read; None: none is."""
    after_ms = None if noack else settings.min_idle_ms
    if asked_ms is None or after_ms is None:
        return after_ms if asked_ms is None else asked_ms
    return min(asked_ms, after_ms)


def idle_until_ms(now_ms: int, idle: int) -> int:
    """An entry delivered at this time or before is idle for so long; one given back is as soon as
    it is in the line."""
    least_ms = pel.joined_line(now_ms) if now_ms >= GIVEN_BACK_MS else 0
    return max(pel.delivered_until_ms(now_ms, idle), least_ms)


def redelivery_due_ms(delivered_ms: int, idle: int) -> int:
    """When an entry that was delivered at this time is idle for so long."""
    if idle <= 0:
        return 0
    given_back = delivered_ms < GIVEN_BACK_MS <= idle
    return delivered_ms if given_back else delivered_ms + idle


def claimable_first(
    txn: GroupTxn, group: int, there: Callable[[StreamID], bool], first_id: StreamID, idle: int
) -> tuple[int, int] | None:
    """The delivery of what a read takes over first, and when it does; None: there is nothing."""
    found = pel.oldest(txn, group, there, first_id)
    if found is None:
        return None
    oldest_ms, due_ms = found
    if due_ms < 0:
        return oldest_ms, redelivery_due_ms(oldest_ms, idle)
    held = None
    if idle < GIVEN_BACK_MS:  # one of those that somebody has may be idle for long enough before
        held = pel.oldest(txn, group, there, first_id, GIVEN_BACK_MS)
    if held is not None and (held_ms := redelivery_due_ms(held[0], idle)) < due_ms:
        return held[0], held_ms
    return 0, due_ms


COUNT_MAX = (1 << 63) - 1
WHERE = " in XREADGROUP with GROUP option"


class Delivered(NamedTuple):
    """An entry as it is handed to a consumer."""

    id: StreamID
    items: list[bytes] | None  # field, value, ...; None: it was deleted meanwhile
    idle_ms: int  # since the delivery before; 0 for a new one
    count: int  # type: ignore[assignment]  # deliveries, this one included
    time_ms: int  # of this delivery


def read_new(
    txn: WriteTxn,
    stream: bytes,
    group: bytes,
    consumer: bytes,
    *,
    count: int = 0,
    noack: bool = False,
    asked_idle_ms: int | None = None,
    takes_new: bool = True,
    limit: Limit | None = None,
    singly: bool = False,
    max_bytes: int = 0,
    room: ByteBudget | None = None,
    left_before_ms: int | None = None,
) -> list[Delivered]:
    """As XREADGROUP ``>``: at most ``count`` (0: all), and ``max_bytes`` (0: any) or what there is
    ``room`` for; first what has idled for so long (CLAIM), or for as long as is set for the group.

    Without ``takes_new`` nothing else: the new entries are somebody else's. ``limit`` is a worker's
    own, instead of what is set for the group. ``singly``: where entries may die of it, what was
    delivered before comes alone, so that one that kills its worker counts against no other. With
    ``left_before_ms`` only what was delivered before that time is taken over, so that a read in
    parts does not meet what its own parts took.
    """
    record, group_record = admin.existing(txn, stream, group, WHERE)
    who = admin.consumer(txn, group_record, consumer)
    claimed: list[Delivered] = []
    if room is None and max_bytes:
        room = ByteBudget(max_bytes)
    settings = txn.settings.group(group_record.number)
    idle_ms = redelivery_idle_ms(settings, asked_idle_ms, noack=noack)
    if idle_ms is not None and group_record.pending:
        dead_letters = DeadLettering(txn, record, group_record, limit)
        alone = singly and dead_letters.limit is not None
        most = 1 if alone else count
        until_ms = idle_until_ms(txn.now_ms, idle_ms)
        if left_before_ms is not None:
            until_ms = min(until_ms, left_before_ms - 1)
        claimed = _claim_idle(txn, dead_letters, record, group_record, who, until_ms, most, room)
        txn.counts["claims"] += len(claimed)
        full = room is not None and room.full
        if claimed and (alone or full or 0 < count <= len(claimed)):
            return claimed
    left_count = count - len(claimed) if count else 0
    new = fresh(txn, record, group_record, left_count, room) if takes_new else []
    if not new:
        admin.seen(txn, group_record, who)
        return claimed
    deliver(txn, record, group_record, who.number, new, noack=noack)
    return claimed + new


def deliver(
    txn: WriteTxn,
    record: StreamRecord,
    group: GroupRecord,
    consumer: int,
    new: list[Delivered],
    *,
    noack: bool = False,
) -> None:
    """These, the next of the group, are this consumer's."""
    txn.counts["deliveries"] += len(new)
    ids = [delivered.id for delivered in new]
    (last_ms, last_seq), read = group_view.delivered(record, group, ids)
    pending = b"" if noack else _PACK_IDS(ids)[0]
    read_now = group.number, consumer, txn.now_ms, last_ms, last_seq, read, int(noack), pending
    txn.emit(frames.Deliver(*read_now))


def left(
    txn: WriteTxn,
    stream: bytes,
    group: bytes,
    asked_idle_ms: int | None,
    *,
    noack: bool,
    limited: bool,
) -> bool:
    """Whether a read left something for others: new entries, or if it was ``limited`` old ones."""
    known = admin.maybe(txn, stream, group)
    if known is None:
        return False
    if known[1].last < known[0].last:
        return True
    settings = txn.settings.group(known[1].number)
    takes_over = redelivery_idle_ms(settings, asked_idle_ms, noack=noack) is not None
    return limited and takes_over and known[1].pending > 0


def fresh(
    txn: WriteTxn, record: StreamRecord, group: GroupRecord, limit: int, room: ByteBudget | None
) -> list[Delivered]:
    """At most ``limit`` (0: all) entries above the group's last delivered ID, as many as there is
    ``room`` for (None: any number)."""
    if group.last >= record.last or group.last == MAX_ID or not record.length:
        return []
    start, now_ms = group.last.next(), txn.now_ms
    new: list[Delivered] = []
    for master, lp, vector in nodes.live_from(txn, record, start):
        left = limit - len(new) if limit else -1
        found: list[Delivered] = _FIRST_DELIVERIES(
            lp, *master, vector, start, left, Delivered, StreamID, now_ms
        )
        if room is not None:
            for at, delivered in enumerate(found):
                if not room.takes(delivered.items or ()):
                    return new + found[:at]
        new += found
        if limit and len(new) >= limit:
            break
    return new


def _claim_idle(
    txn: WriteTxn,
    dead_letters: DeadLettering,
    record: StreamRecord,
    group: GroupRecord,
    who: ConsumerRecord,
    until_ms: int,
    limit: int,
    room: ByteBudget | None,
) -> list[Delivered]:
    """Take over what was delivered at ``until_ms`` or before, the oldest first. Entries that are
    gone are passed over, or cleared from the group."""
    lookup = Lookup(txn, record)
    taken: list[Delivered] = []
    first_id = ZERO_ID if dead_letters.clears else nodes.first_id(record)
    index, now_ms = txn.groups.index, txn.now_ms
    for pending in pel.by_idle(index, group.number, until_ms, first_id, due_ms=now_ms):
        if dead_letters.full:
            break
        items = lookup.fields(pending.id)
        if items is None:
            dead_letters.clear(pending.id)
            continue
        if dead_letters.takes(pending, items):
            continue
        if room is not None and not room.takes(items):
            break
        count = min(pending.count + 1, COUNT_MAX)
        idle_ms = pending.idle_ms(txn.now_ms)
        taken.append(Delivered(pending.id, items, idle_ms, count, txn.now_ms))
        if limit and len(taken) >= limit:
            break
    dead_letters.close()
    if taken:
        now = [(delivered.id, delivered.time_ms, delivered.count) for delivered in taken]
        claimed(txn, group, who, now)
    return taken


def claimed(
    txn: WriteTxn,
    group: GroupRecord,
    who: ConsumerRecord,
    items: list[tuple[StreamID, int, int]],
    *,
    active: bool = True,
) -> None:
    """These are pending with this consumer now: ID, delivery time, delivery count."""
    ordered = sorted(items)
    txn.emit(
        frames.Claim(
            group.number,
            who.number,
            txn.now_ms,
            txn.now_ms if active else who.active_ms,
            tuple((id.ms, id.seq, time_ms, count) for id, time_ms, count in ordered),
        )
    )


def read_history(
    txn: WriteTxn,
    stream: bytes,
    group: bytes,
    consumer: bytes,
    after: StreamID,
    *,
    count: int = 0,
    limit: Limit | None = None,
    singly: bool = False,
    room: ByteBudget | None = None,
) -> list[Delivered]:
    """As XREADGROUP with an ID: what is pending with this consumer above ``after``, once more.

    Entries that are gone come back without fields, and are not counted as delivered. ``limit``,
    ``singly`` and ``room`` as in ``read_new``.
    """
    record, group_record = admin.existing(txn, stream, group, WHERE)
    who = admin.consumer(txn, group_record, consumer)
    replies: list[Delivered] = []
    lookup = Lookup(txn, record)
    dead_letters = DeadLettering(txn, record, group_record, limit)
    if singly and dead_letters.limit is not None:
        count = 1
    if who.pending and after < MAX_ID:
        start = after.next()
        for pending in pel.by_id(txn.groups.index, group_record.number, start, MAX_ID, who.number):
            if dead_letters.full:
                break
            items = lookup.fields(pending.id)
            if items is not None and dead_letters.takes(pending, items):
                continue
            if room is not None and not room.takes(items or ()):
                break
            again = pending.count + (items is not None)
            time_ms = txn.now_ms if items is not None else pending.time_ms
            idle_ms = pending.idle_ms(txn.now_ms)
            replies.append(Delivered(pending.id, items, idle_ms, min(again, COUNT_MAX), time_ms))
            if count and len(replies) >= count:
                break
    dead_letters.close()
    again_delivered = [
        (delivered.id, delivered.time_ms, delivered.count)
        for delivered in replies
        if delivered.items is not None
    ]
    txn.counts["redeliveries"] += len(again_delivered)
    if again_delivered:
        claimed(txn, group_record, who, again_delivered, active=False)  # the peers: only seen
    else:
        admin.seen(txn, group_record, who)
    return replies
