"""The readers that wait for entries of a group: waiter records in WAKE, and a mailbox for each.

A waiter record belongs to one reader, from its first sleep until it was served. Its ticket is the
reader's place in the queue, and outlives time-outs. Its minimum idle time says what the reader
takes besides new entries: those that nobody acked for so many milliseconds; ``NEW_ONLY`` says that
it takes none of these. A record is found in the table by its number.

Whose turn it can be: the lowest ticket, which takes anything; and a ticket whose minimum idle time
is smaller than all before it, for what these would not take. A waiter behind one with the same or
a smaller time is never the first for anything.

A process that adds, or reads, hands waiters their entries in its own commit, as the peers' server
does for blocked clients. Such a waiter needs no commit of its own: its mailbox says which entries
are its.

Invariants of records: under the writer lock records are taken, also those of dead processes, and
become ``SERVED``; all else in a record is written by its owner alone, but for its futex word:
whoever wakes the owner counts it up (two at once may count once: both published before, so the
waiter sees both). Tickets are times, and never given twice: the owner of a record that was served
needs no lock to wait at the end of the queue once more. A record that is read without the lock may
be half new: that costs a wake-up too many, and what is missed is found by the waiters, who look
once a slice (``Pace``). A waiter that died, or that did not stir for ten slices (a stopped
process), stands in nobody's way.

Invariants of mailboxes: the index says who got what, a mailbox only where to look. An offer is
written under LOCK before its commit, and ``GIVEN`` after that was published; whoever sees an offer
that nobody is just committing takes LOCK and asks the index whether the commit came about
(``waiting.handoff.settle_locked``). What a waiter would take is set by its owner, to nothing before
others can see that it waits; all else is written under LOCK, but for what the owner takes out when
it does not wait. A mailbox has the number of its waiter record.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator

from logstore import mapped
from logstore.clock import monotonic_ms
from logstore.engine.shm import futex, process_identity
from logstore.ids import StreamID
from logstore.tuples import NamedTuple

WAITERS_MAX = 1024
WAITER_BYTES = 64
TABLE_BYTES = 64 + WAITERS_MAX * WAITER_BYTES  # a head says up to which record there may be some
FREE, IDLE, WAITING = 0, 1, 2
SERVED = 3  # in the commit of another: what it got is in its mailbox (``shm.mailbox``)
NEW_ONLY = (1 << 64) - 1  # the minimum idle time of who wants new entries only
_RECORD = struct.Struct("@IIQQQQQIQ")
_WORD, _STATE, _TICKET, _KEY, _PID, _START, _BEAT, _BUCKET, _MIN_IDLE = (
    0,
    4,
    8,
    16,
    24,
    32,
    40,
    48,
    56,
)
SLICE_S = 0.15
KEPT_S = 60.0  # for an owner that did not come back
SWEEP_S = 1.0
BARE_MAX = 8  # records that a process keeps without a place in a queue


class Pace:
    """The length of a slice, and its multiples."""

    __slots__ = ("announced_ms", "fresh_ms", "slice_s", "stale_ms")

    def __init__(self, slice_s: float) -> None:
        self.set(slice_s)

    def set(self, slice_s: float) -> None:
        """Look every ``slice_s`` seconds from now on."""
        self.slice_s = slice_s
        slice_ms = int(slice_s * 1000)
        self.fresh_ms = slice_ms + slice_ms // 2  # who stirred since then is taken for alive
        self.stale_ms = 10 * slice_ms  # who did not is taken for stopped: it loses its turn
        self.announced_ms = 10 * slice_ms  # for how long a waiter announces itself


PACE = Pace(SLICE_S)


class WaiterRecord(NamedTuple):
    """One record as it was read, and its number."""

    word: int
    state: int
    ticket: int
    key: int
    pid: int
    start: int
    beat_ms: int
    bucket: int
    min_idle_ms: int
    number: int

    def alive(self) -> bool:
        """Whether its owner lives and stirs."""
        return self.owner_state() != process_identity.GONE

    def owner_state(self) -> int:
        """As ``process.state_of`` says; gone, too, is one that does not stir."""
        if monotonic_ms() - self.beat_ms > PACE.stale_ms:
            return process_identity.GONE
        return (
            process_identity.RUNS
            if self.pid == os.getpid()
            else process_identity.state_of(self.pid, self.start)
        )


class Waiters:
    """The table, in memory that all processes of a store share."""

    def __init__(self, memory: memoryview, address: int, poke: Callable[[], object] = bool) -> None:
        self._poke = poke  # wake threads that watch many waiters
        self._words = mapped.words(memory, mapped.HALF_BYTES)
        self._longs = mapped.words(memory)
        self._address = address
        self._self = struct.unpack("<QQ", process_identity.packed_self())
        self._mine: dict[int, int] = {}  # numbers of the records of this process, and their tickets

    @property
    def tickets(self) -> dict[int, int]:
        """The tickets of the records of this process, by number: what is not there is another's."""
        return self._mine

    @staticmethod
    def _at(number: int) -> int:
        return 64 + number * WAITER_BYTES

    def _used(self) -> int:
        return min(self._longs[1], WAITERS_MAX)

    def record(self, number: int) -> WaiterRecord:
        """One record."""
        words, longs, at = self._words, self._longs, self._at(number)
        # The state first: what was stored before it is there then.
        begins, middle = words.some(at >> 2, 2), longs.some(at + _TICKET >> 3, 5)
        ends = (words[at + _BUCKET >> 2], longs[at + _MIN_IDLE >> 3], number)
        return WaiterRecord._make((*begins, *middle, *ends))

    def _records(self) -> Iterator[WaiterRecord]:
        return (self.record(number) for number in range(self._used()))

    # -- the owner's ---------------------------------------------------------------------------
    def take_locked(
        self,
        key: int,
        bucket: int,
        min_idle_ms: int = NEW_ONLY,
        prepare: Callable[[int], object] = bool,
    ) -> tuple[int, int] | None:
        """A record at the end of the queue: its number, and its ticket; None if all are taken.

        ``prepare`` is called with the number before others can see that it waits.
        """
        used = self._used()
        while used and self._words[self._at(used - 1) + _STATE >> 2] == FREE:
            used -= 1
        number = self._vacant(used)
        if number >= WAITERS_MAX:
            return None
        longs, at = self._longs, self._at(number)
        self._words[at + _STATE >> 2] = FREE
        longs[at + _PID >> 3], longs[at + _START >> 3] = self._self
        prepare(number)
        ticket = self._wait(number, longs[at + _TICKET >> 3], key, bucket, min_idle_ms)
        longs[1] = max(used, number + 1)
        return number, ticket

    def _vacant(self, used: int) -> int:
        for number in range(used):
            if self._words[self._at(number) + _STATE >> 2] == FREE:
                return number
        # A waiter that stirred lately counts as alive while the table has room.
        since_ms = monotonic_ms() - PACE.stale_ms if used < WAITERS_MAX else NEW_ONLY
        for number in range(used):
            at = self._at(number)
            lately = self._longs[at + _BEAT >> 3] >= since_ms
            if lately and self._longs[at + _PID >> 3] != self._self[0]:
                continue
            if not self._owned(self.record(number)):
                return number
        return used

    def rejoin(self, number: int, ticket: int, key: int, bucket: int, min_idle_ms: int) -> int:
        """Wait at the end of the queue with a record that was kept: its new ticket; 0 if the record
        was given back.
        """
        return (
            self._wait(number, ticket, key, bucket, min_idle_ms)
            if self.holds(number, ticket)
            else 0
        )

    def _wait(self, number: int, before: int, key: int, bucket: int, min_idle_ms: int) -> int:
        longs, at = self._longs, self._at(number)
        # The time in us, and the number: no other ticket is the same, nor was one of this record.
        ticket = max(time.monotonic_ns() // 1000 * WAITERS_MAX + number, before + WAITERS_MAX)
        self._mine[number] = ticket
        longs[at + _TICKET >> 3], longs[at + _KEY >> 3] = ticket, key
        longs[at + _BEAT >> 3], longs[at + _MIN_IDLE >> 3] = monotonic_ms(), min_idle_ms
        self._words[at + _BUCKET >> 2] = bucket
        self._words[at + _STATE >> 2] = WAITING  # last: what is read before is not a waiter
        return ticket

    def holds(self, number: int, ticket: int) -> bool:
        """Whether a record is this process's, and has this ticket still."""
        return self._mine.get(number) == ticket

    def set_state(self, number: int, ticket: int, state: int) -> None:
        """Waiting, or between two calls; nothing if the record was given back, and may be
        another's: who fails gives back once more, and so does the child of a fork.
        """
        if self._mine.get(number) == ticket:
            self._words[self._at(number) + _STATE >> 2] = state

    def served_locked(self, number: int) -> None:
        """Its owner need not wait any more; nothing if it has just left the queue."""
        at = self._at(number) + _STATE >> 2
        if self._words[at] != FREE:
            self._words[at] = SERVED

    def _owned(self, record: WaiterRecord) -> bool:
        """Whether the process of a record lives, however long it did not stir.

        A record that this process gave back may be marked as served: both stored at once.
        """
        if record.pid == self._self[0] and record.start == self._self[1]:
            return record.number in self._mine
        return record.state != FREE and process_identity.lives(record.pid, record.start)

    def set_wanted(self, number: int, bucket: int, min_idle_ms: int) -> None:
        """Set what it waits for, and what it takes besides new entries. Called before it waits."""
        self._words[self._at(number) + _BUCKET >> 2] = bucket
        self._longs[self._at(number) + _MIN_IDLE >> 3] = min_idle_ms

    def free(self, number: int, ticket: int) -> None:
        """Give a record back; nothing if that was done before."""
        self.set_state(number, ticket, FREE)
        if self._mine.get(number) == ticket:
            del self._mine[number]

    def give_back(self) -> None:
        """Give back all records of this process: it closes the store."""
        for number, ticket in list(self._mine.items()):
            self.free(number, ticket)
        process_identity.forget()

    def set_aside(self) -> None:
        """In a child after fork: the records are its parent's."""
        self._mine.clear()

    def stir(self, number: int, now_ms: int) -> int:
        """The owner lives, and is not stopped; its futex word."""
        at = self._at(number)
        self._longs[at + _BEAT >> 3] = now_ms
        return self._words[at >> 2]

    def load(self, number: int) -> int:
        """The futex word."""
        return self._words[self._at(number) >> 2]

    def sleep(self, number: int, seen: int, timeout_s: float) -> bool:
        """Sleep while the futex word is ``seen``, at most so long; whether it is another by now."""
        at = self._at(number)
        futex.wait(self._address + at, seen, timeout_s)
        return self._words[at >> 2] != seen

    # -- the queue -----------------------------------------------------------------------------
    def waiting(self, key: int) -> list[WaiterRecord]:
        """The readers that wait for a group, in the order of the tickets."""
        words, longs = self._words, self._longs
        found: list[WaiterRecord] = []
        for number in range(self._used()):
            at = self._at(number)
            if words[at + _STATE >> 2] == WAITING and longs[at + _KEY >> 3] == key:
                found.append(self.record(number))
        found.sort(key=_by_ticket)
        return found

    def lowest(self) -> dict[int, int]:
        """The lowest ticket that waits, by group."""
        words, longs = self._words, self._longs
        found: dict[int, int] = {}
        for number in range(self._used()):
            at = self._at(number)
            if words[at + _STATE >> 2] == WAITING:
                key, ticket = longs[at + _KEY >> 3], longs[at + _TICKET >> 3]
                if ticket < found.get(key, ticket + 1):
                    found[key] = ticket
        return found

    def waits(self, record: WaiterRecord) -> bool:
        """Whether it is as it was: waiting, with the same ticket."""
        at = self._at(record.number)
        return (
            self._words[at + _STATE >> 2] == WAITING
            and self._longs[at + _TICKET >> 3] == record.ticket
        )

    def fence(self) -> None:
        """Stores before this are seen by all processes before loads behind it are made."""
        futex.fence(self._address)

    def ahead(self, key: int, ticket: int, min_idle_ms: int) -> list[int] | None:
        """The minimum idle times of those that live and wait with lower tickets, all of them larger
        than ``min_idle_ms``; None if one is not: it would take whatever this one could.
        """
        found: list[int] = []
        for record in self.waiting(key):
            if record.ticket >= ticket:
                break
            if record.alive():
                if record.min_idle_ms <= min_idle_ms:
                    return None
                found.append(record.min_idle_ms)
        return found

    def wake_first(self, key: int) -> None:
        """Wake those of a group whose turn it can be."""
        self._wake(self.waiting(key))

    def count_up(self, number: int) -> None:
        """Something happened for the owner of a record, who sees that before it sleeps."""
        at = self._at(number) >> 2
        self._words[at] = (self._words[at] + 1) & 0xFFFFFFFF

    def wake(self, number: int) -> int:
        """Wake the owner of a record; 0 if nobody slept on it."""
        return futex.wake(self._address + self._at(number))

    def queues(
        self,
        buckets: set[int],
        without: Collection[int] = (),
        *,
        most: int = WAITERS_MAX,
        since_ms: int = 0,
    ) -> dict[int, list[WaiterRecord]]:
        """The waiters in order, by the groups whose stream is in one of these buckets: of each
        group the first ``most`` that stirred since then. In the groups of ``without``, readers of
        new entries only are left out."""
        words, longs = self._words, self._longs
        queues: dict[int, list[tuple[int, int]]] = {}
        for number in range(self._used()):
            at = self._at(number)
            if words[at + _STATE >> 2] == WAITING and words[at + _BUCKET >> 2] in buckets:
                key = longs[at + _KEY >> 3]
                if longs[at + _BEAT >> 3] < since_ms:
                    continue
                if key not in without or longs[at + _MIN_IDLE >> 3] != NEW_ONLY:
                    queues.setdefault(key, []).append((longs[at + _TICKET >> 3], number))
        return {
            key: [self.record(at) for _, at in sorted(all)[:most]] for key, all in queues.items()
        }

    def wake_buckets(self, buckets: set[int], drained: set[int]) -> None:
        """Wake those whose turn it can be, in each group whose stream is in one of these buckets.
        Groups in ``drained`` have nothing new left: of these only readers that would claim are
        woken."""
        for queue in self.queues(buckets, drained).values():
            self._wake(queue)

    def _wake(self, queue: list[WaiterRecord]) -> None:
        """Of waiters that stirred lately, wake each whose minimum idle time is smaller than all
        before it; and those before it that may have died or stopped."""
        now, least = monotonic_ms(), NEW_ONLY + 1
        for record in queue:
            if record.min_idle_ms >= least:
                continue
            self.count_up(record.number)
            woken = self.wake(record.number)
            if not woken:
                self._poke()
            # Once more: who stopped waiting before it was woken may not have seen it.
            if not self.waits(record):
                continue
            # Nobody slept there: it is about to look, or was killed.
            again = self.record(record.number)
            if now - again.beat_ms <= PACE.fresh_ms and (woken > 0 or again.alive()):
                least = record.min_idle_ms


def waiting_in(table: bytes) -> dict[int, int]:
    """How many readers wait, by the number of their group, in a copy of the table: those that died
    a moment ago may be among them."""
    found: dict[int, int] = {}
    since_ms = monotonic_ms() - PACE.stale_ms
    used = min(int.from_bytes(table[8:16], sys.byteorder), WAITERS_MAX)
    for record in _RECORD.iter_unpack(table[64 : 64 + used * WAITER_BYTES]):
        _, state, _, key, _, _, beat_ms, *_ = record
        if state == WAITING and beat_ms >= since_ms:
            found[key] = found.get(key, 0) + 1
    return found


def _by_ticket(record: WaiterRecord) -> int:
    return record.ticket


class SavedWaiter(NamedTuple):
    """A record that is kept for its owner's next call, and what was known of the owner."""

    number: int
    ticket: int
    since_s: float  # of ``time.monotonic``
    consumer: int = 0  # of one that was served: its number in the group
    served_ms: int = 0  # and when that was, by the store's clock; 0: not known


def owner_of(consumer: bytes) -> tuple[object, bytes]:
    """Who keeps a place in the queue over time-outs, if nobody else is named: the thread."""
    return threading.get_ident(), consumer


class SavedWaiters:
    """The records that this process keeps for the next calls of their owners, by group and owner:
    with a place in the queue for those that came to a time-out, without one ("bare") for those that
    were served.
    """

    def __init__(self, waiters: Waiters) -> None:
        self._waiters = waiters
        self._kept: dict[tuple[int, object], SavedWaiter] = {}
        self._bare: dict[tuple[int, object], SavedWaiter] = {}  # of those that were served
        self._next_s = 0.0

    def holds(self, key: int, owner: object) -> bool:
        """Whether a place in the queue is kept for it."""
        return (key, owner) in self._kept

    def keep(self, key: int, owner: object, number: int, ticket: int) -> None:
        """Keep the place of one that rests."""
        self._give_back(self._bare.pop((key, owner), None))
        self.sweep()
        before = self._kept.pop((key, owner), None)
        self._kept[key, owner] = SavedWaiter(number, ticket, time.monotonic())
        self._give_back(before)

    def keep_bare(
        self, key: int, owner: object, number: int, ticket: int, consumer: int, served_ms: int
    ) -> None:
        """Keep the record of one that was served; it is given back if many are kept already."""
        self.sweep()
        if len(self._bare) >= BARE_MAX or (key, owner) in self._bare:
            self._waiters.free(number, ticket)
        else:
            self._bare[key, owner] = SavedWaiter(
                number, ticket, time.monotonic(), consumer, served_ms
            )

    def take(self, key: int, owner: object) -> SavedWaiter | None:
        """The place in the queue that its owner kept, who came back."""
        return self._kept.pop((key, owner), None)

    def take_bare(self, key: int, owner: object) -> SavedWaiter | None:
        """The record without a place that its owner kept, who came back."""
        return self._bare.pop((key, owner), None)

    def withdraw(self, key: int, owner: object, number: int, ticket: int) -> bool:
        """Its owner failed after it was kept: whether it has it again, as nobody took it."""
        for kept in (self._kept, self._bare):
            place = kept.get((key, owner))
            if place is not None and place[:2] == (number, ticket):
                return kept.pop((key, owner), None) is not None
        return False

    def forget(self, whose: object) -> None:
        """Give back what is kept for one that does not come back, named by the first part of an
        owner that is a tuple.
        """
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

    def _give_back(self, place: SavedWaiter | None) -> None:
        if place is not None:
            self._waiters.free(place.number, place.ticket)


MAILBOX_BYTES = 64
_BOX_STATE, _BOX_CONSUMER, _BOX_COUNT = 0, 1, 2  # words of a mailbox
NOTHING, OFFERED, GIVEN = 0, 1, 2
NO_ONE = 0  # as a consumer's number: nothing is to be handed to this one, it comes itself


class Mailbox(NamedTuple):
    """One mailbox as it was read: what its owner would take, and what it got."""

    state: int
    consumer: int  # number in the group
    most: int  # entries it takes at once; 0: any number
    first_ms: int
    first_seq: int
    last_ms: int
    last_seq: int
    time_ms: int  # of the delivery

    @property
    def first(self) -> StreamID:
        """The first of its entries."""
        return StreamID(self.first_ms, self.first_seq)

    @property
    def last(self) -> StreamID:
        """The last of its entries; all between them that are pending with it are its, too."""
        return StreamID(self.last_ms, self.last_seq)


class Mailboxes:
    """All of them, in memory that the processes of a store share."""

    def __init__(self, memory: memoryview) -> None:
        self._longs = mapped.words(memory)

    def set_taker(self, number: int, consumer: int, most: int) -> None:
        """From now on this consumer takes so many; with ``NO_ONE`` its owner comes itself."""
        at = number * MAILBOX_BYTES >> 3
        self._longs[at + _BOX_CONSUMER] = NO_ONE
        self._longs[at + _BOX_COUNT] = most
        self._longs[at + _BOX_CONSUMER] = consumer  # last: the count is whole when this is seen

    def takes(self, number: int, before: Mailbox) -> bool:
        """Whether consumer and count are as they were when it was read."""
        longs, at = self._longs, number * MAILBOX_BYTES >> 3
        return (
            longs[at + _BOX_CONSUMER] == before.consumer and longs[at + _BOX_COUNT] == before.most
        )

    def offer_locked(self, number: int, first: StreamID, last: StreamID, time_ms: int) -> None:
        """These entries are its owner's if the commit that is being decided comes about."""
        longs, at = self._longs, number * MAILBOX_BYTES >> 3
        longs[at + 3], longs[at + 4] = first
        longs[at + 5], longs[at + 6] = last
        longs[at + 7] = time_ms
        longs[at + _BOX_STATE] = OFFERED  # last: the rest is whole when this is seen

    def set_locked(self, number: int, state: int) -> None:
        """Set the state of an offer."""
        self._longs[(number * MAILBOX_BYTES >> 3) + _BOX_STATE] = state

    def empty(self, number: int) -> None:
        """The owner takes out what it was given. It does not wait meanwhile."""
        self._longs[(number * MAILBOX_BYTES >> 3) + _BOX_STATE] = NOTHING

    def state(self, number: int) -> int:
        """``NOTHING``, ``OFFERED`` or ``GIVEN``."""
        return self._longs[(number * MAILBOX_BYTES >> 3) + _BOX_STATE]

    def read(self, number: int) -> Mailbox:
        """One mailbox."""
        return Mailbox._make(self._longs.some(number * MAILBOX_BYTES >> 3, MAILBOX_BYTES >> 3))
