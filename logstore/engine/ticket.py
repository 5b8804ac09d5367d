"""A ticket: a place in the queue of one group, and the hand that goes with it.

Invariants: a ticket is kept over time-outs, so that its owner's next call waits where it stood
(taking a new one would invert the order); between two calls it stands in nobody's way; it ends when
its owner was served. Who stops waiting looks at its hand after it said so (``handover``).
"""

from __future__ import annotations

import time

from logstore.engine import handover, snapshot
from logstore.engine.commit import Committer
from logstore.engine.core import Engine
from logstore.engine.hands import GIVEN, NO_ONE, NOTHING, Hand
from logstore.engine.slots import IDLE, WAITING, Row
from logstore.engine.state import State
from logstore.engine.waitwords import line_of

KEPT_S = 60.0  # a ticket whose owner did not come back


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

    @classmethod
    def kept(
        cls, engine: Engine, stream: bytes, key: int, wish: int, owner: object
    ) -> GroupTicket | None:
        """The ticket that ``owner`` kept from its last call; it waits again."""
        slots = engine.wake.waits.slots
        old = time.monotonic() - KEPT_S
        for each, (slot, number, since) in list(slots.kept.items()):
            if since < old and each != (key, owner) and slots.kept.pop(each, None) is not None:
                slots.free(slot, number)
        found = slots.kept.pop((key, owner), None)
        if found is None:
            return None
        slot, number, _ = found
        if not slots.holds(slot, number):
            return None  # given back by who was interrupted when it was kept
        slots.beat(slot)
        slots.set_wish(slot, wish)
        engine.wake.waits.hands.set_taker(slot, NO_ONE, 0)  # until it joins
        slots.set_state(slot, number, WAITING)
        return cls(engine, line_of(stream), key, slot, number, wish)

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
                    lambda view: handover.settle_locked(view.index.groups, waits, self.key, slot),
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
        slots = self._waits.slots
        before = slots.kept.pop((self.key, owner), None)
        slots.kept[self.key, owner] = (self.slot, self.number, time.monotonic())
        if before is not None:
            slots.free(*before[:2])

    def close(self) -> None:
        """Leave the queue; harmless if it did."""
        self._waits.slots.free(self.slot, self.number)


class Queue:
    """The queue of one group, as one finds it who comes to read; used inside of its commit."""

    def __init__(
        self, engine: Engine, stream: bytes, key: int, wish: int, ticket: GroupTicket | None
    ) -> None:
        self.waits = engine.wake.waits
        self._engine = engine
        self._line = line_of(stream)
        self._key = key
        self._wish = wish
        self._taker = (NO_ONE, 0)
        self.ticket = ticket

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

    def handed_locked(self, state: State) -> bool:
        """Whether something was handed to this one: it must not read as well."""
        ticket = self.ticket
        if ticket is None:
            return False
        if ticket.slot in state.handed:
            return True
        return handover.settle_locked(state.groups.txn, self.waits, self._key, ticket.slot)

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

    def joined(self) -> None:
        """The commit in which it joined came about, and so its consumer is there: from now on it
        may be handed something. Before it comes itself, and nobody gets past it.
        """
        ticket = self.ticket
        if ticket is not None and self.waits.slots.holds(ticket.slot, ticket.number):
            self.waits.hands.set_taker(ticket.slot, *self._taker)
