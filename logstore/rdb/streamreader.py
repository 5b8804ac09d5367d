"""Reading the value of a stream from RDB: its nodes one after the other, then all the rest.

Invariants: what a server would refuse is refused, and what it would take but could not serve (a
pending entry of two consumers, or of none) is too; node keys have 16 bytes and ascend. Listpacks
are not looked into: whoever keeps them must.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore.codec import ID
from logstore.codec.batch import NodeBatch
from logstore.ids import StreamID
from logstore.options import NAME_MAX_BYTES
from logstore.rdb import streamtypes
from logstore.rdb.reader import Reader
from logstore.rdb.value import (
    ID_BYTES,
    NOBODY,
    ConsumerValue,
    GroupValue,
    Idempotence,
    Node,
    PendingValue,
    StreamInfoValue,
    StreamValue,
)

I64_MAX = (1 << 63) - 1
NOTHING_PENDING = PendingValue()  # of all groups without; nobody adds to what was read
GROUPS_AS_VALUES_MAX = 1000
IDEMPOTENT_IDS_MAX = 10_000  # of one producer, as servers have it
# Of one of them: a string has a byte, as has a number; an ID has two, a packed one sixteen.
_LEAST_BYTES = {
    "nodes": 6, "groups": 5, "consumers": 10, "pending entries": 25,
    "pending entries of a consumer": 16, "entries given back": 16, "producers": 2,
    "idempotent IDs": 3,
}  # fmt: skip
OWNERS_MAX = (1 << 32) - 2


def read(reader: Reader, kind: int) -> StreamValue:
    """A whole value of this type; InvalidPayloadError."""
    found = list(nodes(reader))
    return StreamValue(found, info(reader, kind, len(found)))


def nodes(reader: Reader) -> Iterator[Node]:
    """The nodes, one by one; ``info`` is to be read behind the last of them."""
    yield from NodeReader(reader)


class NodeReader:
    """The nodes, one by one or many at a time; ``info`` is to be read behind the last of them."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._left: int | None = None
        self._before: ID | None = None
        self.count = 0

    def batch(self, top: ID) -> NodeBatch:
        """The next nodes, verified, that can be read at once: maybe none, and then ``next`` reads
        one. ``top``: the last live ID before them."""
        made = self._reader.batch(self._remaining(), self._before, top)
        self._took(len(made), made.master)
        return made

    def __iter__(self) -> Iterator[Node]:
        return self

    def __next__(self) -> Node:
        if not self._remaining():
            raise StopIteration
        reader = self._reader
        key = reader.string(ID_BYTES)
        if len(key) != ID_BYTES:
            raise reader.error(f"the key of a node has {len(key)} bytes, not {ID_BYTES}")
        master = StreamID.unpacked(key)
        if self._before is not None and master <= self._before:
            raise reader.error("the nodes of a stream are not in the order of their keys")
        self._took(1, master)
        return key, reader.string()

    def _remaining(self) -> int:
        if self._left is None:
            self._left = _count(self._reader, "nodes")
        return self._left

    def _took(self, count: int, master: ID | None) -> None:
        self._left = self._remaining() - count
        self.count += count
        if count:
            self._before = master


