"""Keys and values of consumer groups in the index, to and from bytes.

Invariants: a group's number is the position of the frame that made it, so it is never used again;
everything of a group stands under its number, side by side; a run holds up to ``RUN_MAX_ENTRIES``
pending entries in the order of IDs, no two runs of a group overlap, and a run's key is its first
ID; the idle index has one key a run, by its oldest delivery time. Knows no transaction.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass
from hashlib import blake2b

from logstore.ids import ZERO_ID, StreamID

RUN_MAX_ENTRIES = 128
ID_BYTES = 16
NO_ONE = 0  # the consumer of a pending entry that was given back
FIRST_CONSUMER = 1

_GROUP = struct.Struct("<QQQqIIQQQ")
_CONSUMER = struct.Struct("<qqQ")
_COUNT = struct.Struct("<I")
_NUMBER = struct.Struct(">Q")
_OF_STREAM = struct.Struct(">QQ")  # 0, the stream; then the name's digest
_CONSUMER_KEY = struct.Struct(">QBI")
_IDLE_KEY = struct.Struct(">QBQ")  # then the first ID
_GROUP_ROW, _CONSUMER_ROW, _CONSUMER_NAME, _IDLE_ROW, _RUN_ROW = b"acdip"


def digest(name: bytes) -> bytes:
    """What stands for a name of any length in a key."""
    return blake2b(name, digest_size=16).digest()


def stream_prefix(stream: int) -> bytes:
    """What the names of a stream's groups begin with."""
    return _OF_STREAM.pack(0, stream)


def name_key(stream: int, name: bytes) -> bytes:
    """The key of a group's name."""
    return _OF_STREAM.pack(0, stream) + digest(name)


def group_key(group: int) -> bytes:
    """The key of a group's record."""
    return _NUMBER.pack(group) + bytes([_GROUP_ROW])


def consumer_key(group: int, consumer: int) -> bytes:
    """The key of a consumer's record."""
    return _CONSUMER_KEY.pack(group, _CONSUMER_ROW, consumer)


def consumer_name_key(group: int, name: bytes) -> bytes:
    """The key of a consumer's name."""
    return _NUMBER.pack(group) + bytes([_CONSUMER_NAME]) + digest(name)


def idle_key(group: int, oldest_ms: int, first: bytes) -> bytes:
    """The key of a run in the idle index."""
    return _IDLE_KEY.pack(group, _IDLE_ROW, oldest_ms) + first


def idle_parts(key: bytes) -> tuple[int, bytes]:
    """Oldest delivery time and first ID of a key of the idle index."""
    return _IDLE_KEY.unpack_from(key)[2], key[_IDLE_KEY.size :]


def run_key(group: int, first: bytes) -> bytes:
    """The key of a run by its first ID, packed."""
    return _NUMBER.pack(group) + bytes([_RUN_ROW]) + first


def group_prefix(group: int) -> bytes:
    """What every key of a group begins with."""
    return _NUMBER.pack(group)


@dataclass(slots=True)
class GroupRecord:
    """All that is kept of a group beside its consumers and pending entries."""

    number: int
    stream: int
    name: bytes
    last: StreamID = ZERO_ID  # last delivered
    entries_read: int = -1  # -1: not known
    consumers: int = 0
    next_consumer: int = FIRST_CONSUMER
    pending: int = 0
    next_nack: int = 1  # place in the line of entries that were given back
    position: int = 0  # of the last frame that changed anything of this group

    def pack(self) -> bytes:
        """The stored value, without CRC."""
        return _GROUP.pack(
            self.stream, *self.last, self.entries_read, self.consumers, self.next_consumer,
            self.pending, self.next_nack, self.position,
        ) + self.name  # fmt: skip

    @classmethod
    def unpack(cls, number: int, value: bytes) -> GroupRecord:
        """The record of a stored value."""
        stream, ms, seq, *rest = _GROUP.unpack_from(value)
        return cls(number, stream, value[_GROUP.size :], StreamID(ms, seq), *rest)


@dataclass(slots=True)
class ConsumerRecord:
    """One consumer of a group. Times are unix milliseconds; -1: never."""

    number: int
    name: bytes
    seen_ms: int = -1
    active_ms: int = -1
    pending: int = 0

    def pack(self) -> bytes:
        """The stored value, without CRC."""
        return _CONSUMER.pack(self.seen_ms, self.active_ms, self.pending) + self.name

    @classmethod
    def unpack(cls, number: int, value: bytes) -> ConsumerRecord:
        """The record of a stored value."""
        seen_ms, active_ms, pending = _CONSUMER.unpack_from(value)
        return cls(number, value[_CONSUMER.size :], seen_ms, active_ms, pending)


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


