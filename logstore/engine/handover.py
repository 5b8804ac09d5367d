"""Handing new entries to those who wait for them, in the commit of one who reads.

Ten readers that take one entry each would otherwise need ten commits, one after the other, and a
change of process before each. It is what the peers' server does with blocked clients.

Invariants: handed out in the order of the queue, and only up to the first who must come itself (it
would also claim, or counts bytes, or is stopped). A waiter that gives up is given nothing: it says
so, then looks at its hand; here its hand is written, then looked whether it still waits, each with
a fence in between. An offer counts only if its commit comes about: ``Waits.given_locked`` says so
once it is published, and the index knows if that was cut off.
"""

from __future__ import annotations

from logstore.engine import deliveries, process, redelivery, walks
from logstore.engine.deliveries import Delivered
from logstore.engine.hands import GIVEN, NO_ONE, NOTHING, OFFERED, Hand
from logstore.engine.room import Room
from logstore.engine.slots import PLAIN, Row
from logstore.engine.state import State
from logstore.engine.waitwords import Waits
from logstore.index.groupkeys import GroupRecord
from logstore.index.grouptxn import GroupTxn
from logstore.index.keys import StreamRecord


def hand_over(
    state: State, waits: Waits, record: StreamRecord, group: GroupRecord, rows: list[Row], *,
    spare: bool = False,
) -> bool:  # fmt: skip
    """Give what is new to these waiters, in their order; whether all that live got something.

    With ``spare`` nothing is given unless there is more than they take: who wants the rest need not
    do the work of those before it, who are awake by now, else.
    """
    takers, whole = _takers(state, waits, group, rows)
    if spare and not whole:
        return False
    shares: list[list[Delivered]] = []
    while takers:
        shares = _shares(state, record, group, takers, spare)
        if spare and len(shares) < len(takers):
            return False
        gone = _offered(state, waits, takers, shares)
        if not gone:
            break
        takers = [each for each in takers if each[0].slot not in gone]
        shares = []
    for (row, hand), share in zip(takers, shares, strict=False):
        deliveries.deliver(state, record, group, hand.consumer, share)
        state.handed.append(row.slot)
    return whole and len(shares) == len(takers)


def _takers(
    state: State, waits: Waits, group: GroupRecord, rows: list[Row]
) -> tuple[list[tuple[Row, Hand]], bool]:
    """Those that something can be handed to, up to the first that lives and must come itself;
    whether there is none of these.
    """
    found: list[tuple[Row, Hand]] = []
    comes_itself = redelivery.idle_ms(state.settings.group(group.number), None) is not None
    for row in rows:
        if row.slot in state.handed:
            continue  # served by this very commit
        hand = waits.hands.row(row.slot)
        if hand.state == OFFERED and settle_locked(state.groups.txn, waits, row.key, row.slot):
            continue
        if not row.alive():
            continue
        known = hand.consumer != NO_ONE and state.groups.consumer(group.number, hand.consumer)
        if comes_itself or row.wish != PLAIN or not known or process.stopped(row.pid):
            return found, False
        found.append((row, hand))
    return found, True


def _shares(
    state: State, record: StreamRecord, group: GroupRecord, takers: list[tuple[Row, Hand]],
    spare: bool,
) -> list[list[Delivered]]:  # fmt: skip
    """What each of the first of them gets; shorter than they are if there is not enough, with
    ``spare`` for one entry more.
    """
    most = 0 if any(not hand.most for _, hand in takers) else sum(hand.most for _, hand in takers)
    if spare and not most:
        return []
    fresh = deliveries.fresh(state, record, group, most + 1 if spare else most, Room(0))
    if spare and len(fresh) <= most:
        return []
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
    state: State, waits: Waits, takers: list[tuple[Row, Hand]], shares: list[list[Delivered]]
) -> set[int]:
    """Write into their hands; the slots of those that do not wait any more: then none is offered
    anything.
    """
    slots, hands = waits.slots, waits.hands
    offered = takers[: len(shares)]
    for (row, _), share in zip(offered, shares, strict=True):
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
    found = walks.find(txn, key, hand.first)
    if found is not None and (found.consumer, found.time_ms) == (hand.consumer, hand.time_ms):
        waits.given_locked([slot])
        return True
    waits.hands.set_locked(slot, NOTHING)
    return False
