"""Keys and values of consumer groups in the index, to and from bytes.

Invariants: a group's number is the position of the frame that made it, so it is never used again;
everything of a group stands under its number, side by side; a run holds up to ``RUN_MAX_ENTRIES``
pending entries in the order of IDs, no two runs of a group overlap, and a run's key is its first
ID; the idle index has one key a run, by its oldest delivery time. Knows no transaction.
"""

from __future__ import annotations

import struct
from typing import Final

from logstore.codec import PendingRun
from logstore.codec.pending_run import ID_BYTES, RUN_MAX_ENTRIES
from logstore.ids import ZERO_ID, StreamID
from logstore.row_seal import digest
from logstore.tuples import NamedTuple

NO_ONE: Final = 0  # the consumer of a pending entry that was given back
NOBODY = b""  # the name of the consumer that has what was given back for later; no caller has it
FIRST_CONSUMER = 1

_GROUP: Final = struct.Struct("<QQQqIIQQQ")
_CONSUMER: Final = struct.Struct("<qqQ")
_COUNT = struct.Struct("<I")
_NUMBER = struct.Struct(">Q")
_OF_STREAM = struct.Struct(">QQ")  # 0, the stream; then the name's digest
_CONSUMER_KEY: Final = struct.Struct(">QBI")
IDLE_KEY: Final = struct.Struct(">QBQ")  # then the first ID
ROW_PREFIX: Final = struct.Struct(">QB")
GROUP_ROW: Final = 97  # a
_CONSUMER_ROW: Final = 99  # c
_CONSUMER_NAME: Final = 100  # d
IDLE_ROW: Final = 105  # i
RUN_ROW: Final = 112  # p


def stream_prefix(stream: int) -> bytes:
    """The beginning of the keys of a stream's group names."""
    return _OF_STREAM.pack(0, stream)


def name_key(stream: int, name: bytes) -> bytes:
    """The key of a group's name."""
    return name_digest_key(stream, digest(name))


def name_digest_key(stream: int, name_digest: bytes) -> bytes:
    """The same for a name whose digest is known."""
    return _OF_STREAM.pack(0, stream) + name_digest


def group_key(group: int) -> bytes:
    """The key of a group's record."""
    return ROW_PREFIX.pack(group, GROUP_ROW)


def consumer_key(group: int, consumer: int) -> bytes:
    """The key of a consumer's record."""
    return _CONSUMER_KEY.pack(group, _CONSUMER_ROW, consumer)


def consumer_name_key(group: int, name: bytes) -> bytes:
    """The key of a consumer's name."""
    return _NUMBER.pack(group) + bytes([_CONSUMER_NAME]) + digest(name)


def idle_key(group: int, oldest_ms: int, first: bytes) -> bytes:
    """The key of a run in the idle index."""
    return IDLE_KEY.pack(group, IDLE_ROW, oldest_ms) + first


def idle_parts(key: bytes) -> tuple[int, bytes]:
    """Oldest delivery time and first ID of a key of the idle index."""
    return IDLE_KEY.unpack_from(key)[2], key[IDLE_KEY.size :]


def run_prefix(group: int) -> bytes:
    """What the keys of a group's runs begin with; then the first ID, packed."""
    return ROW_PREFIX.pack(group, RUN_ROW)


def run_key(group: int, first: bytes) -> bytes:
    """The key of a run by its first ID, packed."""
    return run_prefix(group) + first


def group_prefix(group: int) -> bytes:
    """The beginning of every key of a group."""
    return _NUMBER.pack(group)


class NewGroup(NamedTuple):
    """A group that is made, with nothing in it."""

    name_digest: bytes
    last_ms: int
    last_seq: int
    entries_read: int
    name: bytes


def new_group_value(number: int, stream: int, group: NewGroup) -> bytes:
    """What ``GroupRecord.pack`` gives for a new group, which was made at position ``number``."""
    _, ms, seq, entries_read, name = group
    return _GROUP.pack(stream, ms, seq, entries_read, 0, FIRST_CONSUMER, 0, 1, number) + name


class GroupRecord:
    """All that is kept of a group beside its consumers and pending entries."""

    __slots__ = (
        "consumers",
        "entries_read",
        "last",
        "name",
        "next_consumer",
        "next_nack",
        "number",
        "pending",
        "position",
        "stream",
    )

    def __init__(
        self,
        number: int,
        stream: int,
        name: bytes,
        last: StreamID = ZERO_ID,
        entries_read: int = -1,
        consumers: int = 0,
        next_consumer: int = FIRST_CONSUMER,
        pending: int = 0,
        next_nack: int = 1,
        position: int = 0,
    ) -> None:
        self.number = number
        self.stream = stream
        self.name = name
        self.last = last  # last delivered
        self.entries_read = entries_read  # -1: not known
        self.consumers = consumers
        self.next_consumer = next_consumer
        self.pending = pending
        self.next_nack = next_nack  # place in the line of entries that were given back
        self.position = position  # of the last frame that changed anything of this group

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GroupRecord):
            return NotImplemented
        return self.number == other.number and self.pack() == other.pack()

    def pack(self) -> bytes:
        """The stored value, without CRC."""
        ms, seq = self.last
        return (
            _GROUP.pack(
                self.stream,
                ms,
                seq,
                self.entries_read,
                self.consumers,
                self.next_consumer,
                self.pending,
                self.next_nack,
                self.position,
            )
            + self.name
        )

    @classmethod
    def unpack(cls, number: int, value: bytes) -> GroupRecord:
        """The record of a stored value."""
        stream, ms, seq, *rest = _GROUP.unpack_from(value)
        return cls(number, stream, value[_GROUP.size :], StreamID(ms, seq), *rest)


class ConsumerRecord:
    """One consumer of a group. Times are unix milliseconds; -1: never."""

    __slots__ = ("active_ms", "name", "number", "pending", "seen_ms")

    def __init__(
        self, number: int, name: bytes, seen_ms: int = -1, active_ms: int = -1, pending: int = 0
    ) -> None:
        self.number = number
        self.name = name
        self.seen_ms = seen_ms
        self.active_ms = active_ms
        self.pending = pending

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self.number == other.number and self.pack() == other.pack()

    def pack(self) -> bytes:
        """The stored value, without CRC."""
        return _CONSUMER.pack(self.seen_ms, self.active_ms, self.pending) + self.name

    @classmethod
    def unpack(cls, number: int, value: bytes) -> ConsumerRecord:
        """The record of a stored value."""
        seen_ms, active_ms, pending = _CONSUMER.unpack_from(value)
        return cls(number, value[_CONSUMER.size :], seen_ms, active_ms, pending)


__all__ = [
    "FIRST_CONSUMER",
    "ID_BYTES",
    "NOBODY",
    "NO_ONE",
    "RUN_MAX_ENTRIES",
    "ConsumerRecord",
    "GroupRecord",
    "PendingRun",
    "consumer_key",
    "consumer_name_key",
    "group_key",
    "group_prefix",
    "idle_key",
    "idle_parts",
    "name_key",
    "run_key",
    "run_prefix",
    "stream_prefix",
]
