"""Reads of a group that wait: first come, first served, over threads and processes.

``serve`` is the whole loop. Who finds nobody waiting tries at once; who must wait takes a ticket,
and tries only when it may be its turn (``slots`` says whose that can be), knowing what those before
it would take. A writer wakes these; who was served wakes the next if entries are left, and so does
who gives up, or fails, after it was woken.

Invariants: a ticket is kept over time-outs, so that its owner's next call waits where it stood
(taking a new one would invert the order); between two calls it stands in nobody's way; it ends when
its owner was served. What time alone brings (an entry that becomes idle) wakes nobody: a try tells
when that will be, and its waiter sleeps no longer. A waiter looks once a slice whether those before
it still live, so a wake-up that died with one costs no more than that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from logstore.engine import dues
from logstore.engine.commit import Committer
from logstore.engine.core import Engine
from logstore.engine.slots import IDLE, PLAIN, WAITING
from logstore.engine.waiting import left_of, wait_streams
from logstore.engine.waitwords import line_of

T = TypeVar("T")
KEPT_S = 60.0  # a ticket whose owner did not come back


class Tried(NamedTuple, Generic[T]):
    """What a try gave."""

    found: T | None
    left: bool = True  # whether others may find something after it
    due_ms: int | None = None  # when time alone will bring something, by the store's clock


Try = Callable[[Sequence[int]], Tried[T]]  # given the wishes of those before it, () if it is first


class GroupTicket:
    """A place in the queue of one group."""

    def __init__(
        self, engine: Engine, line: int, key: int, slot: int, number: int, wish: int
    ) -> None:
        self._waits = engine.wake.waits
        self._line = line
        self._key = key
        self._slot = slot
        self._wish = wish
        self.number = number

    @classmethod
    def take(
        cls, engine: Engine, committer: Committer, stream: bytes, key: int, wish: int
    ) -> GroupTicket | None:
        """A ticket at the end of the queue; None if every slot is taken."""
        slots, line = engine.wake.waits.slots, line_of(stream)
        with committer.locked():
            found = slots.take_locked(key, line, wish)
        return None if found is None else cls(engine, line, key, *found, wish)

    @classmethod
    def kept(
        cls, engine: Engine, stream: bytes, key: int, wish: int, owner: object
    ) -> GroupTicket | None:
        """The ticket that ``owner`` kept from its last call; it waits again."""
        slots = engine.wake.waits.slots
        old = time.monotonic() - KEPT_S
        for each, (slot, _, since) in list(slots.kept.items()):
            if since < old and each != (key, owner) and slots.kept.pop(each, None) is not None:
                slots.free(slot)
        found = slots.kept.pop((key, owner), None)
        if found is None:
            return None
        slot, number, _ = found
        slots.beat(slot)
        slots.set_wish(slot, wish)
        slots.set_state(slot, WAITING)
        return cls(engine, line_of(stream), key, slot, number, wish)

    def load(self) -> int:
        """Say that it waits, then the word to sleep on; try after it."""
        self._waits.announce(self._line, group=True)
        self._waits.slots.beat(self._slot)
        return self._waits.slots.load(self._slot)

    def ahead(self) -> list[int] | None:
        """The wishes of those before it; None if it is not its turn, whatever there is."""
        return self._waits.slots.ahead(self._key, self.number, self._wish)

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Sleep until woken, at most so long; whether it was woken since ``seen``."""
        self._waits.slots.sleep(self._slot, seen, timeout_s)
        return self._waits.slots.load(self._slot) != seen

    def pass_on(self, seen: int | None = None) -> None:
        """Wake whose turn it can be; with ``seen`` only if this one was woken since.

        Call it when this one no longer waits: who wakes it in between is seen by one of the two.
        """
        if seen is None or self._waits.slots.load(self._slot) != seen:
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
    engine: Engine, committer: Committer, stream: bytes, key: int, try_once: Try[T],
    deadline: float | None, *, wish: int = PLAIN, owner: object = None,
    alive: Callable[[], object] | None = None,
) -> T | None:  # fmt: skip
    """What ``try_once`` finds when it is this caller's turn; None at the deadline.

    ``stream`` and ``key`` name the group (its stream's name, its number), ``wish`` is what it would
    take besides new entries (``slots``). ``owner`` keeps a place over time-outs: a consumer's
    handle, the thread if none is given. ``alive`` raises when waiting is over. A deadline that has
    passed makes it one try, out of turn.
    """
    check = alive or engine.check_open
    slots = engine.wake.waits.slots
    whose = threading.get_ident() if owner is None else owner
    now = deadline is not None and time.monotonic() >= deadline
    ticket = None if now else GroupTicket.kept(engine, stream, key, wish, whose)
    if now or (ticket is None and not slots.waiting(key)):
        found = try_once(()).found
        if found or now:
            return found or None
    if ticket is None:
        ticket = GroupTicket.take(engine, committer, stream, key, wish)
        if ticket is None:  # more waiters than slots: without order
            return wait_streams(engine, [stream], lambda: try_once(()).found, deadline, check)
    return _in_turn(engine, ticket, try_once, deadline, whose, check)


def _in_turn(
    engine: Engine, ticket: GroupTicket, try_once: Try[T], deadline: float | None, owner: object,
    check: Callable[[], object],
) -> T | None:  # fmt: skip
    """Wait in the queue, try when it is this ticket's turn, leave the queue in the right way."""
    tried: tuple[tuple[int, int], list[int]] | None = None
    due_ms: int | None = None
    count = engine.metrics.count
    count("waits")
    try:
        while True:
            looked = ticket.load(), engine.wake.applied
            # Once a slice, also if nobody called: one before it that died leaves it to this one.
            ahead = ticket.ahead()
            if ahead is None:
                tried = due_ms = None
            elif (looked, ahead) != tried or (
                due_ms is not None and engine.clock.now_ms() >= due_ms
            ):
                found, left, due_ms = try_once(ahead)
                tried = looked, ahead
                if found:
                    ticket.close()
                    ticket.pass_on(None if left else looked[0])
                    return found
            if deadline is not None and time.monotonic() >= deadline:
                ticket.keep(owner)
                ticket.pass_on(looked[0])
                return None
            if ticket.wait(looked[0], _sleep_s(engine, deadline, due_ms)):
                count("wakeups")
            check()
            engine.notice_drops()
    except BaseException:
        ticket.close()
        ticket.pass_on()
        raise


def _sleep_s(engine: Engine, deadline: float | None, due_ms: int | None) -> float:
    left_s = dues.within(engine, left_of(deadline))
    return left_s if due_ms is None else min(left_s, (due_ms - engine.clock.now_ms()) / 1000)


__all__ = ["GroupTicket", "Tried", "Try", "serve"]
