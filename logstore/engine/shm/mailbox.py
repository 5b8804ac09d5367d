"""What waiters of a group were handed while they slept: a mailbox for each waiter record, in WAKE.

A process that adds, or reads, gives waiters their entries in its own commit, as the peers' server
does for blocked clients: they need no commit of their own, and find here which entries are theirs.

Invariants: the index says who got what, this only where to look. An offer is written under LOCK
before its commit, and ``GIVEN`` after that was published; whoever sees an offer that nobody is just
committing takes LOCK and asks the index whether the commit came about
(``waiting.handoff.settle_locked``). What a waiter would take is set by its owner, to nothing before
others can see that it waits; all else is written under LOCK, but for what the owner takes out when
it does not wait. A mailbox has the number of its waiter record.
"""

from __future__ import annotations

import struct

from logstore.ids import StreamID
from logstore.tuples import NamedTuple

MAILBOX_BYTES = 64
_MAILBOX = struct.Struct("@8Q")
_STATE, _CONSUMER, _COUNT = 0, 1, 2  # words of a mailbox
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
        self._memory = memory
        self._longs = memory.cast("Q")

    def set_taker(self, number: int, consumer: int, most: int) -> None:
        """From now on this consumer takes so many; with ``NO_ONE`` its owner comes itself."""
        at = number * MAILBOX_BYTES >> 3
        self._longs[at + _CONSUMER] = NO_ONE
        self._longs[at + _COUNT] = most
        self._longs[at + _CONSUMER] = consumer  # last: the count is whole when this is seen

    def takes(self, number: int, before: Mailbox) -> bool:
        """Whether consumer and count are as they were when it was read."""
        longs, at = self._longs, number * MAILBOX_BYTES >> 3
        return longs[at + _CONSUMER] == before.consumer and longs[at + _COUNT] == before.most

    def offer_locked(self, number: int, first: StreamID, last: StreamID, time_ms: int) -> None:
        """These entries are its owner's if the commit that is being decided comes about."""
        longs, at = self._longs, number * MAILBOX_BYTES >> 3
        longs[at + 3], longs[at + 4] = first
        longs[at + 5], longs[at + 6] = last
        longs[at + 7] = time_ms
        longs[at + _STATE] = OFFERED  # last: the rest is whole when this is seen

    def set_locked(self, number: int, state: int) -> None:
        """What became of an offer."""
        self._longs[(number * MAILBOX_BYTES >> 3) + _STATE] = state

    def empty(self, number: int) -> None:
        """The owner, who does not wait, took what it was given."""
        self._longs[(number * MAILBOX_BYTES >> 3) + _STATE] = NOTHING

    def state(self, number: int) -> int:
        """``NOTHING``, ``OFFERED`` or ``GIVEN``."""
        return self._longs[(number * MAILBOX_BYTES >> 3) + _STATE]

    def read(self, number: int) -> Mailbox:
        """One mailbox."""
        return Mailbox._make(_MAILBOX.unpack_from(self._memory, number * MAILBOX_BYTES))
