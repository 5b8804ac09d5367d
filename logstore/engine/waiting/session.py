"""One stay of a reader in the queue of its group, in steps: threads and tasks take the same.

``begin`` reads or joins; then ``step`` again and again, whenever it was woken, and once a slice;
``give_up`` at the deadline, ``stop`` if waiting is over for another reason, ``leave`` if it failed.

Invariants: whatever a step gives, the stay is over then, and the place given back or kept; what was
handed to one that waits is given by its next step, also by ``give_up`` and ``stop``. What time
alone brings (an entry that becomes idle) wakes nobody: ``due_ms`` says when that will be. Nothing
here sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from logstore.engine.commit.committer import Committer
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.mailbox import Hand
from logstore.engine.shm.waiters import PLAIN
from logstore.engine.waiting.queue import GroupTicket, Queue

T = TypeVar("T")


class Tried(NamedTuple, Generic[T]):
    """What a try gave."""

    found: T | None
    left: bool = True  # whether others may find something after it
    due_ms: int | None = None  # when time alone will bring something, by the store's clock


Try = Callable[[Sequence[int]], Tried[T]]  # given the wishes of those before it, () if it is first
Enter = Callable[[Queue], Tried[T]]  # finds something at once, or joins the queue: one commit
Collect = Callable[[Hand], T]  # what another handed to it


class Stay(Generic[T]):
    """One reader in the queue."""

    def __init__(
        self, engine: Engine, committer: Committer, stream: bytes, key: int, try_once: Try[T], *,
        wish: int = PLAIN, owner: object = None, enter: Enter[T] | None = None,
        collect: Collect[T] | None = None,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._committer = committer
        self._stream = stream
        self.key = key
        self._wish = wish
        self._owner = owner
        self._try = try_once
        self._enter = enter or self._join
        self._collect = collect
        self._queue: Queue | None = None
        self._tried: tuple[tuple[int, int], list[int]] | None = None
        self.seen = 0  # the word to sleep on
        self.due_ms: int | None = None

    @property
    def ticket(self) -> GroupTicket | None:
        """Its ticket; None before it began, and if all were taken."""
        return None if self._queue is None else self._queue.ticket

    def begin(self) -> T | None:
        """Read what is there, or join the queue."""
        self._queue = queue = Queue(self._engine, self._stream, self.key, self._wish, self._owner)
        found, left, _ = self._enter(queue)
        if not found:
            queue.joined()
            self._engine.metrics.count("waits")
            return None
        queue.served()
        if left:
            self._engine.wake.waits.slots.wake_first(self.key)
        return found

    def step(self) -> T | None:
        """What was handed to it, or what it finds if it is its turn."""
        ticket = self._place()
        looked = ticket.load(), self._engine.wake.applied
        self.seen = looked[0]
        if self._stand().vain(looked[0]):
            return None  # it has just looked
        if (had := self._handed()) is not None:
            return had
        # Once a slice, also if nobody called: one before it that died leaves it to this one.
        ahead = ticket.ahead()
        if ahead is None:
            self._tried = self.due_ms = None
        elif (looked, ahead) != self._tried or self._due():
            found, left, self.due_ms = self._try(ahead)
            self._tried = looked, ahead
            if found:
                self._stand().served()
                ticket.pass_on(None if left else self.seen)
                return found
        return None

    def out_of_turn(self) -> T | None:
        """What there is, whoever waits for it."""
        return self._try(()).found or None

    def give_up(self) -> T | None:
        """It is too late; the place is kept for its owner's next call."""
        ticket = self._place()
        ticket.rest()
        if (had := self._handed()) is not None:
            return had
        ticket.keep(self._owner)
        ticket.pass_on(self.seen)
        return None

    def stop(self) -> T | None:
        """Waiting is over: what was handed to it all the same; if there is nothing, ``leave``."""
        self._place().rest()
        return self._handed()

    def leave(self) -> None:
        """Give the place back, and the turn to the next."""
        ticket = self.ticket
        if ticket is not None:
            ticket.close()
            ticket.pass_on()

    def _stand(self) -> Queue:
        assert self._queue is not None
        return self._queue

    def _place(self) -> GroupTicket:
        ticket = self.ticket
        assert ticket is not None
        return ticket

    def _join(self, queue: Queue) -> Tried[T]:
        """Try at once if nobody waits; then take a ticket."""
        if queue.ticket is None and not queue.others_locked():
            tried = self._try(())
            if tried.found:
                return Tried(tried.found, left=False)
        with self._committer.locked():
            queue.join_locked()
        return Tried(None)

    def _handed(self) -> T | None:
        hand = self._place().handed(self._engine, self._committer)
        if hand is None or self._collect is None:
            return None
        found = self._collect(hand)
        self._stand().served()
        self._engine.metrics.count("handed")
        return found

    def _due(self) -> bool:
        return self.due_ms is not None and self._engine.clock.now_ms() >= self.due_ms
