"""Reads of a group that wait: first come, first served, over threads and processes.

``serve`` is the whole loop. Who finds nobody waiting tries at once; who must wait takes a ticket,
and tries only when it may be its turn (``slots`` says whose that can be), knowing what those before
it would take. A writer wakes these. Who reads hands what it leaves to those that wait behind it, or
before it (``handover``); who was served wakes the next if entries are left all the same, and so
does who gives up, or fails, after it was woken.

Invariants: what was handed to one that waits is what it returns, also at its deadline, or when it
is to stop; an interrupt leaves it in its consumer's backlog. What time alone brings (an entry that
becomes idle) wakes nobody: a try tells when that will be, and its waiter sleeps no longer. A waiter
looks once a slice whether those before it still live, so a wake-up that died with one costs no more
than that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from logstore.engine import dues
from logstore.engine.commit import Committer
from logstore.engine.core import Engine
from logstore.engine.hands import Hand
from logstore.engine.slots import PLAIN
from logstore.engine.ticket import GroupTicket, Queue
from logstore.engine.waiting import left_of, wait_streams

T = TypeVar("T")


class Tried(NamedTuple, Generic[T]):
    """What a try gave."""

    found: T | None
    left: bool = True  # whether others may find something after it
    due_ms: int | None = None  # when time alone will bring something, by the store's clock


Try = Callable[[Sequence[int]], Tried[T]]  # given the wishes of those before it, () if it is first
Enter = Callable[[Queue], Tried[T]]  # finds something at once, or joins the queue: one commit
Collect = Callable[[Hand], T]  # what another handed to it


def serve(
    engine: Engine, committer: Committer, stream: bytes, key: int, try_once: Try[T],
    deadline: float | None, *, wish: int = PLAIN, owner: object = None,
    alive: Callable[[], object] | None = None, enter: Enter[T] | None = None,
    collect: Collect[T] | None = None,
) -> T | None:  # fmt: skip
    """What ``try_once`` finds when it is this caller's turn; None at the deadline.

    ``stream`` and ``key`` name the group (its stream's name, its number), ``wish`` is what it would
    take besides new entries (``slots``). ``owner`` keeps a place over time-outs: a consumer's
    handle, the thread if none is given. ``alive`` raises when waiting is over. ``enter`` is the
    first try and, if it is in vain, joins the queue; ``collect`` gives what others handed over
    meanwhile, which may be gone again (then it is empty). A deadline that has passed makes it one
    try, out of turn.
    """
    check = alive or engine.check_open
    whose = threading.get_ident() if owner is None else owner
    if deadline is not None and time.monotonic() >= deadline:
        return try_once(()).found or None
    queue = Queue(engine, stream, key, wish, GroupTicket.kept(engine, stream, key, wish, whose))
    try:
        tried: Tried[T] = _join(committer, queue, try_once) if enter is None else enter(queue)
    except BaseException:
        _leave(queue)
        raise
    if tried.found:
        if queue.ticket is not None:
            queue.ticket.close()
        if tried.left:
            engine.wake.waits.slots.wake_first(key)
        return tried.found
    if queue.ticket is None:  # more waiters than slots: without order
        return wait_streams(engine, [stream], lambda: try_once(()).found, deadline, check)
    try:
        stay = _Stay(engine, committer, queue.ticket, collect)
        return stay.in_turn(try_once, deadline, whose, check)
    except BaseException:
        _leave(queue)
        raise


def _join(committer: Committer, queue: Queue, try_once: Try[T]) -> Tried[T]:
    """Try at once if nobody waits; then take a ticket."""
    if queue.ticket is None and not queue.others_locked():
        tried = try_once(())
        if tried.found:
            return Tried(tried.found, left=False)
    with committer.locked():
        queue.join_locked()
    return Tried(None)


def _leave(queue: Queue) -> None:
    if queue.ticket is not None:
        queue.ticket.close()
        queue.ticket.pass_on()


class _Stay(Generic[T]):
    """One stay in the queue, to its end."""

    def __init__(
        self, engine: Engine, committer: Committer, ticket: GroupTicket, collect: Collect[T] | None
    ) -> None:
        self._engine = engine
        self._committer = committer
        self._ticket = ticket
        self._collect = collect

    def in_turn(
        self, try_once: Try[T], deadline: float | None, owner: object, check: Callable[[], object]
    ) -> T | None:
        """Try when it is this ticket's turn, and leave the queue in the right way."""
        engine, ticket, count = self._engine, self._ticket, self._engine.metrics.count
        tried: tuple[tuple[int, int], list[int]] | None = None
        due_ms: int | None = None
        count("waits")
        while True:
            looked = ticket.load(), engine.wake.applied
            if (had := self._handed()) is not None:
                return had
            # Once a slice, also if nobody called: one before it that died leaves it to this one.
            ahead = ticket.ahead()
            if ahead is None:
                tried = due_ms = None
            elif (looked, ahead) != tried or _due(engine, due_ms):
                found, left, due_ms = try_once(ahead)
                tried = looked, ahead
                if found:
                    ticket.close()
                    ticket.pass_on(None if left else looked[0])
                    return found
            if deadline is not None and time.monotonic() >= deadline:
                return self._give_up(owner, looked[0])
            if ticket.wait(looked[0], _sleep_s(engine, deadline, due_ms)):
                count("wakeups")
            try:
                check()
            except Exception:
                ticket.rest()
                if (had := self._handed()) is not None:
                    return had
                raise
            engine.notice_drops()

    def _handed(self) -> T | None:
        """What others handed to it; with that it has left the queue."""
        hand = self._ticket.handed(self._engine, self._committer)
        if hand is None or self._collect is None:
            return None
        found = self._collect(hand)
        self._ticket.close()
        self._engine.metrics.count("handed")
        return found

    def _give_up(self, owner: object, seen: int) -> T | None:
        """It is too late; the place is kept."""
        self._ticket.rest()
        if (had := self._handed()) is not None:
            return had
        self._ticket.keep(owner)
        self._ticket.pass_on(seen)
        return None


def _due(engine: Engine, due_ms: int | None) -> bool:
    return due_ms is not None and engine.clock.now_ms() >= due_ms


def _sleep_s(engine: Engine, deadline: float | None, due_ms: int | None) -> float:
    left_s = dues.within(engine, left_of(deadline))
    return left_s if due_ms is None else min(left_s, (due_ms - engine.clock.now_ms()) / 1000)


__all__ = ["Tried", "Try", "serve"]
