"""What a reader of this process keeps between two calls: its place in a queue, or only its slot.

Who came to a time-out keeps its ticket, and waits where it stood when it comes again. Who was
served lost its place, and keeps the slot: it can then wait at the end of the queue without taking
LOCK (``Slots.rejoin``), as only the owner of a slot writes into it.

Invariants: who keeps a slot here does not own it any more, until it takes it again or withdraws it;
nothing is kept for much longer than ``KEPT_S``, or for one that is known to be gone; of slots alone
so few that those of many processes leave enough for others.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from logstore.engine.shm.waiters import Slots

KEPT_S = 60.0  # for an owner that did not come back
SWEEP_S = 1.0
BARE_MAX = 8


class Place(NamedTuple):
    """A slot that is kept, and what was known of its owner."""

    slot: int
    ticket: int
    since_s: float
    consumer: int = 0  # of one that was served: its number in the group


class Places:
    """All that is kept by this process, by group and owner."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._kept: dict[tuple[int, object], Place] = {}
        self._bare: dict[tuple[int, object], Place] = {}  # of those that were served
        self._next_s = 0.0

    def holds(self, key: int, owner: object) -> bool:
        """Whether a place in the queue is kept for it."""
        return (key, owner) in self._kept

    def keep(self, key: int, owner: object, slot: int, ticket: int) -> None:
        """Keep the place of one that rests."""
        self._give_back(self._bare.pop((key, owner), None))
        self.sweep()
        before = self._kept.pop((key, owner), None)
        self._kept[key, owner] = Place(slot, ticket, time.monotonic())
        self._give_back(before)

    def keep_slot(self, key: int, owner: object, slot: int, ticket: int, consumer: int) -> None:
        """Keep the slot of one that was served; it is given back if many are kept."""
        self.sweep()
        if len(self._bare) >= BARE_MAX or (key, owner) in self._bare:
            self._slots.free(slot, ticket)
        else:
            self._bare[key, owner] = Place(slot, ticket, time.monotonic(), consumer)

    def take(self, key: int, owner: object) -> Place | None:
        """The place in the queue that its owner kept, who came back."""
        return self._kept.pop((key, owner), None)

    def take_slot(self, key: int, owner: object) -> Place | None:
        """The slot that its owner kept, who came back."""
        return self._bare.pop((key, owner), None)

    def withdraw(self, key: int, owner: object, slot: int, ticket: int) -> bool:
        """It failed behind keeping this: whether it is its own again, and nobody took it since."""
        for kept in (self._kept, self._bare):
            place = kept.get((key, owner))
            if place is not None and place[:2] == (slot, ticket):
                return kept.pop((key, owner), None) is not None
        return False

    def forget(self, whose: object) -> None:
        """Give back what is kept for one that does not come back: the first part of its owner."""
        for kept in (self._kept, self._bare):
            for key in list(kept):
                if isinstance(key[1], tuple) and key[1][0] == whose:
                    self._give_back(kept.pop(key, None))

    def sweep(self) -> None:
        """Give back what was kept for too long; called now and then."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + SWEEP_S
        old = now_s - KEPT_S
        for kept in (self._kept, self._bare):
            for key, place in list(kept.items()):
                if place.since_s < old:
                    self._give_back(kept.pop(key, None))

    def _give_back(self, place: Place | None) -> None:
        if place is not None:
            self._slots.free(place.slot, place.ticket)
