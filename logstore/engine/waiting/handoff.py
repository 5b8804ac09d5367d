"""Direct hand-off: who adds, or reads, gives new entries to those who wait, in the same commit.

Ten readers that take one entry each would otherwise need ten commits, one after the other, and a
change of process before each. The server of the peers serves blocked clients so. A waiter gets
what it waited for without LOCK: no process that was put off the processor while it held LOCK stands
between an add and its reader.

Invariants: entries are handed out in the order of the queue, and only up to the first waiter that
must come itself (it would also claim, or counts bytes, or is stopped). An add serves only groups
that had got all that was there before its commit; what was left over is for readers that come
themselves, and so is what came in large batches: an add does not do the work of reads that share
nothing with it. A waiter that gives up is given nothing: it says so, then looks into its mailbox;
here the mailbox is written, and then the waiter is looked at once more, with a fence in between on
both sides. An offer counts only if its commit comes about: ``Waits.given_locked`` says so once it
is published, and the index knows if that was cut off.
"""

from __future__ import annotations

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import deliver
from logstore.engine.groups.deliver import Delivered
from logstore.engine.shm import process_identity
from logstore.engine.shm.wait_words import Waits
from logstore.engine.shm.waiters import (
    GIVEN,
    NEW_ONLY,
    NO_ONE,
    NOTHING,
    OFFERED,
    Mailbox,
    WaiterRecord,
)
from logstore.engine.txn import pel
from logstore.ids import U64_MAX
from logstore.index.group_keys import GroupRecord
from logstore.index.group_txn import GroupTxn
from logstore.index.keys import StreamRecord

SERVED_MAX_ENTRIES = 256  # added by one commit to one stream
DEAD_MAX = 4
Taker = tuple[WaiterRecord, Mailbox]


def hand_out(txn: WriteTxn, waits: Waits) -> None:
    """Serve who waits for what this commit added, and say which groups have nothing left."""
    for number, before in txn.grown.items():
        record = txn.record(number)
        if record is None:
            continue
        added = (record.entries_added - before.entries_added) & U64_MAX
        if added > SERVED_MAX_ENTRIES:
            continue
        # Each takes one or more. Behind some that died nobody is looked for: who is next is woken.
        most = added + DEAD_MAX
        for key, waiters in waits.queues(record.name, most).items():
            group = txn.groups.by_number(key)
            if group is None or group.stream != number:
                continue
            if before.last <= group.last < record.last:
                hand_off(txn, waits, record, group, waiters, enough=added)
            if group.last >= record.last:
                txn.drained.add(key)


def hand_off(
    txn: WriteTxn,
    waits: Waits,
    record: StreamRecord,
    group: GroupRecord,
    waiters: list[WaiterRecord],
    *,
    spare: bool = False,
    enough: int = 0,
) -> bool:
    """Give what is new to these waiters, in their order; whether all that live got something.
    There are no more than ``enough`` entries (0: any number).

    With ``spare`` nothing is given unless there is more than they take: who wants the rest need not
    do the work of those before it, who are awake by now, else.
    """
    most, whole = _most(txn, waits, group, waiters, enough)
    if spare and (most is None or not whole):
        return False
    if most == 0:  # nobody is there who takes anything
        return whole
    fresh = deliver.fresh(txn, record, group, (most or 0) + spare, None)
    if not fresh:
        return False
    left: set[int] = set()  # the queue, while this looks at it
    while True:
        waiters = [waiter for waiter in waiters if waiter.number not in left]
        takers, whole = _takers(txn, waits, group, waiters, 0 if spare else len(fresh))
        shares = _shares(fresh, takers)
        if spare and (not whole or sum(map(len, shares)) == len(fresh)):
            return False
        left = _offered(txn, waits, takers, shares)
        if not left:
            break
    given = takers[: len(shares)]
    try:
        for (waiter, mailbox), share in zip(given, shares, strict=True):
            deliver.deliver(txn, record, group, mailbox.consumer, share)
            txn.handed.append(waiter.number)
    except BaseException:
        waits.withdraw_locked([waiter.number for waiter, _ in given])
        raise
    return whole and len(shares) == len(takers)


