"""Waiting for entries of a group: the loop around one read.

Who comes commits once: it reads, having handed to those before it in the queue what is theirs, or
it is marked as seen and joins them. Who reads hands what it leaves to those behind it.

Invariants: after its first commit waiting writes nothing to the log, since each try looks at a
snapshot first; who stands behind others in the queue takes only what they would not; no lock is
held in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from logstore.api.dead_letters import OnDead
from logstore.api.opening import OpenStore
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import admin, deliver
from logstore.engine.groups.deliver import Delivered
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.shm.mailbox import NO_ONE, Hand
from logstore.engine.shm.waiters import PLAIN
from logstore.engine.streams import read
from logstore.engine.streams.read import Batch
from logstore.engine.waiting import handoff, offers, tickets
from logstore.engine.waiting.offers import Offer
from logstore.engine.waiting.queue import Queue
from logstore.engine.waiting.session import Stay, Tried
from logstore.engine.waiting.wait import over
from logstore.ids import StreamID
from logstore.index.group_keys import GroupRecord
from logstore.index.keys import StreamRecord
from logstore.tuples import NamedTuple

KNOWN_MAX = 1024  # groups that are remembered


class Moved(Exception):  # noqa: N818  (control flow)
    """The group was removed, or another one of its name stands in its place."""


class Wait(NamedTuple):
    """A read of a group that waits."""

    store: OpenStore[Any]
    stream: bytes
    group: bytes
    consumer: bytes
    once: Callable[..., list[Delivered]]  # the read; ``takes_new=False``: only what it claims
    limit: int  # of entries; 0: none
    claim_idle_ms: int | None
    alive: Callable[[], object] | None  # raises when waiting is over
    noack: bool = False
    on_dead: OnDead[Any] | None = None  # told of what the read buried
    capped: bool = False  # not only by a count: it may leave something however few it takes
    measured: bool = False  # it counts bytes

    def until(
        self, deadline: float | None, owner: tuple[object, bytes] | None = None
    ) -> list[Delivered]:
        """What the read gives; [] at the deadline (of ``time.monotonic``; None: none).

        ``owner`` keeps its place in the queue over time-outs: by default the thread.
        """
        shown, alive = False, self.alive or self.store.engine
        owner = owner or (threading.get_ident(), self.consumer)
        while not over(deadline):
            stay = self.stay(owner)
            if stay is None:
                break
            try:
                found = tickets.take_turn(self.store.engine(), self.stream, stay, deadline, alive)
            except Moved:
                continue
            if found or found is None:
                return found or []
            shown = True  # what it was handed was deleted since
        return self.last(shown=shown)

    def last(self, *, shown: bool) -> list[Delivered]:
        """What it gives at its deadline without having waited, or of a group that is gone. With
        ``shown`` it was handed something, which is deleted by now: it had its read.
        """
        return [] if shown and self.look() is not None else self.at_once()

    def at_once(self) -> list[Delivered]:
        """Read, and ask for nothing that only those who wait need."""
        found: list[Delivered] = self.store.commit_telling(self.once, on_dead=self.on_dead)
        return found

    def look(self, *, first: bool = True) -> Offer | None:
        """What there is for it; None if the group is gone."""
        return snapshot.read(
            self.store.engine(),
            lambda view: offers.look(
                view, self.stream, self.group, self.claim_idle_ms, first=first, noack=self.noack
            ),
        )

    def stay(self, owner: object) -> Stay[list[Delivered]] | None:
        """A stay in the queue, which has not begun; None if the group is gone. ``owner`` keeps a
        place over time-outs: the thread or task, and its consumer.
        """
        shared = self.store.live()
        known, name = shared.engine.wake.waits.plain, (self.stream, self.group)
        number, wish = known.get(name, 0), PLAIN
        # A place that was kept is not risked on what may have been set for the group since.
        kept = shared.engine.wake.waits.places.holds(number, owner)
        if not number or kept or self.claim_idle_ms is not None:
            offer = self.look()
            if offer is None:
                return None
            number, wish = offer.group, offer.wish
            if self.claim_idle_ms is None and not self.noack and wish == PLAIN:
                if len(known) >= KNOWN_MAX:
                    known.clear()
                known[name] = number
        stand = _Stand(self, number, wish)
        return Stay(
            shared.engine, shared.committer, self.stream, number, stand.attempt, wish=wish,
            owner=owner, enter=stand.enter, collect=stand.collect,
        )  # fmt: skip

    def moved(self) -> Moved:
        """To be raised: what was known of the group does not hold any more."""
        waits = self.store.engine().wake.waits
        waits.plain.pop((self.stream, self.group), None)
        return Moved()


class _Stand:
    """One stay in the queue: what is done there, each a commit or a snapshot of its own."""

    def __init__(self, wait: Wait, number: int, wish: int) -> None:
        self._wait = wait
        self._number = number
        self._wish = wish
        # To others only what is new can be handed, by count, and so that it is pending after.
        self._takes_hands = wish == PLAIN and not wait.noack and not wait.measured
        self._queue: Queue | None = None

    def enter(self, queue: Queue) -> Tried[list[Delivered]]:
        """Read, if those before it in the queue can be served by the way; else join them."""
        self._queue = queue
        wait = self._wait
        if self._takes_hands and self._joins(queue):
            return Tried(None)

        def step(state: WriteTxn) -> tuple[list[Delivered], bool]:
            record, group = self._group(state)
            settings = state.settings.group(group.number)
            if offers.wish(settings, wait.claim_idle_ms, noack=wait.noack) != self._wish:
                raise wait.moved()  # it was configured since
            if queue.handed_locked(state):
                return [], True  # before it gave up last time, or rather not quite
            who = admin.consumer(state, group, wait.consumer)
            ahead = queue.others_locked(ahead=True)
            if not ahead or (
                group.last < record.last
                and handoff.hand_over(state, queue.waits, record, group, ahead, spare=True)
            ):
                found, left = self._read(state, takes_new=True)
                if found:
                    return found, left
            else:
                admin.seen(state, group, who)
            queue.join_locked(who.number if self._takes_hands else NO_ONE, wait.limit)
            return [], True

        return Tried(*self._run(step))

    def _joins(self, queue: Queue) -> bool:
        """Join the queue without a commit, if that is all that it would do."""
        shared, wait = self._wait.store.live(), self._wait
        engine = shared.engine

        def vain(view: Snapshot) -> int:
            return offers.vain(view, wait.stream, wait.group, self._number, wait.consumer)

        if queue.ticket is not None and queue.ticket.offered():
            return False
        if queue.rejoin(wait.limit):
            consumer = snapshot.read(engine, vain)
            if consumer:
                queue.takes(consumer, wait.limit)
            else:
                queue.look_again()
            return consumer > 0
        applied = engine.wake.applied
        consumer = snapshot.read(engine, vain)
        if consumer:
            with shared.committer.locked():  # for as short as can be
                if engine.wake.applied != applied:
                    consumer = snapshot.read(engine, vain)
                if consumer:
                    queue.join_locked(consumer, wait.limit)
        return consumer > 0

    def attempt(self, ahead: Sequence[int]) -> Tried[list[Delivered]]:
        """Read if there is something for it that those before it in the queue would not take."""
        wait = self._wait
        offer = wait.look(first=not ahead)
        if offer is None or offer.group != self._number:
            raise wait.moved()
        now_ms = wait.store.engine().clock.now_ms()
        if not ahead:
            if offer.fresh or offer.claimable(now_ms):
                return Tried(*self._run(lambda state: self._read(state, takes_new=True)))
        elif offer.claimable(now_ms):
            if any(offer.suits(wish, now_ms) for wish in ahead):
                return Tried(None)  # theirs, and they pass on what they leave
            return Tried(*self._run(lambda state: self._read(state, takes_new=False)))
        return Tried(None, due_ms=offer.claimable_at_ms)

    def collect(self, hand: Hand) -> list[Delivered]:
        """What another handed to it; of what must be looked up, what was not deleted since."""
        wait, number = self._wait, self._number
        engine = wait.store.engine()
        if self._queue is not None and (carried := self._queue.carried(hand)) is not None:
            engine.metrics.count("read_entries", len(carried))
            return carried
        names = [wait.stream]  # and the one it has now

        def once(batch: Callable[[Snapshot], Batch]) -> Batch:
            def look(view: Snapshot) -> Batch:
                record = view.record(names[-1])
                if record and view.index.groups.number(record.number, wait.group) == number:
                    return batch(view)
                group = view.index.groups.group(number)
                renamed = None if group is None else view.index.record(group.stream)
                if renamed is not None and renamed.name not in names:
                    names.append(renamed.name)
                return Batch([], None)  # or made anew: what is there now was given to nobody

            return snapshot.read(engine, look)

        found: list[Delivered] = []
        for name in names:  # grows meanwhile
            start = found[-1].id.next() if found else hand.first
            rest: tuple[StreamID, StreamID] | None = (start, hand.last)
            while rest is not None:
                entries, rest = read.read_on(once, name, *rest, -1)
                engine.metrics.count("read_entries", len(entries))
                found += [
                    Delivered(StreamID(ms, seq), items, 0, 1, hand.time_ms)
                    for _, ms, seq, items in entries
                ]
        return found

    def _group(self, state: WriteTxn) -> tuple[StreamRecord, GroupRecord]:
        found = admin.maybe(state, self._wait.stream, self._wait.group)
        if found is None or found[1].number != self._number:
            raise self._wait.moved()
        return found

    def _read(self, state: WriteTxn, *, takes_new: bool) -> tuple[list[Delivered], bool]:
        """Its own read, then for those that wait behind it; whether something is left."""
        wait, queue = self._wait, self._queue
        if queue is not None and queue.handed_locked(state):
            return [], True  # by who had LOCK before: it is in its hand
        found = wait.once(state, takes_new=takes_new)
        if queue is not None:
            queue.served_locked(bool(found))
        limited = wait.capped or 0 < wait.limit <= len(found)
        left = deliver.left(
            state, wait.stream, wait.group, wait.claim_idle_ms, noack=wait.noack, limited=limited
        )
        if found and left and takes_new and queue is not None:
            others = queue.others_locked()
            record, group = self._group(state)
            if others and group.last < record.last:
                handoff.hand_over(state, queue.waits, record, group, others)
                left = deliver.left(
                    state, wait.stream, wait.group, wait.claim_idle_ms, noack=wait.noack,
                    limited=limited,
                )  # fmt: skip
        return found, left

    def _run(self, step: Callable[[WriteTxn], Any]) -> Any:
        return self._wait.store.commit_telling(step, on_dead=self._wait.on_dead)
