"""A ticket: a place in the queue of one group, and the hand that goes with it.

Invariants: a ticket is kept over time-outs, so that its owner's next call waits where it stood
(taking a new one would invert the order); between two calls it stands in nobody's way; it ends when
its owner was served. Who stops waiting looks at its hand after it said so (``waiting.handoff``).
"""

from __future__ import annotations

from logstore.clock import monotonic_ms
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Committer
from logstore.engine.groups.deliver import Delivered
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.mailbox import GIVEN, NO_ONE, NOTHING, OFFERED, Hand
from logstore.engine.shm.pace import PACE
from logstore.engine.shm.wait_words import line_of
from logstore.engine.shm.waiter_record import Row
from logstore.engine.shm.waiters import IDLE, WAITING
from logstore.engine.waiting import handoff


class GroupTicket:
    """A place in the queue of one group."""

    def __init__(
        self, engine: Engine, line: int, key: int, slot: int, number: int, wish: int
    ) -> None:
        self._waits = engine.wake.waits
        self._line = line
        self.slot = slot
        self.wish = wish
        self.key = key
        self.number = number
        self._kept_by: tuple[object, ...] = ()  # the owner for whom it was kept, once it was

    @classmethod
    def kept(
        cls, engine: Engine, stream: bytes, key: int, wish: int, owner: object
    ) -> GroupTicket | None:
        """The ticket that ``owner`` kept from its last call; it waits again."""
        waits = engine.wake.waits
        place = waits.places.take(key, owner)
        if place is None or not waits.slots.holds(place.slot, place.ticket):
            return None  # or given back by who was interrupted when it was kept
        waits.slots.beat(place.slot)
        waits.slots.set_wish(place.slot, line_of(stream), wish)
        waits.hands.set_taker(place.slot, NO_ONE, 0)  # until it joins
        waits.slots.set_state(place.slot, place.ticket, WAITING)
        return cls(engine, line_of(stream), key, place.slot, place.ticket, wish)

    def load(self) -> int:
        """Say that it waits, then the word to sleep on; try after it."""
        self.beat()
        return self.word()

    def ahead(self) -> list[int] | None:
        """The wishes of those before it; None if it is not its turn, whatever there is."""
        return self._waits.slots.ahead(self.key, self.number, self.wish)

    def beat(self) -> None:
        """Its owner stirs, and waits on."""
        self._waits.announce(self._line, group=True)
        self._waits.slots.beat(self.slot)

    def word(self) -> int:
        """The word to sleep on."""
        return self._waits.slots.load(self.slot)

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Sleep until woken, at most so long; whether it was woken since ``seen``."""
        self._waits.slots.sleep(self.slot, seen, timeout_s)
        return self._waits.slots.load(self.slot) != seen

    def pass_on(self, seen: int | None = None) -> None:
        """Wake whose turn it can be; with ``seen`` only if this one was woken since.

        Call it when this one no longer waits: who wakes it in between is seen by one of the two.
        """
        if seen is None or self._waits.slots.load(self.slot) != seen:
            self._waits.slots.wake_first(self.key)

    def offered(self) -> bool:
        """Whether there is something in its hand, given or not."""
        return self._waits.hands.state(self.slot) != NOTHING

    def handed(self, engine: Engine, committer: Committer) -> Hand | None:
        """What another handed to it; LOCK is taken only if that one may have died over it."""
        waits, slot = self._waits, self.slot
        state = waits.hands.state(slot)
        if state == NOTHING:
            return None
        if state != GIVEN:
            engine.check_open()
            with committer.locked():
                came = snapshot.read(
                    engine,
                    lambda view: handoff.settle_locked(view.index.groups, waits, self.key, slot),
                )
            if not came:
                return None
        return waits.hands.row(slot)

    def rest(self) -> None:
        """Stop waiting: what it holds in its hand after this is all it gets."""
        self._waits.slots.set_state(self.slot, self.number, IDLE)
        self._waits.slots.fence()

    def keep(self, owner: object) -> None:
        """Keep the place of one that rests for the next call of ``owner``."""
        self._kept_by = (owner,)
        self._waits.places.keep(self.key, owner, self.slot, self.number)

    def served(self, owner: object, consumer: int) -> None:
        """Leave the queue with what it waited for, and keep the slot for ``owner``'s next call."""
        waits = self._waits
        if not waits.slots.holds(self.slot, self.number):
            return
        waits.slots.set_state(self.slot, self.number, IDLE)
        if consumer == NO_ONE or waits.hands.state(self.slot) == OFFERED:
            self.close()
        else:
            waits.hands.empty(self.slot)
            self._kept_by = (owner,)
            waits.places.keep_slot(self.key, owner, self.slot, self.number, consumer)

    def close(self) -> None:
        """Leave the queue; harmless if it did. What was kept since may be another stay's by now."""
        kept_by, waits = self._kept_by, self._waits
        if kept_by and not waits.places.withdraw(self.key, kept_by[0], self.slot, self.number):
            return
        waits.slots.free(self.slot, self.number)


