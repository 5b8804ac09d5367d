"""One wait of a reader for entries of a group, as a small state machine.

Threads, asyncio tasks, embedded clients and clients of a server take the same steps, and differ
only in how they sleep in between: ``begin`` once; then ``step`` whenever it was woken, and once a
slice; ``give_up`` at the deadline; ``leave`` if it failed, or was cancelled. A thread that kept
its record calls ``again`` before ``begin``: most waits are over with it.

    PROBING --begin--> SERVED          it found entries at once
            --begin--> QUEUED          it has a ticket, or all were taken (see ``ticket``)
    QUEUED, SLEEPING --step--> SERVED  it was handed entries, or it was its turn and it read some
                     --step--> SLEEPING
                     --give_up--> SERVED   it was handed entries all the same
                     --give_up--> GONE     its ticket is kept for the owner's next call
    any --leave--> GONE                the ticket is given back, and the turn passed on

Invariants: a wait is over when it gave entries; what was handed to one that waits is given by its
next step, also if waiting is over for another reason, and by ``give_up``. What time alone brings
(an entry that becomes idle) wakes nobody: ``pause_s`` says when that will be. After the commit with
which it joined waiting writes nothing to the log, since each try looks at a snapshot first; who
stands behind others takes only what they would not. No step sleeps, and no lock is held between
two steps. A thread sleeps between its steps (``read_group``) until time alone may have brought
something, at most; else as in ``waiting.stream_wait``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from logstore.codec import NodeEntry, codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Committer, Op
from logstore.engine.groups import admin, deliver
from logstore.engine.groups.deliver import Delivered
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.waiters import NEW_ONLY, NO_ONE, Mailbox, SavedWaiter, owner_of
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import read as reading
from logstore.engine.streams.read import Batch, RangeRead
from logstore.engine.waiting import handoff, probe
from logstore.engine.waiting.probe import AvailableEntries
from logstore.engine.waiting.stream_wait import left_of, over, wait_streams
from logstore.engine.waiting.wait_queue import NONE, Ticket
from logstore.ids import StreamID
from logstore.index.group_keys import GroupRecord
from logstore.index.keys import StreamRecord
from logstore.tuples import NamedTuple

UNKNOWN = -1  # as a position: no commit ends there
KNOWN_MAX = 1024  # groups that are remembered
RETRY_MIN_S = 0.001  # between two looks for what became idle
BECAME: dict[str, int] = {} if native_or_none is None else native_or_none.outcomes()
# What makes deliveries, as ``DeliveryMaker.first`` of the codec does, and its last argument.
Making: TypeAlias = tuple[Callable[..., tuple[list[Any], bytes]], tuple[Any, ...]]


class GroupReplaced(Exception):  # noqa: N818  (control flow)
    """The group was removed, or another one of its name stands in its place."""


class GroupRead(NamedTuple):
    """A read of new entries of a group, which may wait."""

    engine: Engine
    committer: Committer
    stream: bytes
    group: bytes
    consumer: bytes
    once: Callable[..., list[Delivered]]  # the read; ``takes_new=False``: only what it claims
    commit: Callable[[Op], Any]  # runs an operation in a commit, and reports what became dead
    limit: int = 0  # of entries; 0: none
    asked_idle_ms: int | None = None
    noack: bool = False
    capped: bool = False  # not only by a count: it may leave something however few it takes
    measured: bool = False  # it counts bytes

    def at_once(self) -> list[Delivered]:
        """Read, and ask for nothing that only those who wait need."""
        found: list[Delivered] = self.commit(partial(self.once, takes_new=True))
        return found

    def probe(self, *, first: bool = True) -> AvailableEntries | None:
        """What there is for it; None if the group is gone."""
        available: AvailableEntries | None = snapshot.read(
            self.engine,
            partial(probe.probe, first=first, noack=self.noack),
            self.stream,
            self.group,
            self.asked_idle_ms,
        )
        return available

    def last(self, *, shown: bool) -> list[Delivered]:
        """What it gives at its deadline without having waited, or of a group that is gone. With
        ``shown`` it was handed something, which is deleted by now: it had its read.
        """
        return [] if shown and self.probe() is not None else self.at_once()

    def session(self, owner: object) -> WaitSession | None:
        """A wait that has not begun; None if the group is gone. ``owner`` names who keeps a place
        over time-outs: a thread, task or client, and its consumer.
        """
        waits, name = self.engine.wake.waits, (self.stream, self.group)
        known = waits.plain
        number, min_idle_ms = known.get(name, 0), NEW_ONLY
        # A place that was kept is not risked on what may have been set for the group since.
        kept = waits.saved.holds(number, owner)
        if not number or kept or self.asked_idle_ms is not None:
            available = self.probe()
            if available is None:
                return None
            number, min_idle_ms = available.group, available.min_idle_ms
            if self.asked_idle_ms is None and not self.noack and min_idle_ms == NEW_ONLY:
                if len(known) >= KNOWN_MAX:
                    known.clear()
                known[name] = number
        return WaitSession(self, number, min_idle_ms, owner)

    def moved(self) -> GroupReplaced:
        """To be raised: what was known of the group does not hold any more."""
        self.engine.wake.waits.plain.pop((self.stream, self.group), None)
        return GroupReplaced()


class WaitSession:
    """One wait of a reader.

    Attributes:
        key: the number of the group.
        min_idle_ms: what it takes besides new entries, as its waiter record has it.
        seen: the word of the record when it looked last: sleep while it is that.
    """

    def __init__(self, read: GroupRead, key: int, min_idle_ms: int, owner: object) -> None:
        self.key = key
        self.min_idle_ms = min_idle_ms
        self.seen = 0
        self._read = read
        self._owner = owner
        self._ticket: Ticket | None = None
        self._begun = False
        self._due_ms: int | None = None  # when time alone brings something, by the store's clock
        # It looked when it joined, and there was nothing: how far commits were published then.
        self._looked: int | None = None
        self._tried: tuple[tuple[int, int], list[int]] | None = None
        # To others only what is new can be handed, by count, and so that it is pending after.
        self._takes_handoff = min_idle_ms == NEW_ONLY and not read.noack and not read.measured

    @property
    def ticket(self) -> Ticket | None:
        """Its ticket; None before it began, and if all were taken."""
        ticket = self._ticket
        return None if ticket is None or ticket.waiter == NONE else ticket

    # -- the steps ------------------------------------------------------------------------------
    def again(self, bare: SavedWaiter, making: Making, most_s: float) -> list[Any] | None:
        """Wait with a record that was kept bare, at most so long, in one call of compiled code: the
        delivery that it was handed. None: it begins, or goes on, at its place in the queue."""
        read, lane = self._read, self._read.engine.lane
        ticket = self._ticket = self._made(bare)
        if lane is None:  # closed meanwhile
            return None
        wait = partial(lane.wait, read.stream, self.key, read.consumer, read.limit, making)
        became, found = ticket.wait(wait, most_s, (bare.consumer, read.limit))
        self._begun = became == BECAME["WAITS"]
        if became == BECAME["NOT_OURS"]:
            self._ticket = None
        return found

    def _made(self, bare: SavedWaiter | None = None) -> Ticket:
        engine, stream = self._read.engine, self._read.stream
        return Ticket(engine, stream, self.key, self.min_idle_ms, self._owner, bare)

    def begin(self) -> list[Delivered] | None:
        """Read what is there, or join the queue."""
        try:
            return None if self._begun else self._begin()
        except GroupReplaced as moved:
            return self._had(moved)

    def _begin(self) -> list[Delivered] | None:
        read = self._read
        ticket = self._ticket = self._ticket or self._made()
        if ticket.offered() and (had := self._handed(ticket)) is not None:
            if had:
                return had
            ticket = self._ticket = self._made()  # it was deleted since
        found: list[Delivered] = []
        left = True
        if not (self._takes_handoff and self._joins(ticket)):
            found, left = read.commit(self._enter)
        if not found:
            ticket.arm()
            read.engine.metrics.count("waits")
            return None
        ticket.served(found)
        if left:
            read.engine.wake.waits.waiters.wake_first(self.key)
        return found

    def _had(self, moved: GroupReplaced) -> list[Delivered]:
        """What was handed to it before it found that the group is another one, or was configured:
        that is its own. Raises ``moved`` if it was nothing."""
        ticket = self.ticket
        if ticket is not None:
            ticket.rest()
            if had := self._handed(ticket):
                return had
        raise moved

    def step(self, alive: Callable[[], object]) -> list[Delivered] | None:
        """Entries that were handed to it, or that it finds if it is its turn. ``alive`` raises when
        waiting is over; entries that were handed over by then are given all the same."""
        try:
            return self._step(alive)
        except GroupReplaced as moved:
            return self._had(moved)

    def _step(self, alive: Callable[[], object]) -> list[Delivered] | None:
        ticket = self._joined()
        try:
            alive()
        except Exception:
            ticket.rest()
            if had := self._handed(ticket):
                return had
            raise
        # Once a slice, also if nobody called: one before it that died leaves it to this one.
        self.seen, called, ahead = ticket.look()
        looked = self.seen, self._read.engine.wake.applied
        if self._looked is not None:  # only the first step may rely on that look
            applied, self._looked = self._looked, None
            if self.min_idle_ms == NEW_ONLY and ticket.uncalled(self.seen):
                self._tried = (self.seen, applied), []
                return None
        if called:
            if (had := self._handed(ticket)) is not None:
                return had
            ahead = ticket.ahead()  # who called it died over that
        if ahead is None:
            self._tried = self._due_ms = None
        elif (looked, ahead) != self._tried or self._due():
            found, left = self._try(ahead)
            self._tried = looked, ahead
            if found:
                ticket.served(found)
                ticket.pass_on(None if left else self.seen)
                return found
        return None

    def out_of_turn(self) -> list[Delivered] | None:
        """Read what the group has, whoever waits for it: for a reader that found no free record."""
        return self._try(())[0] or None

    def give_up(self) -> list[Delivered] | None:
        """It is too late; the place is kept for its owner's next call."""
        ticket = self._joined()
        ticket.rest()
        if (had := self._handed(ticket)) is not None:
            return had
        ticket.keep()
        ticket.pass_on(self.seen)
        return None

    def pause_s(self) -> float | None:
        """In how many seconds time alone brings something; None: it brings nothing."""
        if self._due_ms is None:
            return None
        return max(RETRY_MIN_S, (self._due_ms - self._read.engine.clock.now_ms()) / 1000)

    def leave(self) -> None:
        """Give the place back, and the turn to the next."""
        ticket = self.ticket
        if ticket is not None:
            ticket.close()
            ticket.pass_on()

    def _joined(self) -> Ticket:
        ticket = self.ticket
        assert ticket is not None
        return ticket

    # -- what happens in them -------------------------------------------------------------------
    def _joins(self, ticket: Ticket) -> bool:
        """Join the queue without a commit, if that is all that it would do."""
        read = self._read
        engine = read.engine

        def drained() -> int:
            return probe.drained(engine, read.stream, read.group, self.key, read.consumer)

        if ticket.offered():
            return False
        served_ms = ticket.rejoin(read.limit) if ticket.waiter == NONE else None
        if served_ms is not None and not admin.lately(served_ms, engine.clock.now_ms()):
            return False  # a commit must say that it was seen, and looks by the way
        applied = engine.wake.applied
        consumer = drained()
        if consumer and served_ms is not None:
            ticket.takes(consumer, read.limit)
        elif consumer:
            with read.committer.locked(follow=False):  # for as short as can be
                if engine.wake.applied != applied:
                    applied, consumer = engine.wake.applied, drained()
                if consumer:
                    ticket.join_locked(consumer, read.limit)
        self._looked = applied if consumer else None
        return consumer > 0

    def _enter(self, txn: WriteTxn) -> tuple[list[Delivered], bool]:
        """In its first commit: read, if those before it in the queue can be served by the way; else
        join them. What it read, and whether others may find something after it.
        """
        read, ticket = self._read, self._ticket
        assert ticket is not None
        self._looked = None
        if ticket.handed_locked(txn):
            return [], True  # before it gave up last time, or rather not quite
        record, group = self._group(txn)
        settings = txn.settings.group(group.number)
        wanted_ms = probe.min_idle_ms(settings, read.asked_idle_ms, noack=read.noack)
        if wanted_ms != self.min_idle_ms:
            raise read.moved()  # it was configured since
        who = admin.consumer(txn, group, read.consumer)
        ahead = ticket.others_locked(ahead=True)
        if not ahead or (
            group.last < record.last
            and handoff.hand_off(txn, ticket.waits, record, group, ahead, spare=True)
        ):
            found, left = self._take_locked(txn, takes_new=True)
            if found:
                return found, left
            self._looked = UNKNOWN
        else:
            admin.seen(txn, group, who)
        ticket.join_locked(who.number if self._takes_handoff else NO_ONE, read.limit)
        return [], True

    def _try(self, ahead: Sequence[int]) -> tuple[list[Delivered], bool]:
        """Read if there is something for it that those before it in the queue would not take, whose
        minimum idle times these are. What it read, and whether others may find something after it.
        """
        read = self._read
        available = read.probe(first=not ahead)
        if available is None or available.group != self.key:
            raise read.moved()
        now_ms = read.engine.clock.now_ms()
        self._due_ms = None
        claimable = available.claimable(now_ms)
        if not ahead and (available.fresh or claimable):
            return self._commit(takes_new=True)
        if ahead and claimable:
            if any(available.suits(each, now_ms) for each in ahead):
                return [], True  # theirs, and they pass on what they leave
            return self._commit(takes_new=False)
        self._due_ms = available.claimable_at_ms
        return [], True

    def _commit(self, *, takes_new: bool) -> tuple[list[Delivered], bool]:
        found, left = self._read.commit(lambda txn: self._read_locked(txn, takes_new=takes_new))
        return found, left

    def _read_locked(self, txn: WriteTxn, *, takes_new: bool) -> tuple[list[Delivered], bool]:
        """Its own read, then for those that wait behind it; whether something is left."""
        ticket = self._ticket
        assert ticket is not None
        if ticket.handed_locked(txn):
            return [], True  # by who had LOCK before: it is in its mailbox
        return self._take_locked(txn, takes_new=takes_new)

    def _take_locked(self, txn: WriteTxn, *, takes_new: bool) -> tuple[list[Delivered], bool]:
        read, ticket = self._read, self._ticket
        assert ticket is not None
        found = read.once(txn, takes_new=takes_new)
        ticket.read_locked(served=bool(found))
        if not found:
            return found, True
        left = self._left(txn, found)
        if left and takes_new:
            others = ticket.others_locked()
            record, group = self._group(txn)
            if others and group.last < record.last:
                handoff.hand_off(txn, ticket.waits, record, group, others)
                left = self._left(txn, found)
        return found, left

    def _left(self, txn: WriteTxn, found: list[Delivered]) -> bool:
        read = self._read
        return deliver.left(
            txn,
            read.stream,
            read.group,
            read.asked_idle_ms,
            noack=read.noack,
            limited=read.capped or 0 < read.limit <= len(found),
        )

    def _group(self, txn: WriteTxn) -> tuple[StreamRecord, GroupRecord]:
        found = admin.maybe(txn, self._read.stream, self._read.group)
        if found is None or found[1].number != self.key:
            raise self._read.moved()
        return found

    def _handed(self, ticket: Ticket) -> list[Delivered] | None:
        read = self._read
        mailbox = ticket.handed(read.engine, read.committer)
        if mailbox is None:
            return None
        found = self._collect(mailbox)
        ticket.served(found)
        read.engine.metrics.count("handed")
        return found

    def _collect(self, mailbox: Mailbox) -> list[Delivered]:
        """The entries that were handed to it, without those that were deleted since."""
        read, number = self._read, self.key
        lane = read.engine.lane
        held = None if lane is None else lane.given(read.stream, number, mailbox.first)
        if held is not None:  # they are among the stream's newest
            master, lp = held
            newest = codec().entries(lp, *master, b"", mailbox.first, mailbox.last)
            return self._as_deliveries(newest, mailbox.time_ms)
        names = [read.stream]  # and the one it has now

        def once(batch: Callable[[Snapshot], Batch]) -> Batch:
            def look(view: Snapshot) -> Batch:
                record = view.record(names[-1])
                if record and view.index.groups.number(record.number, read.group) == number:
                    return batch(view)
                group = view.index.groups.group(number)
                renamed = None if group is None else view.index.record(group.stream)
                if renamed is not None and renamed.name not in names:
                    names.append(renamed.name)
                return Batch([], None)  # or made anew: what is there now was given to nobody

            return snapshot.read(read.engine, look)

        found: list[Delivered] = []
        for name in names:  # grows meanwhile
            start = found[-1].id.next() if found else mailbox.first
            rest: tuple[StreamID, StreamID] | None = (start, mailbox.last)
            while rest is not None:
                entries, rest = reading.read_on(once, name, RangeRead(*rest, -1))
                found += self._as_deliveries(entries, mailbox.time_ms)
        return found

    def _as_deliveries(self, entries: Sequence[NodeEntry], time_ms: int) -> list[Delivered]:
        """Entries that were handed to it, as deliveries of this time."""
        self._read.engine.metrics.count("read_entries", len(entries))
        return [Delivered(StreamID(ms, seq), items, 0, 1, time_ms) for _, ms, seq, items in entries]

    def _due(self) -> bool:
        return self._due_ms is not None and self._read.engine.clock.now_ms() >= self._due_ms


