"""The entries themselves that a waiter was handed, beside its hand in WAKE, if they are small.

Who wakes finds there what it waited for, and needs no look into the index and the log.

Invariants: written under LOCK with the offer and before it, read by the owner once it was given; in
between nobody writes there but an erasure, which empties all of it: WAKE is a file of the store. It
takes the sizes away before the bytes, and who reads looks at the size again behind the bytes: it
has them whole, or looks them up in the log. What does not fit is left out, and stands in the log as
all else does; what does not look as it was written counts as left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

from logstore.engine.shm.mailbox import Hand
from logstore.ids import StreamID

CARRIED_BYTES = 512  # a slot
ROOM_BYTES = CARRIED_BYTES - 4
ENTRIES_MAX = 16
Item = tuple[StreamID, Any]  # an entry: its ID, and its fields and values by turns


class Carried:
    """What all slots carry, in memory that all processes of a store share."""

    def __init__(self, memory: memoryview, fence: Callable[[], object] = bool) -> None:
        self._memory = memory
        self._words = memory.cast("I")
        self._fence = fence  # between what was stored, or loaded, before and after

    def put_locked(self, slot: int, share: list[Item]) -> None:
        """What is offered; nothing if it is too much."""
        at = slot * CARRIED_BYTES
        data = _packed(share)
        self._memory[at + 4 : at + 4 + len(data)] = data
        self._words[at >> 2] = len(data)

    def erase_locked(self) -> None:
        """Empty all of it. Who was given something there looks it up in the log."""
        size = len(self._memory)
        for at in range(0, size, CARRIED_BYTES):
            self._words[at >> 2] = 0
        self._fence()  # the sizes first: see the invariants
        self._memory[:] = bytes(size)

    def get(self, slot: int, hand: Hand) -> list[Item] | None:
        """What was given; None if it must be looked up."""
        at = slot * CARRIED_BYTES
        size = self._words[at >> 2]
        if not 0 < size <= ROOM_BYTES:
            return None
        data = bytes(self._memory[at + 4 : at + 4 + size])
        self._fence()
        if self._words[at >> 2] != size:
            return None  # erased meanwhile, and the bytes perhaps only in part
        try:
            found = [(StreamID(ms, seq), items) for ms, seq, items in msgpack.unpackb(data)]
            ends = found[0][0], found[-1][0]
        except (ValueError, TypeError, IndexError, msgpack.UnpackException):
            return None
        return found if ends == (hand.first, hand.last) else None


def _packed(share: list[Item]) -> bytes:
    if len(share) > ENTRIES_MAX:
        return b""
    size = 0
    for _, items in share:
        for item in items:
            size += len(item)
    if size > ROOM_BYTES:
        return b""
    data: bytes = msgpack.packb([(id.ms, id.seq, items) for id, items in share])
    return data if len(data) <= ROOM_BYTES else b""
