"""Waiting for entries of a group: the loop around one read.

Invariants: a consumer that waits is marked as seen once, when it begins; after that waiting writes
nothing to the log, since each try looks at a snapshot first; who stands behind others in the queue
takes only what they would not; no lock is held in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore import deadletters
from logstore.deadletters import OnDead
from logstore.engine import deliveries, groups, offers, snapshot, tickets
from logstore.engine.deliveries import Delivered
from logstore.engine.offers import Offer
from logstore.engine.state import State
from logstore.engine.tickets import Tried

if TYPE_CHECKING:
    from logstore.store import Store


class _Moved(Exception):  # noqa: N818
    """The group was removed, or another one of its name stands in its place."""


class Wait(NamedTuple):
    """A read of a group that waits."""

    store: Store[Any]
    stream: bytes
    group: bytes
    consumer: bytes
    once: Callable[[State, bool], list[Delivered]]  # the read; with False, only what it claims
    limit: int  # of entries; 0: none
    claim_idle_ms: int | None
    alive: Callable[[], object] | None  # raises when waiting is over
    noack: bool = False
    on_dead: OnDead[Any] | None = None  # told of what the read buried
    capped: bool = False  # not only by a count: it may leave something however few it takes

    def until(self, deadline: float | None) -> list[Delivered]:
        """What the read gives; [] at the deadline (of ``time.monotonic``; None: none)."""
        shown = False
        while not _over(deadline):
            offer = self.look()
            if offer is None:
                break
            if not shown and not self.ready(offer):
                self.show()
                shown = True
            try:
                return self._serve(offer, deadline) or []
            except _Moved:
                continue
        return [] if shown and self.look() is not None else self._at_once()

    def _at_once(self) -> list[Delivered]:
        """Read, and ask for nothing that only those who wait need."""
        found: list[Delivered] = deadletters.run(
            self.store, lambda state: self.once(state, True), None, on_dead=self.on_dead
        )
        return found

    def look(self, *, first: bool = True) -> Offer | None:
        """What there is for it; None if the group is gone."""
        return snapshot.read(
            self.store._engine(),
            lambda view: offers.look(
                view, self.stream, self.group, self.claim_idle_ms, first=first, noack=self.noack
            ),
        )

    def ready(self, offer: Offer | None) -> bool:
        """Whether a read gives something now, be it an error."""
        return offer is None or offer.fresh or offer.claimable(self._now_ms())

    def show(self) -> None:
        """Mark the consumer as seen."""
        self.store._commit(self._show, None)

    def _show(self, state: State) -> None:
        _, group = groups.existing(state, self.stream, self.group)
        groups.seen(state, group, groups.consumer(state, group, self.consumer))

    def _serve(self, offer: Offer, deadline: float | None) -> list[Delivered] | None:
        shared = self.store._live()

        def attempt(ahead: Sequence[int]) -> Tried[list[Delivered]]:
            return self._try(offer.group, ahead)

        return tickets.serve(
            shared.engine, shared.committer, self.stream, offer.group, attempt, deadline,
            wish=offer.wish, owner=(threading.get_ident(), self.consumer),
            alive=self.alive or self.store._engine,
        )  # fmt: skip

    def _try(self, number: int, ahead: Sequence[int]) -> Tried[list[Delivered]]:
        """Read if there is something for it that those before it in the queue would not take."""
        offer = self.look(first=not ahead)
        if offer is None or offer.group != number:
            raise _Moved
        now_ms = self._now_ms()
        if not ahead:
            if self.ready(offer):
                return self._read(True)
        elif offer.claimable(now_ms):
            if any(offer.suits(wish, now_ms) for wish in ahead):
                return Tried(None)  # theirs, and they pass on what they leave
            return self._read(False)
        return Tried(None, due_ms=offer.claimable_at_ms)

    def _read(self, fresh: bool) -> Tried[list[Delivered]]:
        def step(state: State) -> tuple[list[Delivered], bool]:
            found = self.once(state, fresh)
            limited = self.capped or 0 < self.limit <= len(found)
            return found, deliveries.left(
                state, self.stream, self.group, self.claim_idle_ms, noack=self.noack,
                limited=limited,
            )  # fmt: skip

        found, left = deadletters.run(self.store, step, None, on_dead=self.on_dead)
        return Tried(found, left)

    def _now_ms(self) -> int:
        return self.store._engine().clock.now_ms()


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
