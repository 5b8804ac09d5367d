"""Deliveries of a group in one call for many: what was handed out, as rows, as objects, as IDs.

A *row* is what the engine keeps of a delivery: the entry's ID, its fields and values, for how long
it was idle (ms), how often it was delivered, and when (unix ms). An object is what users hold.

Invariants: as of ``making``: the classes are given, they are plain, and what their ``__init__``
would do is what is done here; an ID is a tuple of two numbers below 2^64, stored as 16 bytes, big
endian. It may not know about groups, nor what else the classes do.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from logstore.codec.interface import ID, MAX_ID
from logstore.codec.making import is_slot_of
from logstore.codec.node import entries

_new, _set = tuple.__new__, object.__setattr__  # what is set is private to the classes
_U64_MAX = 2**64 - 1
_SLOTS = (
    "id", "_flat", "_encoding", "group", "deleted", "delivery_count", "idle", "_consumer",
    "_delivered_ms", "_settled",
)  # fmt: skip


def first_deliveries(
    lp: bytes,
    master_ms: int,
    master_seq: int,
    vector: bytes,
    start: ID,
    limit: int,
    row_class: type,
    id_class: type,
    time_ms: int,
) -> list[Any]:
    """The rows of live entries of a node from ``start`` on, at most ``limit`` (-1: all), that are
    delivered for the first time, now."""
    return [
        _new(row_class, (_new(id_class, (ms, seq)), flat, 0, 1, time_ms))
        for _, ms, seq, flat in entries(lp, master_ms, master_seq, vector, start, MAX_ID, limit)
    ]


def pack_ids(ids: Sequence[ID]) -> tuple[bytes, bool]:
    """IDs side by side, and whether each is above the one before."""
    ascending = all(ids[at] < ids[at + 1] for at in range(len(ids) - 1))
    flat = [number for id in ids for number in id]
    if len(flat) != 2 * len(ids) or not all(0 <= number <= _U64_MAX for number in flat):
        raise ValueError("an ID is two numbers below 2^64")
    return struct.pack(f">{len(flat)}Q", *flat), ascending


def are_ids(values: Sequence[Any], id_class: type) -> bool:
    """Whether every value is of this class itself, with two whole numbers below 2^64."""
    for value in values:
        parts: tuple[Any, ...] = value
        if type(value) is not id_class or len(parts) != 2:
            return False
        if not all(type(number) is int and 0 <= number <= _U64_MAX for number in parts):
            return False
    return True


class DeliveryMaker:
    """Makes deliveries, of a class with slots as ``Delivery`` has them."""

    __slots__ = ("_class", "_encoding")

    def __init__(self, delivery_class: type, encoding: str | None) -> None:
        for name in _SLOTS:
            if not is_slot_of(delivery_class, getattr(delivery_class, name)):
                raise TypeError(f"{delivery_class.__name__}.{name} is no slot")
        self._class, self._encoding = delivery_class, encoding

    def made(
        self,
        rows: list[Any],
        group: Any,
        consumer: bytes,
        reading: Any,
        at_once: Any,
        other: Callable[[Any, bytes, Any], Any],
    ) -> list[Any]:
        """The deliveries of rows. ``reading``: how values are read; ``at_once``: no time.

        What is gone is made by ``other(group, consumer, row)``.
        """
        return [
            other(group, consumer, row)
            if row[1] is None
            else self._one(row, group, consumer, reading, at_once)
            for row in rows
        ]

    def _one(self, row: Any, group: Any, consumer: bytes, reading: Any, at_once: Any) -> Any:
        id, flat, idle_ms, count, time_ms = row
        flat, idle = self._read(flat), timedelta(0, 0, 0, idle_ms) if idle_ms else at_once
        return self._made((id, flat, reading, group, False, count, idle, consumer, time_ms, False))

    def first(
        self,
        lp: bytes,
        master_ms: int,
        master_seq: int,
        vector: bytes,
        start: ID,
        limit: int,
        id_class: type,
        time_ms: int,
        consumer: bytes,
        context: tuple[Any, Any, Any],
    ) -> tuple[list[Any], bytes]:
        """The deliveries of what ``first_deliveries`` finds, without rows, and their IDs as
        ``pack_ids`` has them. ``context``: group, ``reading`` and ``at_once``, as of ``made``.
        """
        group, reading, at_once = context
        rows = first_deliveries(
            lp, master_ms, master_seq, vector, start, limit, tuple, id_class, time_ms
        )
        made = [
            self._made(
                (
                    id,
                    tuple(self._read(flat)),
                    reading,
                    group,
                    False,
                    1,
                    at_once,
                    consumer,
                    time,
                    False,
                )
            )
            for id, flat, _, _, time in rows
        ]
        return made, pack_ids([row[0] for row in rows])[0]

    def _read(self, flat: list[bytes]) -> list[Any]:
        if self._encoding is None:
            return list(flat)
        return [part.decode(self._encoding, "surrogateescape") for part in flat]

    def _made(self, values: tuple[Any, ...]) -> Any:
        made: Any = object.__new__(self._class)
        for name, value in zip(_SLOTS, values, strict=True):
            _set(made, name, value)
        return made
