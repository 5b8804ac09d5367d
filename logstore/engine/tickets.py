"""Reads of a group that wait: first come, first served, over threads and processes.

``serve`` is the whole loop. Who finds nobody waiting tries at once; who must wait takes a ticket,
and only the lowest living ticket of a group tries. A writer wakes that one; it passes the wake-up
on when entries are left, when its try failed, and when it gives up after it was woken.

Invariants: a ticket is kept over time-outs, so that its owner's next call waits where it stood
(taking a new one would invert the order); between two calls it stands in nobody's way; it ends when
its owner was served. A waiter looks at least every ``SLICE_S`` whether the tickets before it still
have living owners, so a wake-up that died with one costs no more than that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from logstore.engine.commit import Committer
from logstore.engine.core import Engine
from logstore.engine.slots import IDLE, WAITING
from logstore.engine.waiting import left_of, wait_streams
from logstore.engine.waitwords import line_of

T = TypeVar("T")
KEPT_S = 60.0  # a ticket whose owner did not come back


class GroupTicket:
    """A place in the queue of one group."""

    def __init__(self, engine: Engine, stream: bytes, key: int, slot: int, number: int) -> None:
        self._waits = engine.wake.waits
        self._line = line_of(stream)
        self._key = key
        self._slot = slot
        self.number = number

    @classmethod
    def take(
        cls, engine: Engine, committer: Committer, stream: bytes, key: int
    ) -> GroupTicket | None:
        """A ticket at the end of the queue; None if every slot is taken."""
        slots = engine.wake.waits.slots
        with committer.locked():
            found = slots.take_locked(key, line_of(stream))
        return None if found is None else cls(engine, stream, key, *found)

    @classmethod
    def kept(cls, engine: Engine, stream: bytes, key: int, owner: object) -> GroupTicket | None:
        """The ticket that ``owner`` kept from its last call; it waits again."""
        slots = engine.wake.waits.slots
        old = time.monotonic() - KEPT_S
        for each, (slot, _, since) in list(slots.kept.items()):
            if since < old and each != (key, owner) and slots.kept.pop(each, None) is not None:
                slots.free(slot)
        found = slots.kept.pop((key, owner), None)
        if found is None:
            return None
        slots.beat(found[0])
        slots.set_state(found[0], WAITING)
        return cls(engine, stream, key, found[0], found[1])

    def load(self) -> int:
        """Say that it waits, then the word to sleep on; try after it."""
        self._waits.announce(self._line, group=True)
        self._waits.slots.beat(self._slot)
        return self._waits.slots.load(self._slot)

    def my_turn(self) -> bool:
        """Whether nobody that lives waits with a lower ticket."""
        return self._waits.slots.is_first(self._key, self.number)

    def wait(self, seen: int, deadline: float | None) -> bool:
        """Sleep until woken, at most a slice; whether it was woken since ``seen``."""
        self._waits.slots.sleep(self._slot, seen, left_of(deadline))
        return self._waits.slots.load(self._slot) != seen

    def pass_on(self) -> None:
        """Wake the lowest ticket; call it when this one no longer waits."""
        self._waits.slots.wake_first(self._key)

    def keep(self, owner: object) -> None:
        """Stop waiting, and keep the place for the next call of ``owner``."""
        slots = self._waits.slots
        slots.set_state(self._slot, IDLE)
        before = slots.kept.pop((self._key, owner), None)
        slots.kept[self._key, owner] = (self._slot, self.number, time.monotonic())
        if before is not None:
            slots.free(before[0])

    def close(self) -> None:
        """Leave the queue."""
        self._waits.slots.free(self._slot)


def serve(
    engine: Engine, committer: Committer, stream: bytes, key: int, try_once: Callable[[], T],
    deadline: float | None, *, more: Callable[[], bool] | None = None, owner: object = None,
    alive: Callable[[], object] | None = None,
) -> T | None:  # fmt: skip
    """What ``try_once`` finds when it is this caller's turn; None at the deadline.

    ``stream`` and ``key`` name the group (its stream's name, its number). ``more`` says whether
    entries are left for the next in the queue (without it the next one looks itself). ``owner``
    keeps a place over time-outs: a consumer's handle, the thread if none is given. ``alive`` raises
    when waiting is over. A deadline that has passed makes it one try, out of turn.
    """
    check = alive or engine.check_open
    slots = engine.wake.waits.slots
    whose = threading.get_ident() if owner is None else owner
    now = deadline is not None and time.monotonic() >= deadline
    ticket = None if now else GroupTicket.kept(engine, stream, key, whose)
    if now or (ticket is None and not slots.waiting(key)):
        found = try_once()
        if found or now:
            return found or None
    if ticket is None:
        ticket = GroupTicket.take(engine, committer, stream, key)
        if ticket is None:  # more waiters than slots: without order
            return wait_streams(engine, [stream], try_once, deadline, check)
    return _in_turn(engine, ticket, try_once, deadline, more, whose, check)


def _in_turn(
    engine: Engine, ticket: GroupTicket, try_once: Callable[[], T], deadline: float | None,
    more: Callable[[], bool] | None, owner: object, check: Callable[[], object],
) -> T | None:  # fmt: skip
    """Wait in the queue, try when it is this ticket's turn, leave the queue in the right way."""
    tried: tuple[int, int] | None = None
    count = engine.metrics.count
    count("waits")
    try:
        while True:
            looked = ticket.load(), engine.wake.applied
            if looked != tried and ticket.my_turn():
                found = try_once()
                tried = looked
                if found:
                    ticket.close()
                    if more is None or more():
                        ticket.pass_on()
                    return found
            if deadline is not None and time.monotonic() >= deadline:
                ticket.keep(owner)
                if ticket.load() != looked[0]:
                    ticket.pass_on()  # woken after its last look
                return None
            if ticket.wait(looked[0], deadline):
                count("wakeups")
            check()
            engine.notice_drops()
    except BaseException:
        ticket.close()
        ticket.pass_on()
        raise


__all__ = ["GroupTicket", "serve"]
