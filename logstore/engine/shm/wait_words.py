"""What readers wait on, in WAKE: a word for each of 256 hashed stream names, and one for them all.

A commit counts up the words of the streams it changed, and once LOCK is free wakes who sleeps on
them. So that a commit costs nothing where nobody waits, a waiter says beside the word until when
somebody may be waiting there, and renews it while it waits: nothing is left behind by the killed.

Invariants: words are counted up under LOCK, behind the publishing of the commit; sleepers are woken
after the release of LOCK, which is also the fence between counting and looking for waiters; a
waiter announces itself, then loads the word, then looks for entries, then sleeps on what it loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from zlib import crc32

from logstore.clock import monotonic_ms
from logstore.engine.shm import futex
from logstore.engine.shm.carried import CARRIED_BYTES, Carried
from logstore.engine.shm.mailbox import GIVEN, HAND_BYTES, NOTHING, Hands
from logstore.engine.shm.pace import PACE
from logstore.engine.shm.saved_waiter import Places
from logstore.engine.shm.waiters import SLOTS, TABLE_BYTES, Slots

LINES = 256
EVERY = LINES  # the line of all streams together
LINE_BYTES = 64
LINES_OFFSET = 4096
SLOTS_OFFSET = LINES_OFFSET + 320 * LINE_BYTES
HANDS_OFFSET = SLOTS_OFFSET + TABLE_BYTES
CARRIED_OFFSET = HANDS_OFFSET + SLOTS * HAND_BYTES
END = CARRIED_OFFSET + SLOTS * CARRIED_BYTES
_UNTIL, _GROUPS_UNTIL = 8, 16  # in a line, behind the word
CALL_MS = (
    10  # at least so long between two calls of those who watch unseen (``shm.readonly_watch``)
)


def line_of(name: bytes) -> int:
    """The line of a stream, by name: one that does not exist yet can be waited for."""
    return crc32(name) & (LINES - 1)


def every_offset() -> int:
    """Where the word of all streams stands in WAKE."""
    return LINES_OFFSET + EVERY * LINE_BYTES


def _poke(longs: memoryview[int], words: memoryview[int], address: int) -> None:
    at = LINES_OFFSET + EVERY * LINE_BYTES
    if longs[at + _UNTIL >> 3] >= monotonic_ms():
        words[at >> 2] = (words[at >> 2] + 1) & 0xFFFFFFFF
        futex.wake(address + at)


class Waits:
    """The words, in memory that all processes of a store share."""

    def __init__(self, memory: memoryview, address: int) -> None:
        self._words = memory.cast("I")
        self._longs = memory.cast("Q")
        self._address = address
        # Not a method of this: what refers to itself keeps WAKE mapped until it is collected.
        self._poke = partial(_poke, self._longs, self._words, address)
        self.slots = Slots(memory[SLOTS_OFFSET:HANDS_OFFSET], address + SLOTS_OFFSET, self._poke)
        self.places = Places(self.slots)
        self.hands = Hands(memory[HANDS_OFFSET:CARRIED_OFFSET])
        self.carried = Carried(memory[CARRIED_OFFSET:END], self.slots.fence)
        self.pending: set[int] = set()  # lines counted up, not yet woken; under the mutex
        # Of groups whose readers took new entries only when last looked at: stream, group, number.
        self.plain: dict[tuple[bytes, bytes], int] = {}
        self._called_ms = 0
        self._sated: set[int] = set()  # groups nobody need be woken for; under the mutex
        self.given: list[int] = []  # slots that were served, not yet woken; under the mutex

    # -- the committer's -----------------------------------------------------------------------
    def awaited(self, name: bytes) -> bool:
        """Whether somebody may wait for a group of this stream."""
        at = LINES_OFFSET + line_of(name) * LINE_BYTES + _GROUPS_UNTIL
        return self._longs[at >> 3] >= monotonic_ms()

    def bump_locked(self, names: Iterable[bytes], sated: set[int]) -> None:
        """Streams were changed by a commit that is published now; to these groups it left nothing
        of what it added.
        """
        pending, words = self.pending, self._words
        self._sated = set() if pending else sated
        for name in names:
            line = crc32(name) & (LINES - 1)
            pending.add(line)
            at = (LINES_OFFSET + line * LINE_BYTES) >> 2
            words[at] = (words[at] + 1) & 0xFFFFFFFF
        pending.add(EVERY)
        at = (LINES_OFFSET + EVERY * LINE_BYTES) >> 2  # last: who saw it sees the others, too
        words[at] = (words[at] + 1) & 0xFFFFFFFF

    def poke(self) -> None:
        """Wake those who watch all streams, such as the thread that waits for tasks: a slot on
        which nobody sleeps was counted up, without a commit. May be missed for a slice: this is
        not under LOCK, and two that count at once may count once.
        """
        self._poke()

    def given_locked(self, slots: list[int]) -> None:
        """What these were offered is theirs: the commit is published.

        Their state first: who sees that it was given may leave, and its slot be another's.
        """
        for slot in slots:
            self.slots.served_locked(slot)
            self.hands.set_locked(slot, GIVEN)
            self.slots.count_up(slot)
        self.given += slots

    def withdraw_locked(self, slots: Iterable[int]) -> None:
        """What these were offered is decided once more: nothing of it happened."""
        for slot in slots:
            self.hands.set_locked(slot, NOTHING)

    def wake_pending(self) -> None:
        """Wake who waits for what was counted up; LOCK is free again."""
        lines, self.pending = self.pending, set()
        given, self.given = self.given, []
        sated, self._sated = self._sated, set()
        for slot in given:
            self.slots.wake(slot)
        now = monotonic_ms()
        grouped: set[int] = set()
        if now - self._called_ms >= CALL_MS:
            self._called_ms = now
            futex.wake(self._address + LINES_OFFSET + EVERY * LINE_BYTES)
            lines.discard(EVERY)
        for line in lines:
            at = LINES_OFFSET + line * LINE_BYTES
            until, groups_until = (
                self._longs[at + _UNTIL >> 3],
                self._longs[at + _GROUPS_UNTIL >> 3],
            )
            if not until and not groups_until:
                continue
            if until >= now:
                futex.wake(self._address + at)
            if groups_until >= now:
                grouped.add(line)
        if grouped:
            self.slots.wake_lines(grouped, sated)

    # -- the waiter's --------------------------------------------------------------------------
    def announce(self, line: int, *, group: bool = False) -> None:
        """Somebody waits here from now on, for ten slices; load the word next."""
        at = LINES_OFFSET + line * LINE_BYTES + (_GROUPS_UNTIL if group else _UNTIL)
        self._longs[at >> 3] = monotonic_ms() + PACE.announced_ms

    def load(self, line: int) -> int:
        """The word of a line."""
        return self._words[(LINES_OFFSET + line * LINE_BYTES) >> 2]

    def sleep(self, line: int, seen: int, timeout_s: float) -> None:
        """Sleep while the word is ``seen``, at most so long."""
        futex.wait(self._address + LINES_OFFSET + line * LINE_BYTES, seen, timeout_s)
