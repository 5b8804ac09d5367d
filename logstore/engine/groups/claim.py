"""Deciding claims: entries move to another consumer. As XCLAIM and XAUTOCLAIM; and ``reassign``.

Invariants: every refusal comes before the first frame; a pending entry whose entry is gone is
removed, never claimed or handed over; the scan with a cursor is the peers' own (10 attempts for
each entry asked for), the one without goes by idle time and reads only what is old enough.
Autoclaim moves what was delivered too often for its group to the dead letter stream instead of
handing it out; a claim by ID is an operator's tool, and moves nothing there, nor does a claim that
counts as no delivery (``just_id``). ``reassign`` hands what is idle to the consumers that look
alive: that does not count as their activity, and delivery counts stay until the entries are read.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import admin
from logstore.engine.groups.dead_letter import DeadLettering
from logstore.engine.groups.deliver import COUNT_MAX, Delivered, claimed
from logstore.engine.streams.budget import ByteBudget
from logstore.engine.streams.removal import pending_among, removed
from logstore.engine.txn import pel
from logstore.engine.txn.nodes import Lookup
from logstore.errors import OptionError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.group_keys import NOBODY, GroupRecord
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames
from logstore.tuples import NamedTuple

ATTEMPTS_AN_ENTRY = 10
FEW = 8  # IDs that are looked up one by one


class Autoclaimed(NamedTuple):
    """What a step of autoclaim took over, and where the next one goes on (0-0: from the start)."""

    cursor: StreamID
    entries: list[Delivered]
    deleted: list[StreamID]
    attempts_left: int = 0  # of those that a scan from an ID may look at
    full: bool = False  # it ended for want of room


def claim(
    txn: WriteTxn,
    stream: bytes,
    group: bytes,
    consumer: bytes,
    ids: Sequence[StreamID],
    *,
    min_idle_ms: int,
    idle_ms: int | None = None,
    time_ms: int | None = None,
    retry_count: int | None = None,
    force: bool = False,
    just_id: bool = False,
    last_id: StreamID | None = None,
    room: ByteBudget | None = None,
) -> list[Delivered]:
    """As XCLAIM, with all its options; with a ``room`` that is full then, not all of it."""
    room = room or ByteBudget()
    if retry_count is not None and retry_count < 0:
        raise OptionError("Invalid RETRYCOUNT option argument for XCLAIM")
    record, group_record = admin.existing(txn, stream, group)
    at_ms = _delivery_time(txn.now_ms, idle_ms, time_ms)
    if last_id is not None and last_id > group_record.last:
        txn.emit(
            frames.Group(
                record.number, group_record.number, *last_id, group_record.entries_read, group
            )
        )
    who = admin.consumer(txn, group_record, consumer)
    replies: list[Delivered] = []
    taken: dict[StreamID, tuple[int, int]] = {}
    gone: list[StreamID] = []
    there = _looked_up(txn, record, group_record, ids, room, all_of=force)
    for id in ids:
        pending, items = there.get(id, (None, None))
        if id in taken:  # named twice: the second looks at what the first one did
            pending = pel.PendingEntry(id, who.number, *taken[id])
        if items is None:
            gone += [id] if pending is not None else []
            continue
        idle = txn.now_ms if pending is None else pending.idle_ms(txn.now_ms)
        if not force if pending is None else idle < min_idle_ms:
            continue
        count = 1 if pending is None else pending.count  # one made by FORCE counts as delivered
        if retry_count is not None:
            count = retry_count
        elif not just_id:
            count = min(count + 1, COUNT_MAX)
        taken[id] = (at_ms, count)
        replies.append(Delivered(id, items, idle, count, at_ms))
    if gone:
        removed(txn, group_record, gone)
    txn.counts["claims"] += len(taken)
    if taken:
        claimed(txn, group_record, who, [(id, *how) for id, how in taken.items()])
        _wake_if_idle(txn, record, at_ms)
    else:
        admin.seen(txn, group_record, who)
    return replies


def _looked_up(
    txn: WriteTxn,
    record: StreamRecord,
    group: GroupRecord,
    ids: Sequence[StreamID],
    room: ByteBudget,
    *,
    all_of: bool,
) -> dict[StreamID, tuple[pel.PendingEntry | None, list[bytes] | None]]:
    """What is pending under IDs, and the fields of the entries; neighbours are read together, in
    whatever order they are named. Unless ``all_of`` them: of many only those that are pending. It
    ends at the first entry that ``room`` does not take."""
    if not all_of and len(ids) > FEW:
        pending = pending_among(txn, group, ids)
        ids = [id for id in ids if id.packed() in pending]
    lookup = Lookup(txn, record)
    looked_up: dict[StreamID, tuple[pel.PendingEntry | None, list[bytes] | None]] = {}
    for id in sorted(ids):
        items = lookup.fields(id)
        if items is not None and not room.takes(items):
            break
        looked_up[id] = (pel.find(txn.groups.index, group.number, id), items)
    return looked_up


def _wake_if_idle(txn: WriteTxn, record: StreamRecord, at_ms: int) -> None:
    """Entries delivered in the past are idle sooner than those know who wait for it: wake them."""
    if at_ms < txn.now_ms:
        txn.woken.add(record.name)


def _delivery_time(now_ms: int, idle_ms: int | None, time_ms: int | None) -> int:
    """The delivery time that IDLE or TIME give; now, if there is none, or one that cannot be."""
    at_ms = now_ms
    if time_ms is not None:
        at_ms = time_ms
    elif idle_ms is not None:
        at_ms = now_ms - idle_ms
    return at_ms if 0 <= at_ms <= now_ms else now_ms


def autoclaim(
    txn: WriteTxn,
    stream: bytes,
    group: bytes,
    consumer: bytes,
    *,
    min_idle_ms: int,
    start: StreamID | None = None,
    count: int = 100,
    just_id: bool = False,
    room: ByteBudget | None = None,
    attempts: int | None = None,
) -> Autoclaimed:
    """As XAUTOCLAIM from ``start``; without it, what has idled longest, found by the index.

    A scan from an ID looks at ``attempts`` pending entries at most, or at the peers' number. It
    ends at the first entry that ``room`` does not take, where the next step goes on.
    """
    room = room or ByteBudget()
    if count < 1:
        raise OptionError("COUNT must be > 0")
    record, group_record = admin.existing(txn, stream, group)
    who = admin.consumer(txn, group_record, consumer)
    min_idle_ms = max(0, min_idle_ms)
    lookup = Lookup(txn, record)
    entries: list[Delivered] = []
    deleted: list[StreamID] = []
    dead_letters = DeadLettering(txn, record, group_record)
    cursor = ZERO_ID
    attempts = count * ATTEMPTS_AN_ENTRY if attempts is None else attempts
    left = count
    for pending in _walk(txn, group_record, min_idle_ms, start):
        if start is not None and (not attempts or not left or dead_letters.full):
            cursor = pending.id
            break
        if not left or dead_letters.full:
            break
        attempts -= 1
        items = lookup.fields(pending.id)
        if items is None:
            if not room.takes(()):
                cursor = pending.id
                break
            deleted.append(pending.id)
            left -= 1
            continue
        idle_ms = pending.idle_ms(txn.now_ms)
        if idle_ms < min_idle_ms:
            continue
        if not just_id and dead_letters.takes(pending, items):
            continue
        if not room.takes(items):
            cursor = pending.id
            break
        again = pending.count if just_id else min(pending.count + 1, COUNT_MAX)
        entries.append(Delivered(pending.id, items, idle_ms, again, txn.now_ms))
        left -= 1
    dead_letters.close()
    if deleted:
        removed(txn, group_record, deleted)
    txn.counts["claims"] += len(entries)
    if entries:
        now = [(entry.id, entry.time_ms, entry.count) for entry in entries]
        claimed(txn, group_record, who, now)
    else:
        admin.seen(txn, group_record, who)
    return Autoclaimed(cursor, entries, deleted, attempts, room.full)


def _walk(
    txn: WriteTxn, group: GroupRecord, min_idle_ms: int, start: StreamID | None
) -> Iterator[pel.PendingEntry]:
    if start is None:
        until_ms = pel.delivered_until_ms(txn.now_ms, min_idle_ms)
        return pel.by_idle(txn.groups.index, group.number, until_ms)
    return pel.by_id(txn.groups.index, group.number, start, MAX_ID)


def reassign(
    txn: WriteTxn, stream: bytes, group: bytes, *, min_idle_ms: int, alive_ms: int, count: int
) -> dict[bytes, int]:
    """Hand up to ``count`` entries (0: all) that are idle for ``min_idle_ms``, longest first, to
    consumers seen within ``alive_ms``, each to the one with the fewest pending; how many each got.
    """
    record, group_record = admin.existing(txn, stream, group)
    txn.groups.flush()
    since_ms = txn.now_ms - alive_ms
    alive = {
        each.number: each
        for each in txn.groups.index.consumers(group_record.number)
        if each.seen_ms >= since_ms and each.name != NOBODY
    }
    if not alive:
        return {}
    until_ms = pel.delivered_until_ms(txn.now_ms, min_idle_ms)
    idle = pel.by_idle(txn.groups.index, group_record.number, until_ms)
    moved = list(islice(idle, count or None))
    held = {number: each.pending for number, each in alive.items()}
    for waiting in moved:  # it no longer counts for the consumer that it leaves
        if waiting.consumer in held:
            held[waiting.consumer] -= 1
    least = [(pending, alive[number].name, number) for number, pending in held.items()]
    heapq.heapify(least)
    lookup = Lookup(txn, record)
    gone: list[StreamID] = []
    items: dict[int, list[tuple[int, int, int, int]]] = {}
    for waiting in sorted(moved):
        if waiting.id not in lookup:
            gone.append(waiting.id)
            continue
        pending, name, number = least[0]
        item = (waiting.id.ms, waiting.id.seq, txn.now_ms, waiting.count)
        items.setdefault(number, []).append(item)
        heapq.heapreplace(least, (pending + 1, name, number))
    if gone:
        removed(txn, group_record, gone)
    txn.counts["claims"] += sum(map(len, items.values()))
    for number, given in items.items():
        who = alive[number]
        txn.emit(
            frames.Claim(
                group_record.number, number, who.seen_ms, who.active_ms, tuple(sorted(given))
            )
        )
    return {alive[number].name: len(given) for number, given in items.items()}
