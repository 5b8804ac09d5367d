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
from typing import Final
from zlib import crc32

from logstore import mapped
from logstore.clock import monotonic_ms
from logstore.engine.shm import futex
from logstore.engine.shm.waiters import (
    GIVEN,
    MAILBOX_BYTES,
    NOTHING,
    PACE,
    TABLE_BYTES,
    WAITERS_MAX,
    Mailboxes,
    SavedWaiters,
    WaiterRecord,
    Waiters,
)

BUCKETS: Final = 256
EVERY: Final = BUCKETS  # the bucket of all streams together
BUCKET_BYTES: Final = 64
BUCKETS_OFFSET: Final = 4096
WAITERS_OFFSET: Final = BUCKETS_OFFSET + 320 * BUCKET_BYTES
MAILBOXES_OFFSET: Final = WAITERS_OFFSET + TABLE_BYTES
END = MAILBOXES_OFFSET + WAITERS_MAX * MAILBOX_BYTES
_UNTIL: Final = 8  # in a bucket, behind the word
_GROUPS_UNTIL: Final = 16
CALL_MS = (
    10  # at least so long between two calls of those who watch unseen (``shm.readonly_watch``)
)


def bucket_of(name: bytes) -> int:
    """The bucket of a stream, by name: one that does not exist yet can be waited for."""
    return crc32(name) & (BUCKETS - 1)


def every_offset() -> int:
    """Where the word of all streams stands in WAKE."""
    return BUCKETS_OFFSET + EVERY * BUCKET_BYTES


def _poke(longs: mapped.Words, words: mapped.Words, address: int) -> None:
    at = BUCKETS_OFFSET + EVERY * BUCKET_BYTES
    if longs[at + _UNTIL >> 3] >= monotonic_ms():
        words[at >> 2] = (words[at >> 2] + 1) & 0xFFFFFFFF
        futex.wake(address + at)