class PendingRun:
    """Pending entries with neighbouring IDs, in columns."""

    __slots__ = ("consumers", "counts", "ids", "times")

    def __init__(self) -> None:
        self.ids = bytearray()  # 16 bytes each, big endian
        self.consumers = array("I")
        self.times = array("Q")  # delivery, unix ms; of NO_ONE: the place in the line
        self.counts = array("Q")

    def __len__(self) -> int:
        return len(self.times)

    @property
    def first(self) -> bytes:
        """The first ID, packed."""
        return bytes(self.ids[:ID_BYTES])

    @property
    def last(self) -> bytes:
        """The last ID, packed."""
        return bytes(self.ids[-ID_BYTES:])

    def id_at(self, place: int) -> bytes:
        """An ID, packed."""
        return bytes(self.ids[place * ID_BYTES : place * ID_BYTES + ID_BYTES])

    def find(self, id: bytes) -> tuple[int, bool]:
        """Where an ID stands or would stand, and whether it is there."""
        low, high = 0, len(self)
        ids = self.ids
        while low < high:
            middle = (low + high) >> 1
            if ids[middle * ID_BYTES : middle * ID_BYTES + ID_BYTES] < id:
                low = middle + 1
            else:
                high = middle
        return low, low < len(self) and self.id_at(low) == id

    def insert(self, place: int, id: bytes, consumer: int, time_ms: int, count: int) -> None:
        """Put an entry at its place."""
        self.ids[place * ID_BYTES : place * ID_BYTES] = id
        self.consumers.insert(place, consumer)
        self.times.insert(place, time_ms)
        self.counts.insert(place, count)

    def extend(self, ids: bytes, consumer: int, time_ms: int, count: int) -> None:
        """Put entries of one delivery behind the last."""
        n = len(ids) // ID_BYTES
        self.ids += ids
        self.consumers.extend([consumer] * n)
        self.times.extend([time_ms] * n)
        self.counts.extend([count] * n)

    def same(self, place: int, ids: bytes, at: int) -> int:
        """How many of the IDs from byte ``at`` on stand here side by side, as far as one look
        tells: all that the run could hold of them, or 1 if not."""
        size = min(len(ids) - at, (len(self) - place) * ID_BYTES)
        begin = place * ID_BYTES
        return (
            size // ID_BYTES if bytes(self.ids[begin : begin + size]) == ids[at : at + size] else 1
        )

    def delete(self, place: int, count: int = 1) -> None:
        """Take entries away."""
        del self.ids[place * ID_BYTES : (place + count) * ID_BYTES]
        del self.consumers[place : place + count]
        del self.times[place : place + count]
        del self.counts[place : place + count]

    def split(self) -> PendingRun:
        """Cut the upper half off; it."""
        half = len(self) // 2
        upper = PendingRun()
        upper.ids = self.ids[half * ID_BYTES :]
        upper.consumers, self.consumers = self.consumers[half:], self.consumers[:half]
        upper.times, self.times = self.times[half:], self.times[:half]
        upper.counts, self.counts = self.counts[half:], self.counts[:half]
        del self.ids[half * ID_BYTES :]
        return upper

    def pack(self) -> bytes:
        """The stored value, without CRC."""
        return b"".join((
            _COUNT.pack(len(self)), self.ids, _bytes(self.consumers), _bytes(self.times),
            _bytes(self.counts),
        ))  # fmt: skip

    @classmethod
    def unpack(cls, value: bytes) -> PendingRun:
        """The run of a stored value; ValueError if its length does not fit."""
        n = _COUNT.unpack_from(value)[0]
        if len(value) != _COUNT.size + n * 36:
            raise ValueError("a run of pending entries has a length that does not fit")
        made = cls()
        at = _COUNT.size + n * ID_BYTES
        made.ids = bytearray(value[_COUNT.size : at])
        made.consumers = _column("I", value[at : at + 4 * n])
        made.times = _column("Q", value[at + 4 * n : at + 12 * n])
        made.counts = _column("Q", value[at + 12 * n :])
        return made
