"""Who waits for entries of a group, in which order: a table of slots in WAKE.

A slot belongs to one waiter, from its first sleep until it was served: the ticket in it is its
place in the queue, and outlives time-outs. Its wish says what it would take besides new entries:
those that nobody acked for so many milliseconds, or for shorter; ``PLAIN`` is none of them.

Whose turn it can be: that of the lowest ticket, which takes anything; and that of a ticket whose
wish is smaller than all before it, for what these would not take. A waiter that has one with the
same or a smaller wish before it is never first in line for anything.

Invariants: slots are taken, those of dead processes taken back, and waiters ``SERVED`` under the
writer lock; all else in a slot is written by its owner alone, but for its futex word, which whoever
wakes it counts up (two at once may count once: both published before, so the waiter sees both).
Tickets are times, and never given twice: the owner of a slot that was served needs no lock to wait
at the end of the queue once more. A slot read without the lock may be half new: that costs a
wake-up too many, and what is missed is found by the waiters, who look once a slice (``pace``). A
waiter that died, or that did not stir for ten slices (a stopped process), stands in nobody's way.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Collection, Iterator

from logstore.clock import monotonic_ms
from logstore.engine.shm import futex, process
from logstore.engine.shm.pace import PACE
from logstore.engine.shm.waiter_record import Row

SLOTS = 1024
SLOT_BYTES = 64
TABLE_BYTES = 64 + SLOTS * SLOT_BYTES  # a head that says how many slots are in use
FREE, IDLE, WAITING = 0, 1, 2
SERVED = 3  # in the commit of another: what it got is in its hand (``shm.mailbox``)
PLAIN = (1 << 64) - 1  # the wish of who wants new entries only
# Native: the fields stand at their own size, each is stored and loaded whole.
_SLOT = struct.Struct("@IIQQQQQIQ")
_WORD, _STATE, _TICKET, _KEY, _PID, _START, _BEAT, _LINE, _WISH = 0, 4, 8, 16, 24, 32, 40, 48, 56


class Slots:
    """The table, in memory that all processes of a store share."""

    def __init__(self, memory: memoryview, address: int, poke: Callable[[], object] = bool) -> None:
        self._memory = memory
        self._poke = poke  # wake threads that watch many slots
        self._words = memory.cast("I")
        self._longs = memory.cast("Q")
        self._address = address
        self._self = struct.unpack("<QQ", process.packed_self())
        self._mine: dict[int, int] = {}  # slots of this process, and their tickets

    @staticmethod
    def _at(slot: int) -> int:
        return 64 + slot * SLOT_BYTES

    def _used(self) -> int:
        return min(self._longs[1], SLOTS)

    def row(self, slot: int) -> Row:
        """One slot."""
        return Row._make((*_SLOT.unpack_from(self._memory, self._at(slot)), slot))

    def _rows(self) -> Iterator[Row]:
        return (self.row(slot) for slot in range(self._used()))

    # -- the owner's ---------------------------------------------------------------------------
    def take_locked(
        self, key: int, line: int, wish: int = PLAIN, prepare: Callable[[int], object] = bool
    ) -> tuple[int, int] | None:
        """A slot at the end of the queue, and its ticket; None if all are taken.

        ``prepare`` is given the slot before it is seen to wait.
        """
        used = self._used()
        while used and self._words[self._at(used - 1) + _STATE >> 2] == FREE:
            used -= 1
        slot = self._vacant(used)
        if slot >= SLOTS:
            return None
        longs, at = self._longs, self._at(slot)
        self._words[at + _STATE >> 2] = FREE
        longs[at + _PID >> 3], longs[at + _START >> 3] = self._self
        prepare(slot)
        ticket = self._wait(slot, longs[at + _TICKET >> 3], key, line, wish)
        longs[1] = max(used, slot + 1)
        return slot, ticket

    def _vacant(self, used: int) -> int:
        for slot in range(used):
            if self._words[self._at(slot) + _STATE >> 2] == FREE:
                return slot
        # Who stirred lately lives, as long as there is room enough to believe it.
        since_ms = monotonic_ms() - PACE.stale_ms if used < SLOTS else PLAIN
        for slot in range(used):
            at = self._at(slot)
            lately = self._longs[at + _BEAT >> 3] >= since_ms
            if lately and self._longs[at + _PID >> 3] != self._self[0]:
                continue
            if not self._owned(self.row(slot)):
                return slot
        return used

    def rejoin(self, slot: int, ticket: int, key: int, line: int, wish: int) -> int:
        """Wait at its end with a slot that was kept: its new ticket; 0 if it was given back."""
        return self._wait(slot, ticket, key, line, wish) if self.holds(slot, ticket) else 0

    def _wait(self, slot: int, before: int, key: int, line: int, wish: int) -> int:
        longs, at = self._longs, self._at(slot)
        # The time in us, and the slot: no other ticket is the same, nor was one of this slot.
        ticket = max(time.monotonic_ns() // 1000 * SLOTS + slot, before + SLOTS)
        self._mine[slot] = ticket
        longs[at + _TICKET >> 3], longs[at + _KEY >> 3] = ticket, key
        longs[at + _BEAT >> 3], longs[at + _WISH >> 3] = monotonic_ms(), wish
        self._words[at + _LINE >> 2] = line
        self._words[at + _STATE >> 2] = WAITING  # last: what is read before is not a waiter
        return ticket

    def holds(self, slot: int, ticket: int) -> bool:
        """Whether a slot is this process's, and has this ticket still."""
        return self._mine.get(slot) == ticket

    def set_state(self, slot: int, ticket: int, state: int) -> None:
        """Waiting, or between two calls; nothing if the slot was given back, and may be another's:
        who fails gives back once more, and so does the child of a fork.
        """
        if self._mine.get(slot) == ticket:
            self._words[self._at(slot) + _STATE >> 2] = state

    def served_locked(self, slot: int) -> None:
        """Its owner need not wait any more; nothing if it has just left the queue."""
        at = self._at(slot) + _STATE >> 2
        if self._words[at] != FREE:
            self._words[at] = SERVED

    def _owned(self, row: Row) -> bool:
        """Whether the process of a slot lives, however long it did not stir.

        One of this process that it gave back may stand there as served: both stored at once.
        """
        if row.pid == self._self[0] and row.start == self._self[1]:
            return row.slot in self._mine
        return row.state != FREE and process.lives(row.pid, row.start)

    def set_wish(self, slot: int, line: int, wish: int) -> None:
        """For what it waits, and what it would take besides new entries; before it waits."""
        self._words[self._at(slot) + _LINE >> 2] = line
        self._longs[self._at(slot) + _WISH >> 3] = wish

    def free(self, slot: int, ticket: int) -> None:
        """Give a slot back; nothing if that was done before."""
        self.set_state(slot, ticket, FREE)
        if self._mine.get(slot) == ticket:
            del self._mine[slot]

    def give_back(self) -> None:
        """Give back all slots of this process: it closes the store."""
        for slot, ticket in list(self._mine.items()):
            self.free(slot, ticket)
        process.forget()

    def set_aside(self) -> None:
        """In a child after fork: the slots are its parent's."""
        self._mine.clear()

    def beat(self, slot: int) -> None:
        """The owner stirs."""
        self._longs[self._at(slot) + _BEAT >> 3] = monotonic_ms()

    def load(self, slot: int) -> int:
        """The futex word."""
        return self._words[self._at(slot) >> 2]

    def sleep(self, slot: int, seen: int, timeout_s: float) -> None:
        """Sleep while the futex word is ``seen``, at most so long."""
        futex.wait(self._address + self._at(slot), seen, timeout_s)

    # -- the queue -----------------------------------------------------------------------------
    def waiting(self, key: int) -> list[Row]:
        """Who waits for a group, in the order of the tickets."""
        words, longs = self._words, self._longs
        found: list[Row] = []
        for slot in range(self._used()):
            at = self._at(slot)
            if words[at + _STATE >> 2] == WAITING and longs[at + _KEY >> 3] == key:
                found.append(self.row(slot))
        found.sort(key=_by_ticket)
        return found

    def lowest(self) -> dict[int, int]:
        """The lowest ticket that waits, by group."""
        words, longs = self._words, self._longs
        found: dict[int, int] = {}
        for slot in range(self._used()):
            at = self._at(slot)
            if words[at + _STATE >> 2] == WAITING:
                key, ticket = longs[at + _KEY >> 3], longs[at + _TICKET >> 3]
                if ticket < found.get(key, ticket + 1):
                    found[key] = ticket
        return found

    def waits(self, row: Row) -> bool:
        """Whether it is as it was: waiting, with the same ticket."""
        at = self._at(row.slot)
        return (
            self._words[at + _STATE >> 2] == WAITING
            and self._longs[at + _TICKET >> 3] == row.ticket
        )

    def fence(self) -> None:
        """Order what was stored before and what is loaded after, for all processes."""
        futex.fence(self._address)

    def ahead(self, key: int, ticket: int, wish: int) -> list[int] | None:
        """The wishes of those that live and wait with lower tickets, all of them larger than
        ``wish``; None if one is not: it would take whatever this one could.
        """
        found: list[int] = []
        for row in self.waiting(key):
            if row.ticket >= ticket:
                break
            if row.alive():
                if row.wish <= wish:
                    return None
                found.append(row.wish)
        return found

    def wake_first(self, key: int) -> None:
        """Wake those of a group whose turn it can be."""
        self._wake(self.waiting(key))

    def count_up(self, slot: int) -> None:
        """Something happened for its owner, who sees it before it sleeps."""
        at = self._at(slot) >> 2
        self._words[at] = (self._words[at] + 1) & 0xFFFFFFFF

    def wake(self, slot: int) -> int:
        """Wake its owner; 0 if nobody slept there."""
        return futex.wake(self._address + self._at(slot))

    def queues(
        self, lines: set[int], without: Collection[int] = (), most: int = SLOTS
    ) -> dict[int, list[Row]]:
        """Who waits, in order, by the groups of which the stream has one of these words, the first
        ``most`` of each; but for those who want new entries only, in the groups ``without``.
        """
        words, longs = self._words, self._longs
        since_ms = monotonic_ms() - PACE.stale_ms if most < SLOTS else 0  # those that may live
        queues: dict[int, list[tuple[int, int]]] = {}
        for slot in range(self._used()):
            at = self._at(slot)
            if words[at + _STATE >> 2] == WAITING and words[at + _LINE >> 2] in lines:
                key = longs[at + _KEY >> 3]
                if longs[at + _BEAT >> 3] < since_ms:
                    continue
                if key not in without or longs[at + _WISH >> 3] != PLAIN:
                    queues.setdefault(key, []).append((longs[at + _TICKET >> 3], slot))
        return {key: [self.row(at) for _, at in sorted(all)[:most]] for key, all in queues.items()}

    def wake_lines(self, lines: set[int], sated: set[int]) -> None:
        """Wake those whose turn it can be in each group whose stream has one of these words; of
        ``sated`` ones who would claim what the commit may have given back.
        """
        for queue in self.queues(lines, sated).values():
            self._wake(queue)

    def _wake(self, queue: list[Row]) -> None:
        """Wake each whose wish is smaller than all before it, of those that stirred lately and
        still wait; and those of doubt before it.
        """
        now, least = monotonic_ms(), PLAIN + 1
        for row in queue:
            if row.wish >= least:
                continue
            self.count_up(row.slot)
            woken = self.wake(row.slot)
            if not woken:
                self._poke()
            # Once more: who stopped waiting before it was woken may not have seen it.
            if not self.waits(row):
                continue
            # Nobody slept there: it is about to look, or was killed.
            again = self.row(row.slot)
            if now - again.beat_ms <= PACE.fresh_ms and (woken > 0 or again.alive()):
                least = row.wish


def _by_ticket(row: Row) -> int:
    return row.ticket