def _count(reader: Reader, of: str) -> int:
    """A count that a loop can take, and that what is left has the bytes for."""
    found = reader.length()
    left = reader.left
    if found > (I64_MAX if left is None else left // _LEAST_BYTES[of]):
        raise reader.error(f"{found} {of}, which the rest has no bytes for")
    return found


def info(reader: Reader, kind: int, node_count: int) -> StreamInfoValue:
    """All that stands behind the nodes."""
    found = StreamInfoValue(reader.length(), reader.id())
    if found.length and not node_count:
        raise reader.error(f"{found.length} entries and no node")
    if found.length > I64_MAX:
        raise reader.error(f"{found.length} entries")
    if kind >= streamtypes.LISTPACKS_2:
        found.first, found.max_deleted = reader.id(), reader.id()
        found.entries_added = reader.length()
    _groups(reader, kind, found)
    if kind >= streamtypes.LISTPACKS_4:
        found.idempotence = _idempotence(reader)
    found.too_long, reader.too_long = reader.too_long, None
    return found


class PackedGroups:
    """Groups that were read and verified, kept as the bytes they came as: a group of a few bytes
    would take hundreds as values, and there may be as many as the payload has room for."""

    def __init__(self, data: bytes, kind: int, count: int, pending: int) -> None:
        self._data = data
        self._kind = kind
        self._count = count
        self.pending = pending  # entries, of all groups

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[GroupValue]:
        reader = Reader(self._data)
        for _ in range(self._count):
            yield _group(reader, self._kind)


def _groups(reader: Reader, kind: int, found: StreamInfoValue) -> None:
    count = _count(reader, "groups")
    packed = count > GROUPS_AS_VALUES_MAX
    if packed:
        reader.keep()
    names: set[bytes] = set()
    pending = 0
    for _ in range(count):
        group = _group(reader, kind)
        if group.name in names:
            raise reader.error("two groups have the same name")
        names.add(group.name)
        pending += len(group.pending)
        if not packed:
            found.groups.append(group)
    if packed:
        found.packed = PackedGroups(reader.kept(), kind, count, pending)


def _group(reader: Reader, kind: int) -> GroupValue:
    name, last = reader.name(NAME_MAX_BYTES), reader.id()
    entries_read = reader.signed() if kind >= streamtypes.LISTPACKS_2 else None
    group = GroupValue(name, last, entries_read, [], _pending(reader))
    names: set[bytes] = set()
    for number in range(1, _count(reader, "consumers") + 1):
        if number > OWNERS_MAX:
            raise reader.error("too many consumers")
        consumer = _consumer(reader, kind, group.pending, number)
        if consumer.name in names:
            raise reader.error("two consumers have the same name")
        names.add(consumer.name)
        group.consumers.append(consumer)
    if kind >= streamtypes.LISTPACKS_5:
        group.nacked = _nacked(reader, group.pending)
    if group.pending and group.pending.owners.count(NOBODY) != len(group.nacked):
        raise reader.error("a pending entry has no consumer")
    return group


def _pending(reader: Reader) -> PendingValue:
    count = _count(reader, "pending entries")
    if not count:
        return NOTHING_PENDING
    pending = PendingValue()
    for _ in range(count):
        id, time_ms, count = reader.take(ID_BYTES), reader.i64(), reader.length()
        if time_ms < 0 or count > I64_MAX:
            raise reader.error(f"a delivery at {time_ms} ms, or of {count} times")
        pending.add(id, time_ms, count)
    if not pending.ascends():  # servers write them so, and take any order
        pending = pending.ordered()
        if not pending.ascends():
            raise reader.error("an entry is pending twice")
    return pending


def _consumer(reader: Reader, kind: int, pending: PendingValue, number: int) -> ConsumerValue:
    name = reader.name(NAME_MAX_BYTES)
    seen_ms = reader.i64()
    active_ms = reader.i64() if kind >= streamtypes.LISTPACKS_3 else seen_ms  # as servers take it
    place = -1
    count = _count(reader, "pending entries of a consumer")
    if count > len(pending):
        raise reader.error("more is pending with a consumer than with its group")
    for _ in range(count):
        place = pending.find(reader.take(ID_BYTES), place + 1)
        if place < 0:
            raise reader.error("what is pending with a consumer is not pending with its group")
        if pending.owners[place] != NOBODY:
            raise reader.error("an entry is pending with two consumers, or twice with one")
        pending.owners[place] = number
    return ConsumerValue(name, seen_ms, active_ms)


def _nacked(reader: Reader, pending: PendingValue) -> list[bytes]:
    line: list[bytes] = []
    count = _count(reader, "entries given back")
    if count > len(pending):
        raise reader.error("more was given back than is pending")
    for _ in range(count):
        id = reader.take(ID_BYTES)
        place = pending.find(id)
        if place < 0 or pending.owners[place] != NOBODY:
            raise reader.error("an entry that was given back is not pending, or has a consumer")
        line.append(id)
    if len(set(line)) != len(line):
        raise reader.error("an entry was given back twice")
    return line


def _idempotence(reader: Reader) -> Idempotence:
    duration_s, max_ids = reader.length(), reader.length()
    producers: dict[bytes, list[tuple[bytes, StreamID]]] = {}
    for _ in range(_count(reader, "producers")):
        name = reader.name(NAME_MAX_BYTES)
        if name in producers:
            raise reader.error("two producers have the same name")
        count = _count(reader, "idempotent IDs")
        if count > IDEMPOTENT_IDS_MAX:
            raise reader.error(f"{count} idempotent IDs of one producer")
        items: dict[bytes, StreamID] = {}
        for _ in range(count):
            id = reader.name(NAME_MAX_BYTES)
            if id in items:
                raise reader.error("an idempotent ID of a producer stands twice")
            items[id] = reader.id()
        producers[name] = list(items.items())
    return Idempotence(
        duration_s, max_ids, list(producers.items()), reader.length(), reader.length()
    )
