"""What users hold, made of nodes in one call for many: entries, their fields, deliveries of groups.

The compiled twin makes them without a call of Python for each: it allots the objects and sets their
slots. So the classes are given, and they are plain: what their ``__init__`` would do is what is
done here.

Invariants: an entry has an ID of the class that is given, a tuple of ms and seq, and its fields and
values as one tuple, bytes or text; bytes that are no text of the encoding become lone surrogates.
Of a repeated field the last value counts. A *row* is what the engine keeps of a delivery: the
entry's ID, its fields and values, for how long it was idle (ms), how often it was delivered, and
when (unix ms). It may not know about groups, nor what else the classes do.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import MemberDescriptorType
from typing import Any

from logstore.codec.node import entries
from logstore.codec.node_types import ID, MAX_ID, ZERO_ID

_new, _set = tuple.__new__, object.__setattr__  # what is set is private to the classes
_U64_MAX = 2**64 - 1
_DELIVERY = (
    "id", "_flat", "_encoding", "group", "deleted", "delivery_count", "idle", "_consumer",
    "_delivered_ms", "_settled",
)  # fmt: skip


def _check(made_class: type, *names: str) -> None:
    """TypeError if one of these is no slot that objects of the class have."""
    for name in names:
        slot: Any = getattr(made_class, name)
        if not isinstance(slot, MemberDescriptorType) or not issubclass(
            made_class, slot.__objclass__
        ):
            raise TypeError(f"{made_class.__name__}.{name} is no slot")


def _read(flat: Sequence[bytes], encoding: str | None) -> list[Any]:
    if encoding is None:
        return list(flat)
    return [part.decode(encoding, "surrogateescape") for part in flat]


def _text_of(name: bytes | str) -> str:
    return name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")


class FieldsMaker:
    """Makes mappings of fields, of a class with the slots ``_items`` and ``_encoding``.

    ``in_text``: names are made text. ``of``: those of an entry, of a class with the slots ``_flat``
    and ``_encoding``. What is no encoding there makes ``other(flat, it)`` of them.
    """

    def __init__(
        self,
        fields_class: type,
        in_text: bool = False,
        entry_class: type | None = None,
        other: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        _check(fields_class, "_encoding", "_items")
        if entry_class is not None:
            _check(entry_class, "_encoding", "_flat")
        self._class, self._in_text, self._entry_class = fields_class, in_text, entry_class
        self._other: Any = other

    def of(self, entry: Any, /) -> Any:
        """The mapping of an entry's fields."""
        if self._entry_class is None or not isinstance(entry, self._entry_class):
            raise TypeError("what has the fields is no entry")
        held: Any = entry
        flat, encoding = held._flat, held._encoding  # noqa: SLF001  (slots that were checked)
        if encoding is None or type(encoding) is str:
            return self.make(flat, encoding)
        return self._other(flat, encoding)

    def make(self, flat: Sequence[Any], encoding: Any) -> Any:
        """A mapping of field, value, field, value, ..; ValueError if a field has no value."""
        if len(flat) % 2:
            raise ValueError("a field has no value")
        made: Any = object.__new__(self._class)
        _set(made, "_encoding", encoding)
        names = map(_text_of, flat[::2]) if self._in_text else flat[::2]
        _set(made, "_items", dict(zip(names, flat[1::2], strict=True)))
        return made


class EntryMaker:
    """Makes entries, of a class with the slots ``id``, ``_flat`` and ``_encoding``.

    ``reading``: how values are read, which entries have instead of the encoding.
    """

    def __init__(
        self, entry_class: type, id_class: type, encoding: str | None, reading: Any = None
    ) -> None:
        _check(entry_class, "id", "_flat", "_encoding")
        if not issubclass(id_class, tuple):
            raise TypeError("an ID is a tuple")
        self._class, self._id_class, self._encoding = entry_class, id_class, encoding
        self._reading = encoding if reading is None else reading

    def entries(
        self,
        lp: bytes,
        master_ms: int,
        master_seq: int,
        vector: bytes = b"",
        start: ID = ZERO_ID,
        end: ID = MAX_ID,
        limit: int = -1,
        reverse: bool = False,
    ) -> list[Any]:
        """What ``node.entries`` finds, made."""
        found = entries(lp, master_ms, master_seq, vector, start, end, limit, reverse)
        return [self.made(ms, seq, flat) for _, ms, seq, flat in found]

    def made(self, ms: int, seq: int, flat: list[bytes]) -> Any:
        """One entry."""
        entry: Any = object.__new__(self._class)
        _set(entry, "id", _new(self._id_class, (ms, seq)))
        _set(entry, "_flat", tuple(_read(flat, self._encoding)))
        _set(entry, "_encoding", self._reading)
        return entry


