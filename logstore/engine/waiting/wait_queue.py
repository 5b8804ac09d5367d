"""The queue of one group, and the ticket with which a reader stands in it.

Invariants: a ticket is kept over time-outs, so that its owner's next call waits where it stood
(taking a new one would invert the order); between two calls it stands in nobody's way. It ends when
its owner received entries; the owner then keeps the waiter record without a place. A reader that
stops waiting says so first, and looks into its mailbox after that (``waiting.handoff``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logstore.clock import monotonic_ms
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Committer
from logstore.engine.groups.deliver import Delivered
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.wait_words import bucket_of
from logstore.engine.shm.waiters import (
    GIVEN,
    IDLE,
    NO_ONE,
    NOTHING,
    OFFERED,
    PACE,
    WAITING,
    Mailbox,
    SavedWaiter,
    WaiterRecord,
)
from logstore.engine.snapshots import snapshot
from logstore.engine.waiting import handoff

NONE = -1  # as the number of a waiter record: it has none


class Ticket:
    """A reader's place in the queue: before it joined, while it waits, and once it was served.

    Attributes:
        key: the number of the group.
        min_idle_ms: what it takes besides new entries; ``NEW_ONLY``: nothing.
        waiter: the number of its waiter record; ``NONE`` before it joined, and if all are taken.
        number: the ticket as the record has it: the lower, the earlier its place in the queue.
    """

    def __init__(
        self,
        engine: Engine,
        stream: bytes,
        key: int,
        min_idle_ms: int,
        owner: object = None,
        bare: SavedWaiter | None = None,
    ) -> None:
        self.key = key
        self.min_idle_ms = min_idle_ms
        self.waiter = NONE
        self.number = 0
        self.waits = engine.wake.waits
        self._bucket = bucket_of(stream)
        self._owner = owner
        self._kept = False  # its record, or its place, for the owner's next call
        self._taker = (NO_ONE, 0)  # to which consumer how many entries may be handed
        self._armed = (NO_ONE, 0)  # and what its mailbox says of that
        self._word = 0  # of its record, from before others could see that it waits
        self._until_ms = 0  # so long they surely know (of ``monotonic_ms``)
        if bare is None:
            self._resume()
        else:
            self._stands(bare.number, bare.ticket)

    # -- joining --------------------------------------------------------------------------------
    def _resume(self) -> None:
        """Wait again with the ticket that the owner kept from its last call, if it did."""
        waits = self.waits
        saved = waits.saved.take(self.key, self._owner)
        if saved is None or not waits.waiters.holds(saved.number, saved.ticket):
            return  # or given back by who was interrupted when it was kept
        self._until_ms = monotonic_ms() + PACE.fresh_ms
        self._word = waits.stir(self._bucket, saved.number)
        waits.waiters.set_wanted(saved.number, self._bucket, self.min_idle_ms)
        waits.mailboxes.set_taker(saved.number, NO_ONE, 0)  # until it joins
        waits.waiters.set_state(saved.number, saved.ticket, WAITING)
        self._stands(saved.number, saved.ticket)

    def _stands(self, waiter: int, number: int) -> None:
        self.waiter, self.number = waiter, number

    def wait(
        self, wait: Callable[..., tuple[int, int, list[Any] | None, int]], most_s: float,
        taker: tuple[int, int],
    ) -> tuple[int, list[Any] | None]:  # fmt: skip
        """Join with the record that it has, which was kept bare, and wait, in one call of compiled
        code: what became of it, and deliveries. To this consumer so many entries may be handed.
        """
        waits, waiter = self.waits, self.waiter
        self._taker = self._armed = taker
        tickets, before = waits.waiters.tickets, self.number
        found: list[Any] | None
        try:
            became, self._word, found, time_ms = wait(
                tickets, waiter, before, taker[0], int(max(0.0, most_s) * 1e9)
            )
        finally:  # whatever came in between: it can be given back
            self.number = tickets.get(waiter, 0)
        if found is not None:
            self._kept = True
            waits.saved.keep_bare(self.key, self._owner, waiter, self.number, taker[0], time_ms)
        return became, found

    def join_locked(self, consumer: int = NO_ONE, most: int = 0) -> None:
        """Wait at the end of the queue, unless it has its place already; it gets none if all
        records are taken. To this consumer up to ``most`` (0: any number of) entries may be handed.
        """
        waits = self.waits
        self._taker = consumer, most
        if self.waiter != NONE:
            return

        def prepare(waiter: int) -> None:  # what its last owner would have taken counts no more
            waits.mailboxes.set_locked(waiter, NOTHING)
            waits.mailboxes.set_taker(waiter, NO_ONE, 0)

        self._until_ms = monotonic_ms() + PACE.fresh_ms
        waits.announce(self._bucket, group=True)
        found = waits.waiters.take_locked(self.key, self._bucket, self.min_idle_ms, prepare)
        if found is not None:
            self._stands(*found)
            self._word = waits.waiters.load(self.waiter)

    def rejoin(self, most: int) -> int | None:
        """Wait at the end of the queue without LOCK, if the owner kept a record when it was served;
        to the consumer it read for up to ``most`` entries may be handed at once. Look for entries
        after this: who adds from now on knows of it.

        Returns:
            When it was served last, by the store's clock (unix ms); None if it kept no record.
        """
        waits = self.waits
        saved = waits.saved.take_bare(self.key, self._owner)
        if saved is None or not waits.waiters.holds(saved.number, saved.ticket):
            return None
        self._until_ms = monotonic_ms() + PACE.fresh_ms
        waits.announce(self._bucket, group=True)
        self._taker = self._armed = saved.consumer, most
        waits.mailboxes.set_taker(saved.number, saved.consumer, most)
        self._word = waits.waiters.load(saved.number)
        self.waiter = saved.number
        self.number = waits.waiters.rejoin(
            saved.number, saved.ticket, self.key, self._bucket, self.min_idle_ms
        )
        waits.waiters.fence()
        return saved.served_ms

    def takes(self, consumer: int, most: int) -> None:
        """To this consumer up to ``most`` (0: any number of) entries may be handed."""
        self._taker = consumer, most

    def arm(self) -> None:
        """The commit in which it joined came about, and so its consumer is there: from now on it
        may be handed something. Until then it comes itself, and nobody gets past it.
        """
        if self.waiter == NONE or self._taker == self._armed:
            return  # others count on it already: they must not see it change
        if self.waits.waiters.holds(self.waiter, self.number):
            self._armed = self._taker
            self.waits.mailboxes.set_taker(self.waiter, *self._taker)

    # -- inside of a commit -----------------------------------------------------------------------
    def others_locked(self, *, ahead: bool = False) -> list[WaiterRecord]:
        """The waiters in order, without this one; with ``ahead`` only those before it."""
        records = self.waits.waiters.waiting(self.key)
        if self.waiter == NONE:
            return records
        return [
            each
            for each in records
            if each.ticket < self.number or (each.ticket > self.number and not ahead)
        ]

    def handed_locked(self, txn: WriteTxn) -> bool:
        """Whether something was handed to this one: it must not read as well."""
        if self.waiter == NONE:
            return False
        if self.waiter in txn.handed:
            return True
        if self.waits.mailboxes.state(self.waiter) == NOTHING:
            return False
        return handoff.settle_locked(txn.groups.index, self.waits, self.key, self.waiter)

    def read_locked(self, *, served: bool) -> None:
        """It read for itself; if that gave something it waits no more: nothing is handed to it."""
        if self.waiter != NONE:
            state = IDLE if served else WAITING
            self.waits.waiters.set_state(self.waiter, self.number, state)

    # -- waiting ----------------------------------------------------------------------------------
    def stir(self) -> int:
        """Its owner lives, and waits on; the word to sleep on, if it looks after this."""
        return self.waits.stir(self._bucket, self.waiter)

    def uncalled(self, word: int) -> bool:
        """Whether nobody called it since it joined, who all knew that it waits; False as well if
        they might have forgotten by now.
        """
        return word == self._word and monotonic_ms() < self._until_ms

    def word(self) -> int:
        """The word to sleep on; only looked at."""
        return self.waits.waiters.load(self.waiter)

    def look(self) -> tuple[int, bool, list[int] | None]:
        """Say that it waits on; then the word to sleep on, whether there is something in its
        mailbox, and if not, the minimum idle times of those before it: None if one of them would
        take whatever it could.
        """
        waits, waiter = self.waits, self.waiter
        word = waits.stir(self._bucket, waiter)
        if waits.mailboxes.state(waiter) != NOTHING:
            return word, True, None
        return word, False, self.ahead()

    def ahead(self) -> list[int] | None:
        """The minimum idle times of those before it; None if it cannot be its turn."""
        return self.waits.waiters.ahead(self.key, self.number, self.min_idle_ms)

    def sleep(self, seen: int, timeout_s: float) -> bool:
        """Sleep until woken, at most so long; whether it was woken since ``seen``."""
        return self.waits.waiters.sleep(self.waiter, seen, timeout_s)

    def pass_on(self, seen: int | None = None) -> None:
        """Wake whose turn it can be; with ``seen`` only if this one was woken since.

        Call it when this one no longer waits: who wakes it in between is seen by one of the two.
        """
        if seen is None or self.waits.waiters.load(self.waiter) != seen:
            self.waits.waiters.wake_first(self.key)

    def offered(self) -> bool:
        """Whether there is something in its mailbox, given or not."""
        return self.waiter != NONE and self.waits.mailboxes.state(self.waiter) != NOTHING

    def handed(self, engine: Engine, committer: Committer) -> Mailbox | None:
        """The mailbox with what was handed to it; LOCK is taken only if the giver may have died."""
        waits, waiter = self.waits, self.waiter
        state = waits.mailboxes.state(waiter)
        if state == NOTHING:
            return None
        if state != GIVEN:
            engine.check_open()
            with committer.locked(follow=False):
                came = snapshot.read(
                    engine,
                    lambda view: handoff.settle_locked(view.index.groups, waits, self.key, waiter),
                )
            if not came:
                return None
        return waits.mailboxes.read(waiter)

    # -- leaving ----------------------------------------------------------------------------------
    def rest(self) -> None:
        """Stop waiting: what is in its mailbox after this is all it gets."""
        self.waits.waiters.set_state(self.waiter, self.number, IDLE)
        self.waits.waiters.fence()

    def keep(self) -> None:
        """Keep the place of one that rests for the owner's next call."""
        self._kept = True
        self.waits.saved.keep(self.key, self._owner, self.waiter, self.number)

    def served(self, found: list[Delivered]) -> None:
        """Leave the queue with what one waited for, and keep the record for the next call."""
        waits = self.waits
        if self.waiter == NONE or not waits.waiters.holds(self.waiter, self.number):
            return
        waits.waiters.set_state(self.waiter, self.number, IDLE)
        consumer = self._taker[0]
        if consumer == NO_ONE or waits.mailboxes.state(self.waiter) == OFFERED:
            self.close()
        else:
            waits.mailboxes.empty(self.waiter)
            self._kept = True
            served_ms = found[0].time_ms if found else 0
            waits.saved.keep_bare(
                self.key, self._owner, self.waiter, self.number, consumer, served_ms
            )

    def close(self) -> None:
        """Leave the queue; harmless if it did. What was kept since may be another's by now."""
        saved, waiter, number = self.waits.saved, self.waiter, self.number
        if self._kept and not saved.withdraw(self.key, self._owner, waiter, number):
            return
        self.waits.waiters.free(waiter, number)
