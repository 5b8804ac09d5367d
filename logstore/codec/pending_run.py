"""Runs of pending entries: what a consumer group has handed out, a neighbourhood of IDs at a time.

A run is what one row of the index holds: IDs in ascending order, and beside each the consumer, the
delivery time and the delivery count. Stored are a count (u32), the IDs (16 bytes each, big endian),
then consumers (u32), times (u64) and counts (u64), little endian, a column after the other.

Invariants: IDs are given in ascending order, as those of a run stand; what changes is told in a
mapping of consumers to counts. It may not know about groups, rows or transactions.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence

RUN_MAX_ENTRIES = 128
ID_BYTES = 16
EVERYONE = -1  # no consumer has this number

Item = tuple[int, int, int, int]  # ms, seq, delivery time, delivery count
Pending = tuple[int, int, int, int, int]  # ms, seq, consumer, delivery time, delivery count
Due = tuple[int, int, int, int, int]  # delivery time, ms, seq, consumer, delivery count

_COUNT = struct.Struct("<I")
_ID = struct.Struct(">QQ")


def _column(kind: str, data: bytes) -> array[int]:
    made = array(kind)
    made.frombytes(data)
    if sys.byteorder == "big":
        made.byteswap()
    return made


def _bytes(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def end_below(ids: bytes, at: int, upper: bytes) -> int:
    """The byte, from ``at`` on, where the first of the ascending IDs stands that is not below."""
    low, high = at // ID_BYTES, len(ids) // ID_BYTES
    while low < high:
        middle = (low + high) >> 1
        if ids[middle * ID_BYTES : middle * ID_BYTES + ID_BYTES] < upper:
            low = middle + 1
        else:
            high = middle
    return low * ID_BYTES


class PendingRun:
    """Pending entries with neighbouring IDs, in columns.

    ``stored`` is its owner's: the row that it was read from or written to.
    """

    __slots__ = ("_consumers", "_counts", "_ids", "_times", "stored")

    def __init__(self) -> None:
        self._ids = bytearray()
        self._consumers = array("I")
        self._times = array("Q")  # delivery, unix ms; of nobody's entry: the place in the line
        self._counts = array("Q")
        self.stored: tuple[bytes, int] | None = None

    def __len__(self) -> int:
        return len(self._times)

    @property
    def first(self) -> bytes:
        """The first ID, packed; empty if there is none."""
        return bytes(self._ids[:ID_BYTES])

    @property
    def last(self) -> bytes:
        """The last ID, packed; empty if there is none."""
        return bytes(self._ids[-ID_BYTES:])

    @property
    def oldest_ms(self) -> int:
        """The oldest delivery time; ValueError for a run without entries."""
        return min(self._times)

    def find(self, id: bytes) -> tuple[int, int, int] | None:
        """Consumer, delivery time and count of an entry; None if it is not there."""
        place = self._place(id)
        if not self._is(place, id):
            return None
        return self._consumers[place], self._times[place], self._counts[place]

    def _place(self, id: bytes) -> int:
        """Where an ID stands or would stand."""
        ids = self._ids
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) >> 1
            if ids[middle * ID_BYTES : middle * ID_BYTES + ID_BYTES] < id:
                low = middle + 1
            else:
                high = middle
        return low

    def _is(self, place: int, id: bytes) -> bool:
        return self._ids.startswith(id, place * ID_BYTES) and len(id) == ID_BYTES

    def present(self, ids: bytes, at: int, upper: bytes) -> tuple[bytes, int]:
        """Those of the IDs from byte ``at`` on that are here, and the byte where the first ID
        stands that is not below ``upper``."""
        found: list[bytes] = []
        end = end_below(ids, at, upper)
        while at < end:
            id = ids[at : at + ID_BYTES]
            place = self._place(id)
            count = self._same(place, ids, at, end) if self._is(place, id) else 0
            found.append(ids[at : at + count * ID_BYTES])
            at += max(1, count) * ID_BYTES
        return b"".join(found), at

    def _same(self, place: int, ids: bytes, at: int, end: int) -> int:
        """How many of the IDs from byte ``at`` up to ``end`` stand here side by side, as far as one
        look tells: all that the run could hold of them, or 1 if not."""
        size = min(end - at, (len(self) - place) * ID_BYTES)
        begin = place * ID_BYTES
        return size // ID_BYTES if self._ids.startswith(ids[at : at + size], begin) else 1

    def remove(self, ids: bytes, at: int, upper: bytes, changes: dict[int, int]) -> int:
        """Take away those of the IDs from byte ``at`` on that are here, up to the first that is not
        below ``upper``; the byte where that one stands."""
        end = end_below(ids, at, upper)
        while at < end:
            id = ids[at : at + ID_BYTES]
            place = self._place(id)
            if not self._is(place, id):
                at += ID_BYTES
                continue
            count = self._same(place, ids, at, end)
            for consumer in self._consumers[place : place + count]:
                changes[consumer] = changes.get(consumer, 0) - 1
            del self._ids[place * ID_BYTES : (place + count) * ID_BYTES]
            del self._consumers[place : place + count]
            del self._times[place : place + count]
            del self._counts[place : place + count]
            at += count * ID_BYTES
        return at

    def put(
        self, items: Sequence[Item], at: int, consumer: int, upper: bytes, changes: dict[int, int]
    ) -> int:
        """Set the items from the ``at``-th on as pending with a consumer; the place of the first
        that is not below ``upper``, or that is new and finds no room."""
        while at < len(items):
            ms, seq, time_ms, count = items[at]
            id = _ID.pack(ms, seq)
            if id >= upper:
                break
            place = self._place(id)
            if self._is(place, id):
                before = self._consumers[place]
                changes[before] = changes.get(before, 0) - 1
                self._consumers[place] = consumer
                self._times[place], self._counts[place] = time_ms, count
            elif len(self) >= RUN_MAX_ENTRIES:
                break
            else:
                self._ids[place * ID_BYTES : place * ID_BYTES] = id
                self._consumers.insert(place, consumer)
                self._times.insert(place, time_ms)
                self._counts.insert(place, count)
            changes[consumer] = changes.get(consumer, 0) + 1
            at += 1
        return at

    def extend(self, ids: bytes, consumer: int, time_ms: int, count: int) -> None:
        """Put entries of one delivery behind the last."""
        n = len(ids) // ID_BYTES
        self._ids += ids
        self._consumers.extend([consumer] * n)
        self._times.extend([time_ms] * n)
        self._counts.extend([count] * n)

    def split(self) -> PendingRun:
        """Cut the upper half off; it."""
        half = len(self) // 2
        upper = PendingRun()
        upper._ids = self._ids[half * ID_BYTES :]
        upper._consumers, self._consumers = self._consumers[half:], self._consumers[:half]
        upper._times, self._times = self._times[half:], self._times[:half]
        upper._counts, self._counts = self._counts[half:], self._counts[:half]
        del self._ids[half * ID_BYTES :]
        return upper

    def between(self, low: bytes, high: bytes, consumer: int = EVERYONE) -> list[Pending]:
        """Entries with IDs of the closed interval; of one consumer, or of all."""
        found: list[Pending] = []
        for place in range(self._place(low), len(self)):
            at = place * ID_BYTES
            if self._ids[at : at + ID_BYTES] > high:
                break
            owner = self._consumers[place]
            if consumer in (EVERYONE, owner):
                ms, seq = _ID.unpack_from(self._ids, at)
                found.append((ms, seq, owner, self._times[place], self._counts[place]))
        return found

    def due(self, until_ms: int) -> list[Due]:
        """Entries whose delivery time is ``until_ms`` or before, in the order of IDs."""
        return [
            (
                time_ms,
                *_ID.unpack_from(self._ids, place * ID_BYTES),
                self._consumers[place],
                self._counts[place],
            )
            for place, time_ms in enumerate(self._times)
            if time_ms <= until_ms
        ]

    def pack(self) -> bytes:
        """The stored value."""
        return b"".join(
            (
                _COUNT.pack(len(self)),
                self._ids,
                _bytes(self._consumers),
                _bytes(self._times),
                _bytes(self._counts),
            )
        )

    @classmethod
    def unpack(cls, value: bytes) -> PendingRun:
        """The run of a stored value; ValueError if its length does not fit."""
        n = _COUNT.unpack_from(value)[0] if len(value) >= _COUNT.size else -1
        if len(value) != _COUNT.size + n * 36:
            raise ValueError("a run of pending entries has a length that does not fit")
        made = cls()
        at = _COUNT.size + n * ID_BYTES
        made._ids = bytearray(value[_COUNT.size : at])
        made._consumers = _column("I", value[at : at + 4 * n])
        made._times = _column("Q", value[at + 4 * n : at + 12 * n])
        made._counts = _column("Q", value[at + 12 * n :])
        return made