class Queue:
    """The queue of one group, as one finds it who comes to read; used inside of its commit."""

    def __init__(
        self, engine: Engine, stream: bytes, key: int, wish: int, owner: object = None
    ) -> None:
        self.ticket = GroupTicket.kept(engine, stream, key, wish, owner)
        self.waits = engine.wake.waits
        self._engine = engine
        self._line = line_of(stream)
        self._key = key
        self._wish = wish
        self._owner = owner
        self._taker = (NO_ONE, 0)  # to which consumer how many entries may be handed
        self._armed = (NO_ONE, 0)  # and what its slot says of that
        self._word: int | None = None  # of its slot, if there was nothing for it when it came
        self._until_ms = 0

    def others_locked(self, *, ahead: bool = False) -> list[Row]:
        """Those that wait, in order, but for this one; with ``ahead`` only those before it."""
        rows = self.waits.slots.waiting(self._key)
        ticket = self.ticket
        if ticket is None:
            return rows
        return [
            row for row in rows
            if row.ticket < ticket.number or (row.ticket > ticket.number and not ahead)
        ]  # fmt: skip

    def handed_locked(self, state: WriteTxn) -> bool:
        """Whether something was handed to this one: it must not read as well."""
        ticket = self.ticket
        if ticket is None:
            return False
        if ticket.slot in state.handed:
            return True
        return handoff.settle_locked(state.groups.index, self.waits, self._key, ticket.slot)

    def served_locked(self, served: bool) -> None:
        """Whether this one read something: then it waits no more, and nothing is handed to it."""
        ticket = self.ticket
        if ticket is not None:
            self.waits.slots.set_state(ticket.slot, ticket.number, IDLE if served else WAITING)

    def join_locked(self, consumer: int = NO_ONE, most: int = 0) -> None:
        """Wait at the end of it, unless it has its place already; ``ticket`` stays None if all
        are taken. To this consumer up to ``most`` (0: any number of) entries may be handed.
        """
        waits = self.waits
        self._taker = consumer, most
        if self.ticket is not None:
            return

        def prepare(slot: int) -> None:  # what its last owner would have taken counts no more
            waits.hands.set_locked(slot, NOTHING)
            waits.hands.set_taker(slot, NO_ONE, 0)

        waits.announce(self._line, group=True)
        found = waits.slots.take_locked(self._key, self._line, self._wish, prepare)
        if found is not None:
            self.ticket = GroupTicket(self._engine, self._line, self._key, *found, self._wish)

    def rejoin(self, most: int) -> bool:
        """Wait at the end of it without LOCK, if it has a slot from last time; to the consumer it
        read for up to ``most`` entries may be handed at once. Then look whether there is something:
        who adds from now on knows of it.
        """
        waits = self.waits
        if self.ticket is not None:
            return False
        place = waits.places.take_slot(self._key, self._owner)
        if place is None or not waits.slots.holds(place.slot, place.ticket):
            return False
        waits.announce(self._line, group=True)
        self._until_ms = monotonic_ms() + PACE.fresh_ms
        self._taker = self._armed = place.consumer, most
        waits.hands.set_taker(place.slot, place.consumer, most)
        self._word = waits.slots.load(place.slot)
        ticket = GroupTicket(self._engine, self._line, self._key, place.slot, 0, self._wish)
        ticket.number = waits.slots.rejoin(
            place.slot, place.ticket, self._key, self._line, self._wish
        )
        self.ticket = ticket
        waits.slots.fence()
        return True

    def vain(self, word: int) -> bool:
        """Whether it looked when it came, there was nothing for it, and it was not called since:
        neither while others knew that it waits, nor while they might have forgotten.
        """
        before, self._word = self._word, None  # only the first step may rely on that look
        return word == before and monotonic_ms() < self._until_ms

    def look_again(self) -> None:
        """It is not known whether there is something for it."""
        self._word = None

    def carried(self, hand: Hand) -> list[Delivered] | None:
        """The entries it was handed; None if they must be looked up."""
        found = None if self.ticket is None else self.waits.carried.get(self.ticket.slot, hand)
        if found is None:
            return None
        return [Delivered(id, items, 0, 1, hand.time_ms) for id, items in found]

    def takes(self, consumer: int, most: int) -> None:
        """To this consumer up to ``most`` (0: any number of) entries may be handed."""
        self._taker = consumer, most

    def served(self) -> None:
        """Leave it with what one waited for, if one stood there."""
        if self.ticket is not None:
            self.ticket.served(self._owner, self._taker[0])

    def joined(self) -> None:
        """The commit in which it joined came about, and so its consumer is there: from now on it
        may be handed something. Before it comes itself, and nobody gets past it.
        """
        ticket = self.ticket
        if ticket is None or self._taker == self._armed:
            return  # others count on it already: they must not see it change
        if self.waits.slots.holds(ticket.slot, ticket.number):
            self._armed = self._taker
            self.waits.hands.set_taker(ticket.slot, *self._taker)
