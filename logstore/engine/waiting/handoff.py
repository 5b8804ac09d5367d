"""Handing new entries to those who wait for them, in the commit of one who reads, or adds.

Ten readers that take one entry each would otherwise need ten commits, one after the other, and a
change of process before each. It is what the peers' server does with blocked clients.

Invariants: handed out in the order of the queue, and only up to the first who must come itself (it
would also claim, or counts bytes, or is stopped). A waiter that gives up is given nothing: it says
so, then looks at its hand; here its hand is written, then looked whether it still waits, each with
a fence in between. An offer counts only if its commit comes about: ``Waits.given_locked`` says so
once it is published, and the index knows if that was cut off.
"""

from __future__ import annotations

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import deliver
from logstore.engine.groups.deliver import Delivered
from logstore.engine.shm import process
from logstore.engine.shm.carried import ENTRIES_MAX
from logstore.engine.shm.mailbox import GIVEN, NO_ONE, NOTHING, OFFERED, Hand
from logstore.engine.shm.wait_words import Waits
from logstore.engine.shm.waiter_record import Row
from logstore.engine.shm.waiters import PLAIN
from logstore.engine.streams.budget import ByteBudget
from logstore.engine.txn import pel
from logstore.index.group_keys import GroupRecord
from logstore.index.group_txn import GroupTxn
from logstore.index.keys import StreamRecord


def hand_over(
    state: WriteTxn, waits: Waits, record: StreamRecord, group: GroupRecord, rows: list[Row], *,
    spare: bool = False, enough: int = 0,
) -> bool:  # fmt: skip
    """Give what is new to these waiters, in their order; whether all that live got something.
    There are no more than ``enough`` entries (0: any number).

    With ``spare`` nothing is given unless there is more than they take: who wants the rest need not
    do the work of those before it, who are awake by now, else.
    """
    most, whole = _most(state, waits, group, rows, enough)
    if spare and (most is None or not whole):
        return False
    if most == 0:  # nobody is there who takes anything
        return whole
    fresh = deliver.fresh(state, record, group, (most or 0) + spare, ByteBudget(0))
    if not fresh:
        return False
    left: set[int] = set()  # the queue, while this looks at it
    while True:
        rows = [row for row in rows if row.slot not in left]
        takers, whole = _takers(state, waits, group, rows, 0 if spare else len(fresh))
        shares = _shares(fresh, takers)
        if spare and (not whole or sum(map(len, shares)) == len(fresh)):
            return False
        left = _offered(state, waits, takers, shares)
        if not left:
            break
    given = takers[: len(shares)]
    try:
        for (row, hand), share in zip(given, shares, strict=True):
            deliver.deliver(state, record, group, hand.consumer, share)
            state.handed.append(row.slot)
    except BaseException:
        waits.withdraw_locked([row.slot for row, _ in given])
        raise
    return whole and len(shares) == len(takers)


def _most(
    state: WriteTxn, waits: Waits, group: GroupRecord, rows: list[Row], enough: int
) -> tuple[int | None, bool]:
    """How many entries they take, up to the first that lives and must come itself, if all live
    (None: any number; or not less than ``enough``); whether there is none of these.
    """
    if deliver.redelivery_idle_ms(state.settings.group(group.number), None) is not None:
        return 0, not any(row.alive() for row in rows)
    most = 0
    for row in rows:
        hand = waits.hands.row(row.slot)
        comes_itself = row.wish != PLAIN or hand.consumer == NO_ONE
        if (comes_itself or not hand.most) and row.slot not in state.handed and row.alive():
            return (most, False) if comes_itself else (None, True)
        most += 0 if comes_itself else hand.most
        if 0 < enough <= most:
            break
    return most, True


def _takers(
    state: WriteTxn, waits: Waits, group: GroupRecord, rows: list[Row], enough: int
) -> tuple[list[tuple[Row, Hand]], bool]:
    """Those that something can be handed to, up to the first that lives and must come itself, or
    until they take ``enough`` (0: there is no end); whether it is all that live.
    """
    found: list[tuple[Row, Hand]] = []
    wanted = 0
    comes_itself = deliver.redelivery_idle_ms(state.settings.group(group.number), None) is not None
    for row in rows:
        if row.slot in state.handed:
            continue  # served by this very commit
        hand = waits.hands.row(row.slot)
        if hand.state == OFFERED and settle_locked(state.groups.index, waits, row.key, row.slot):
            continue
        owner = row.owner_state()
        if owner == process.GONE:
            continue
        known = hand.consumer != NO_ONE and state.groups.consumer(group.number, hand.consumer)
        if comes_itself or row.wish != PLAIN or not known or owner == process.STOPPED:
            return found, False
        found.append((row, hand))
        wanted += hand.most or enough
        if 0 < enough <= wanted:
            return found, row is rows[-1]
    return found, True


def _shares(fresh: list[Delivered], takers: list[tuple[Row, Hand]]) -> list[list[Delivered]]:
    """What each of the first of them gets; shorter than they are if there is not enough."""
    shares: list[list[Delivered]] = []
    at = 0
    for _, hand in takers:
        if at >= len(fresh):
            break
        end = at + hand.most if hand.most else len(fresh)
        shares.append(fresh[at:end])
        at = end
    return shares


def _offered(
    state: WriteTxn, waits: Waits, takers: list[tuple[Row, Hand]], shares: list[list[Delivered]]
) -> set[int]:
    """Write into their hands; the slots of those that do not wait any more: then none is offered
    anything.
    """
    slots, hands = waits.slots, waits.hands
    offered = takers[: len(shares)]
    for (row, _), share in zip(offered, shares, strict=True):
        waits.carried.put_locked(row.slot, [each[:2] for each in share[: ENTRIES_MAX + 1]])
        hands.offer_locked(row.slot, share[0].id, share[-1].id, state.now_ms)
    if offered:
        slots.fence()
    gone = {
        row.slot for row, hand in offered
        if not (slots.waits(row) and hands.takes(row.slot, hand))
    }  # fmt: skip
    if gone:
        for row, _ in offered:
            hands.set_locked(row.slot, NOTHING)
    return gone


def settle_locked(txn: GroupTxn, waits: Waits, key: int, slot: int) -> bool:
    """Whether what a slot was offered is its. Nobody commits it now, so the index knows."""
    hand = waits.hands.row(slot)
    if hand.state != OFFERED:
        return hand.state == GIVEN
    found = pel.find(txn, key, hand.first)
    if found is not None and (found.consumer, found.time_ms) == (hand.consumer, hand.time_ms):
        waits.given_locked([slot])
        return True
    waits.hands.set_locked(slot, NOTHING)
    return False