class Waits:
    """The words, in memory that all processes of a store share."""

    def __init__(self, memory: memoryview, address: int) -> None:
        self._words = mapped.words(memory, mapped.HALF_BYTES)
        self._longs = mapped.words(memory)
        self._address = address
        # Not a method of this: what refers to itself keeps WAKE mapped until it is collected.
        self._poke = partial(_poke, self._longs, self._words, address)
        self.waiters = Waiters(
            memory[WAITERS_OFFSET:MAILBOXES_OFFSET], address + WAITERS_OFFSET, self._poke
        )
        self.saved = SavedWaiters(self.waiters)
        self.mailboxes = Mailboxes(memory[MAILBOXES_OFFSET:END])
        self.pending: set[int] = set()  # buckets counted up, not yet woken; under the mutex
        # Of groups whose readers took new entries only when last looked at: stream, group, number.
        self.plain: dict[tuple[bytes, bytes], int] = {}
        self._called_ms = 0
        self._drained: set[int] = set()  # groups nobody need be woken for; under the mutex
        self.given: list[int] = []  # numbers of those served, not yet woken; under the mutex

    # -- the committer's -----------------------------------------------------------------------
    def queues(self, name: bytes, most: int) -> dict[int, list[WaiterRecord]]:
        """The readers that may wait for groups of this stream, or of one with the same bucket, in
        order: the first ``most`` of each group, by its number.
        """
        if not self.awaited(name):
            return {}
        since_ms = monotonic_ms() - PACE.stale_ms
        return self.waiters.queues({bucket_of(name)}, most=most, since_ms=since_ms)

    def awaited(self, name: bytes) -> bool:
        """Whether somebody may wait for a group of this stream."""
        at = BUCKETS_OFFSET + bucket_of(name) * BUCKET_BYTES + _GROUPS_UNTIL
        until_ms = self._longs[at >> 3]  # 0: nobody ever did
        return until_ms != 0 and until_ms >= monotonic_ms()

    def bump_locked(self, names: Iterable[bytes], drained: set[int]) -> None:
        """Streams were changed by a commit that is published now; to these groups it left nothing
        of what it added.
        """
        pending, words = self.pending, self._words
        if pending:
            drained = set()
        if drained or self._drained:
            self._drained = drained
        for name in names:
            bucket = crc32(name) & (BUCKETS - 1)
            pending.add(bucket)
            at = (BUCKETS_OFFSET + bucket * BUCKET_BYTES) >> 2
            words[at] = (words[at] + 1) & 0xFFFFFFFF
        pending.add(EVERY)
        at = (BUCKETS_OFFSET + EVERY * BUCKET_BYTES) >> 2  # last: who saw it sees the others, too
        words[at] = (words[at] + 1) & 0xFFFFFFFF

    def poke(self) -> None:
        """Wake those who watch all streams, such as the thread that waits for tasks: the word of a
        waiter record on which nobody sleeps was counted up without a commit.

        A call may be missed for a slice: it is not under LOCK, and two that count at once may count
        once.
        """
        self._poke()

    def given_locked(self, waiters: list[int]) -> None:
        """What the waiters of these numbers were offered is theirs: the commit is published.

        Their state first: who sees that it was given may leave, and its record be another's.
        """
        for number in waiters:
            self.waiters.served_locked(number)
            self.mailboxes.set_locked(number, GIVEN)
            self.waiters.count_up(number)
        self.given += waiters

    def withdraw_locked(self, waiters: Iterable[int]) -> None:
        """Nothing of what these were offered happened: it is decided once more, or failed."""
        for number in waiters:
            self.mailboxes.set_locked(number, NOTHING)

    def wake_pending(self) -> None:
        """LOCK is free again: wake those who sleep on words that were counted up."""
        buckets, self.pending = self.pending, set()
        drained = self._drained
        if drained:
            self._drained = set()
        if self.given:
            given, self.given = self.given, []
            for number in given:
                self.waiters.wake(number)
        now = monotonic_ms()
        grouped: set[int] | None = None
        if now - self._called_ms >= CALL_MS:
            self._called_ms = now
            futex.wake(self._address + BUCKETS_OFFSET + EVERY * BUCKET_BYTES)
            buckets.discard(EVERY)
        for bucket in buckets:
            at = BUCKETS_OFFSET + bucket * BUCKET_BYTES
            until, groups_until = (
                self._longs[at + _UNTIL >> 3],
                self._longs[at + _GROUPS_UNTIL >> 3],
            )
            if not until and not groups_until:
                continue
            if until >= now:
                futex.wake(self._address + at)
            if groups_until >= now:
                if grouped is None:
                    grouped = set()
                grouped.add(bucket)
        if grouped is not None:
            self.waiters.wake_buckets(grouped, drained)

    # -- the waiter's --------------------------------------------------------------------------
    def announce(self, bucket: int, *, group: bool = False) -> None:
        """Somebody waits here from now on, for ten slices; load the word next."""
        at = BUCKETS_OFFSET + bucket * BUCKET_BYTES + (_GROUPS_UNTIL if group else _UNTIL)
        self._longs[at >> 3] = monotonic_ms() + PACE.announced_ms

    def stir(self, bucket: int, waiter: int) -> int:
        """The owner of a waiter record waits on; the word of the record. Look after this."""
        now_ms = monotonic_ms()
        at = BUCKETS_OFFSET + bucket * BUCKET_BYTES + _GROUPS_UNTIL
        self._longs[at >> 3] = now_ms + PACE.announced_ms
        return self.waiters.stir(waiter, now_ms)

    def load(self, bucket: int) -> int:
        """The word of a bucket."""
        return self._words[(BUCKETS_OFFSET + bucket * BUCKET_BYTES) >> 2]

    def sleep(self, bucket: int, seen: int, timeout_s: float) -> None:
        """Sleep while the word is ``seen``, at most so long."""
        futex.wait(self._address + BUCKETS_OFFSET + bucket * BUCKET_BYTES, seen, timeout_s)