def _most(
    txn: WriteTxn, waits: Waits, group: GroupRecord, waiters: list[WaiterRecord], enough: int
) -> tuple[int | None, bool]:
    """How many entries they take, up to the first that lives and must come itself, if all live
    (None: any number; or not less than ``enough``); whether there is none of these.
    """
    if deliver.redelivery_idle_ms(txn.settings.group(group.number), None) is not None:
        return 0, not any(waiter.alive() for waiter in waiters)
    most = 0
    for waiter in waiters:
        mailbox = waits.mailboxes.read(waiter.number)
        comes_itself = waiter.min_idle_ms != NEW_ONLY or mailbox.consumer == NO_ONE
        unlimited = comes_itself or not mailbox.most
        if unlimited and waiter.number not in txn.handed and waiter.alive():
            return (most, False) if comes_itself else (None, True)
        most += 0 if comes_itself else mailbox.most
        if 0 < enough <= most:
            break
    return most, True


def _takers(
    txn: WriteTxn, waits: Waits, group: GroupRecord, waiters: list[WaiterRecord], enough: int
) -> tuple[list[Taker], bool]:
    """Those that something can be handed to, up to the first that lives and must come itself, or
    until they take ``enough`` (0: there is no end); whether it is all that live.
    """
    found: list[Taker] = []
    wanted = 0
    for waiter in waiters:
        if waiter.number in txn.handed:
            continue  # served by this very commit
        mailbox = waits.mailboxes.read(waiter.number)
        offered = mailbox.state == OFFERED
        if offered and settle_locked(txn.groups.index, waits, waiter.key, waiter.number):
            continue
        owner = waiter.owner_state()
        if owner == process_identity.GONE:
            continue
        known = mailbox.consumer != NO_ONE and txn.groups.consumer(group.number, mailbox.consumer)
        if waiter.min_idle_ms != NEW_ONLY or not known or owner == process_identity.STOPPED:
            return found, False
        found.append((waiter, mailbox))
        wanted += mailbox.most or enough
        if 0 < enough <= wanted:
            return found, waiter is waiters[-1]
    return found, True


def _shares(fresh: list[Delivered], takers: list[Taker]) -> list[list[Delivered]]:
    """What each of the first takers gets; fewer shares than takers if there is not enough."""
    shares: list[list[Delivered]] = []
    at = 0
    for _, mailbox in takers:
        if at >= len(fresh):
            break
        end = at + mailbox.most if mailbox.most else len(fresh)
        shares.append(fresh[at:end])
        at = end
    return shares


def _offered(
    txn: WriteTxn, waits: Waits, takers: list[Taker], shares: list[list[Delivered]]
) -> set[int]:
    """Write into their mailboxes; the numbers of those that do not wait any more: if there are any,
    none is offered anything.
    """
    waiters, mailboxes = waits.waiters, waits.mailboxes
    offered = takers[: len(shares)]
    for (waiter, _), share in zip(offered, shares, strict=True):
        mailboxes.offer_locked(waiter.number, share[0].id, share[-1].id, txn.now_ms)
    if offered:
        waiters.fence()
    gone = {
        waiter.number
        for waiter, mailbox in offered
        if not (waiters.waits(waiter) and mailboxes.takes(waiter.number, mailbox))
    }
    if gone:
        for waiter, _ in offered:
            mailboxes.set_locked(waiter.number, NOTHING)
    return gone


def settle_locked(txn: GroupTxn, waits: Waits, key: int, number: int) -> bool:
    """Whether what a waiter was offered is its. Nobody commits it now, so the index knows."""
    mailbox = waits.mailboxes.read(number)
    if mailbox.state != OFFERED:
        return mailbox.state == GIVEN
    found = pel.find(txn, key, mailbox.first)
    if found is not None and (found.consumer, found.time_ms) == (mailbox.consumer, mailbox.time_ms):
        waits.given_locked([number])
        return True
    waits.mailboxes.set_locked(number, NOTHING)
    return False
