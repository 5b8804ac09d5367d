"""A stream as plain values: what a DUMP payload or an RDB file says of it.

Invariants: nodes stand in the order in which they were written; pending entries ascend by ID, and
each has one owner or none. Imports IDs and errors only.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol, TypeAlias

from logstore.errors import InvalidPayloadError
from logstore.ids import ZERO_ID, StreamID
from logstore.tuples import NamedTuple

ID_BYTES = 16
GROUPS_AT_ONCE, IDEMPOTENT_IDS_AT_ONCE = 1000, 10_000
NOBODY = 0  # the owner of an entry that was given back (XNACK)
Node: TypeAlias = tuple[bytes, bytes]  # master ID, 16 bytes big endian; listpack


def impossible(why: str) -> InvalidPayloadError:
    """The error for a value that can be read, but cannot be a stream."""
    return InvalidPayloadError(f"Bad data format: the stream cannot be: {why}")


class ConsumerValue(NamedTuple):
    """A consumer. Times are unix milliseconds; ``active_ms`` -1: never."""

    name: bytes
    seen_ms: int
    active_ms: int


class PendingValue:
    """A group's pending entries, in columns: there may be millions.

    ``owners`` count the group's consumers from 1; ``NOBODY``: given back, and the group's
    ``nacked`` has their order.
    """

    __slots__ = ("counts", "ids", "owners", "times")

    def __init__(self) -> None:
        self.ids = bytearray()  # 16 bytes each, big endian
        self.times = array("q")  # of the last delivery, unix ms
        self.counts = array("Q")  # deliveries
        self.owners = array("I")

    def __len__(self) -> int:
        return len(self.times)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingValue) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    def __repr__(self) -> str:
        return f"<PendingValue of {len(self)} entries>"

    def id_at(self, place: int) -> bytes:
        """An ID, packed."""
        return bytes(self.ids[place * ID_BYTES : place * ID_BYTES + ID_BYTES])

    def add(self, id: bytes, time_ms: int, count: int, owner: int = NOBODY) -> None:
        """Add an entry behind the others."""
        self.ids += id
        self.times.append(time_ms)
        self.counts.append(count)
        self.owners.append(owner)

    def find(self, id: bytes, hint: int = 0) -> int:
        """The place of an ID, -1 if it is not there; ``hint`` is tried first."""
        if hint < len(self) and self.id_at(hint) == id:
            return hint
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) >> 1
            if self.id_at(middle) < id:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self.id_at(low) == id else -1

    def of(self, owner: int) -> list[int]:
        """The places of one owner's entries."""
        return [place for place, each in enumerate(self.owners) if each == owner]

    def ascends(self) -> bool:
        """Whether the IDs ascend, none twice."""
        before = b""
        for at in range(0, len(self.ids), ID_BYTES):
            id = bytes(self.ids[at : at + ID_BYTES])
            if id <= before:
                return False
            before = id
        return True

    def ordered(self) -> PendingValue:
        """The same entries, by ID."""
        made = PendingValue()
        for place in sorted(range(len(self)), key=self.id_at):
            made.add(self.id_at(place), self.times[place], self.counts[place], self.owners[place])
        return made


@dataclass(slots=True)
class GroupValue:
    """A consumer group. ``entries_read`` -1: not known; None: the payload is too old to have it."""

    name: bytes
    last: StreamID
    entries_read: int | None
    consumers: list[ConsumerValue] = field(default_factory=list)
    pending: PendingValue = field(default_factory=PendingValue)
    nacked: list[bytes] = field(default_factory=list)  # IDs that were given back, in their order


@dataclass(slots=True)
class Idempotence:
    """What is known of idempotent adds: for each producer its IDs and their entries."""

    duration_s: int
    max_ids: int
    producers: list[tuple[bytes, list[tuple[bytes, StreamID]]]]
    added: int
    duplicates: int


class PlainGroup(NamedTuple):
    """A group without consumers, and so without pending entries."""

    digest: bytes  # of the name, as ``row_seal.digest`` makes it
    name: bytes
    last_ms: int
    last_seq: int
    entries_read: int | None


class Groups(Protocol):
    """Very many groups, which become values one at a time."""

    pending: int  # entries of all groups

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[GroupValue]: ...

    def by_digest(self) -> Iterator[PlainGroup | GroupValue]:
        """The groups in the order of the digests of their names, which is that of their rows in an
        index. Those that are plain cost no more than their tuple."""
        ...


@dataclass(slots=True)
class StreamInfoValue:
    """All of a stream but its nodes. None: the payload is too old to have it."""

    length: int = 0
    last: StreamID = ZERO_ID
    first: StreamID | None = None
    max_deleted: StreamID = ZERO_ID
    entries_added: int | None = None
    groups: list[GroupValue] = field(default_factory=list)
    idempotence: Idempotence | None = None
    too_long: str | None = None  # why the stream cannot be imported, though it was read
    packed: Groups | None = None  # the groups, if they are too many to be values at once

    def all_groups(self) -> Iterator[GroupValue]:
        """The groups, from either list."""
        return chain(self.groups, self.packed or ())

    def read_by(self, group: GroupValue) -> int | None:
        """How many entries a group has read, -1 if that is not known: never more than were added,
        though XSETID may have set that lower; servers refuse such a stream."""
        if group.entries_read is None or self.entries_added is None:
            return group.entries_read
        return min(group.entries_read, self.entries_added)

    @property
    def many(self) -> bool:
        """Whether the stream has more groups, or idempotent IDs, than one commit should have."""
        found = self.idempotence
        ids = 0 if found is None else sum(len(items) for _, items in found.producers)
        groups = self.packed is not None or len(self.groups) > GROUPS_AT_ONCE
        return groups or ids > IDEMPOTENT_IDS_AT_ONCE

    def pending_count(self) -> int:
        """How many entries are pending in all groups."""
        packed = 0 if self.packed is None else self.packed.pending
        return packed + sum(len(group.pending) for group in self.groups)


@dataclass(slots=True)
class StreamValue:
    """A whole stream."""

    nodes: list[Node]
    info: StreamInfoValue