class NodeFinder:
    """A node whose live entries are looked up by ID again and again: it is walked over once.

    Of one ID the first entry counts, as for ``entries`` with the limit 1.
    """

    def __init__(self, lp: bytes, master_ms: int, master_seq: int, vector: bytes = b"") -> None:
        found = reversed(entries(lp, master_ms, master_seq, vector))
        self._entries = {(ms, seq): flat for _, ms, seq, flat in found}

    def find(self, ms: int, seq: int, maker: EntryMaker) -> Any:
        """The live entry with this ID; None if there is none."""
        flat = self._entries.get((ms, seq))
        return None if flat is None else maker.made(ms, seq, flat)


class DeliveryMaker:
    """Makes deliveries, of a class with slots as ``Delivery`` has them."""

    def __init__(self, delivery_class: type, encoding: str | None) -> None:
        _check(delivery_class, *_DELIVERY)
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
            else self._one(row, consumer, _read(row[1], self._encoding), (group, reading, at_once))
            for row in rows
        ]

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
        node = lp, master_ms, master_seq, vector
        rows = first_deliveries(*node, start, limit, tuple, id_class, time_ms)
        made = [
            self._one(row, consumer, tuple(_read(row[1], self._encoding)), context) for row in rows
        ]
        return made, pack_ids([row[0] for row in rows])[0]

    def _one(self, row: Any, consumer: bytes, flat: Any, context: tuple[Any, Any, Any]) -> Any:
        id, _, idle_ms, count, time_ms = row
        group, reading, at_once = context
        idle = timedelta(milliseconds=idle_ms) if idle_ms else at_once
        made: Any = object.__new__(self._class)
        values = id, flat, reading, group, False, count, idle, consumer, time_ms, False
        for name, value in zip(_DELIVERY, values, strict=True):
            _set(made, name, value)
        return made


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
    """IDs side by side, 16 bytes each, big endian, and whether each is above the one before.

    ValueError for what is no two numbers below 2^64.
    """
    ascending = all(ids[at] < ids[at + 1] for at in range(len(ids) - 1))
    flat = [number for id in ids for number in id]
    if len(flat) != 2 * len(ids) or not all(0 <= number <= _U64_MAX for number in flat):
        raise ValueError("an ID is two numbers below 2^64")
    return struct.pack(f">{len(flat)}Q", *flat), ascending


def are_ids(values: Sequence[Any], id_class: type) -> bool:
    """Whether every value is of this class itself, with two whole numbers below 2^64."""
    return all(_is_id(value, id_class) for value in values)


def _is_id(value: Any, id_class: type) -> bool:
    if type(value) is not id_class:
        return False
    parts: Any = value
    numbers: list[Any] = list(parts)
    return [*map(type, numbers)] == [int, int] and 0 <= min(numbers) <= max(numbers) <= _U64_MAX


class Unpacking:
    """MessagePack's ``unpackb`` with the options of ours, which cost as much as a small value."""

    def __init__(self, unpackb: Callable[..., Any]) -> None:
        self._unpackb = unpackb

    def unpack(self, data: bytes) -> Any:
        """The value of a MessagePack."""
        return self._unpackb(data, timestamp=3, strict_map_key=False)


def decoded_pairs(flat: Sequence[Any], decode: Callable[[Any], Any]) -> list[tuple[str, Any]]:
    """Names as text, and values as ``decode`` gives them; what it raises is raised as it is.

    ValueError if a field has no value.
    """
    if len(flat) % 2:
        raise ValueError("a field has no value")
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return [(_text_of(name), decode(value)) for name, value in pairs]


def field_value(flat: Sequence[Any], name: object, reading: Any, missing: Any) -> Any:
    """The value of a field, of field, value, field, value, ..; text in ASCII finds bytes as well.

    ``reading`` is None, an encoding, or has ``decode``, which makes the value of what is stored;
    ``missing`` is for what is not there, or must be looked for by who knows the encoding.
    """
    ascii_name = name.encode() if type(name) is str and name.isascii() else None
    if type(name) not in (str, bytes) or type(flat) not in (tuple, list):
        return missing
    for at in range(len(flat) - 2, -1, -2):
        part = flat[at]
        if part == name if type(part) is type(name) else type(part) is bytes and part == ascii_name:
            stored = flat[at + 1]
            return stored if reading is None or type(reading) is str else reading.decode(stored)
    return missing
