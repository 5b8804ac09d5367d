"""Runs of pending entries: what a consumer group has handed out, a neighbourhood of IDs at a time.

A run is what one row of the index holds: IDs in ascending order, and beside each the consumer, the
delivery time and the delivery count. Stored are a count (u32), the IDs (16 bytes each, big endian),
then consumers (u32), times (u64) and counts (u64), little endian, a column after the other.

Invariants: IDs are given in ascending order, as those of a run stand; what changes is told in a
mapping of consumers to counts. It may not know about groups, rows or transactions.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence

RUN_MAX_ENTRIES = 128
ID_BYTES = 16
EVERYONE = -1  # no consumer has this number

Item = tuple[int, int, int, int]  # ms, seq, delivery time, delivery count
Pending = tuple[int, int, int, int, int]  # ms, seq, consumer, delivery time, delivery count
Due = tuple[int, int, int, int, int]  # delivery time, ms, seq, consumer, delivery count

_COUNT = struct.Struct("<I")
_ID = struct.Struct(">QQ")


def end_below(ids: bytes, at: int, upper: bytes) -> int:
    """The byte, from ``at`` on, where the first of the ascending IDs stands that is not below."""
    places = range(at, len(ids), ID_BYTES)
    return at + ID_BYTES * bisect_left(
        places, upper, key=lambda place: ids[place : place + ID_BYTES]
    )


class PendingRun:
    """Pending entries with neighbouring IDs, in columns.

    ``stored`` is its owner's: the row that it was read from or written to.
    """

    __slots__ = ("_columns", "_ids", "stored")

    def __init__(self) -> None:
        self._ids: list[bytes] = []
        # Consumers; times of delivery, unix ms, of nobody's entries: the place in the line; counts.
        self._columns = array("I"), array("Q"), array("Q")
        self.stored: tuple[bytes, int] | None = None

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def first(self) -> bytes:
        """The first ID, packed; empty if there is none."""
        return self._ids[0] if self._ids else b""

    @property
    def last(self) -> bytes:
        """The last ID, packed; empty if there is none."""
        return self._ids[-1] if self._ids else b""

    @property
    def oldest_ms(self) -> int:
        """The oldest delivery time; ValueError for a run without entries."""
        return min(self._columns[1])

    def _place(self, id: bytes) -> int | None:
        """Where an ID stands; None if it does not."""
        place = bisect_left(self._ids, id)
        return place if self._ids[place : place + 1] == [id] else None

    def find(self, id: bytes) -> tuple[int, int, int] | None:
        """Consumer, delivery time and count of an entry; None if it is not there."""
        place = self._place(id)
        if place is None:
            return None
        consumers, times, counts = self._columns
        return consumers[place], times[place], counts[place]

    def present(self, ids: bytes, at: int, upper: bytes) -> tuple[bytes, int]:
        """Those of the IDs from byte ``at`` on that are here, and the byte where the first ID
        stands that is not below ``upper``."""
        end = end_below(ids, at, upper)
        asked = _ids_of(ids[at:end])
        return b"".join([id for id in asked if self._place(id) is not None]), end

    def remove(self, ids: bytes, at: int, upper: bytes, changes: dict[int, int]) -> int:
        """Take away those of the IDs from byte ``at`` on that are here, up to the first that is not
        below ``upper``; the byte where that one stands."""
        end = end_below(ids, at, upper)
        for id in _ids_of(ids[at:end]):
            place = self._place(id)
            if place is not None:
                consumer = self._columns[0][place]
                changes[consumer] = changes.get(consumer, 0) - 1
                for column in (self._ids, *self._columns):
                    del column[place]
        return end

    def put(
        self, items: Sequence[Item], at: int, consumer: int, upper: bytes, changes: dict[int, int]
    ) -> int:
        """Set the items from the ``at``-th on as pending with a consumer; the place of the first
        that is not below ``upper``, or that is new and finds no room."""
        while at < len(items):
            ms, seq, *rest = items[at]
            id = _ID.pack(ms, seq)
            place = self._place(id)
            if id >= upper or (place is None and len(self) >= RUN_MAX_ENTRIES):
                break
            if place is not None:
                before = self._columns[0][place]
                changes[before] = changes.get(before, 0) - 1
                for column, value in zip(self._columns, (consumer, *rest), strict=True):
                    column[place] = value
            else:
                place = bisect_left(self._ids, id)
                for column, value in zip(self._columns, (consumer, *rest), strict=True):
                    column.insert(place, value)
                self._ids.insert(place, id)
            changes[consumer] = changes.get(consumer, 0) + 1
            at += 1
        return at

    def extend(self, ids: bytes, consumer: int, time_ms: int, count: int) -> None:
        """Put entries of one delivery behind the last."""
        added = _ids_of(ids)
        self._ids += added
        for column, value in zip(self._columns, (consumer, time_ms, count), strict=True):
            column.extend([value] * len(added))

    def split(self) -> PendingRun:
        """Cut the upper half off; it."""
        half, upper = len(self) // 2, PendingRun()
        upper._ids = self._ids[half:]
        del self._ids[half:]
        for column, cut in zip(self._columns, upper._columns, strict=True):
            cut.extend(column[half:])
            del column[half:]
        return upper

    def between(self, low: bytes, high: bytes, consumer: int = EVERYONE) -> list[Pending]:
        """Entries with IDs of the closed interval; of one consumer, or of all."""
        return [
            (*_ID.unpack(id), owner, time_ms, count)
            for id, owner, time_ms, count in zip(self._ids, *self._columns, strict=True)
            if low <= id <= high and consumer in (EVERYONE, owner)
        ]

    def due(self, until_ms: int) -> list[Due]:
        """Entries whose delivery time is ``until_ms`` or before, in the order of IDs."""
        return [
            (time_ms, *_ID.unpack(id), consumer, count)
            for id, consumer, time_ms, count in zip(self._ids, *self._columns, strict=True)
            if time_ms <= until_ms
        ]

    def pack(self) -> bytes:
        """The stored value."""
        n, (consumers, times, counts) = len(self), self._columns
        columns = struct.pack(f"<{n}I{2 * n}Q", *consumers, *times, *counts)
        return b"".join((_COUNT.pack(n), *self._ids, columns))

    @classmethod
    def unpack(cls, value: bytes) -> PendingRun:
        """The run of a stored value; ValueError if its length does not fit."""
        n = _COUNT.unpack_from(value)[0] if len(value) >= _COUNT.size else -1
        if len(value) != _COUNT.size + n * 36:
            raise ValueError("a run of pending entries has a length that does not fit")
        made, at = cls(), _COUNT.size + n * ID_BYTES
        made._ids = _ids_of(value[_COUNT.size : at])
        numbers = struct.unpack_from(f"<{n}I{2 * n}Q", value, at)
        made._columns = (
            array("I", numbers[:n]),
            array("Q", numbers[n : 2 * n]),
            array("Q", numbers[2 * n :]),
        )
        return made


def _ids_of(ids: bytes) -> list[bytes]:
    return [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]