def kept_record(read: GroupRead, owner: tuple[object, bytes]) -> tuple[int, SavedWaiter] | None:
    """The group's number, and the waiter record that the owner kept when it was served, if it may
    wait again in compiled code: for new entries only, by their count."""
    waits = read.engine.wake.waits
    key = waits.plain.get((read.stream, read.group), 0)
    if read.engine.lane is None or not key or read.noack or read.capped:
        return None
    bare = None if read.asked_idle_ms is not None else waits.saved.take_bare(key, owner)
    return None if bare is None else (key, bare)


def read_group(
    read: GroupRead,
    deadline: float | None,
    alive: Callable[[], object],
    owner: tuple[object, bytes] | None = None,
    making: tuple[Making, list[Any]] | None = None,
) -> list[Delivered]:
    """What a read of a group gives, in the order of its queue; [] at the deadline.

    Args:
        read: the read.
        deadline: of ``time.monotonic``; None: none.
        alive: raises when waiting is over; asked when it begins to wait, and about every 150 ms.
        owner: keeps its place in the queue over time-outs: somebody, and its consumer; by default
            the thread.
        making: what makes deliveries in compiled code, and where these are put; then it gives [].
    """
    owner = owner or owner_of(read.consumer)
    shown = False
    kept = None if making is None else kept_record(read, owner)
    while kept is not None or not over(deadline):
        session = (
            read.session(owner) if kept is None else WaitSession(read, kept[0], NEW_ONLY, owner)
        )
        if session is None:
            break  # the group is gone: reading says so
        try:
            if kept is not None and making is not None:
                (_, bare), kept = kept, None
                if (made := session.again(bare, making[0], left_of(deadline))) is not None:
                    making[1].extend(made)
                    return []
            found = _in_turn(read, session, deadline, alive)
        except GroupReplaced:
            session.leave()
            continue
        except BaseException:
            session.leave()
            raise
        if found or found is None:
            return found or []
        shown = True  # what it was handed was deleted since
    return read.last(shown=shown)


def _in_turn(
    read: GroupRead, session: WaitSession, deadline: float | None, alive: Callable[[], object]
) -> list[Delivered] | None:
    engine = read.engine
    found = session.begin()
    if found:
        return found
    ticket = session.ticket
    if ticket is None:  # more waiters than records: without order
        return wait_streams(
            engine, [read.stream], session.out_of_turn, deadline, alive, session.pause_s
        )
    while True:
        found = session.step(alive)
        if found is not None:
            return found
        left_s = left_of(deadline)
        if left_s <= 0:
            return session.give_up()
        left_s = engine.sleep_within(left_s)
        pause_s = session.pause_s()
        if pause_s is not None:
            left_s = min(left_s, pause_s)
        if ticket.sleep(session.seen, left_s):
            engine.metrics.count("wakeups")
        else:
            engine.notice_drops()
