"""Reading the value of a stream from RDB: its nodes one after the other, then all the rest.

Invariants: what a server would refuse is refused; so is what it would accept but could not serve,
such as a pending entry of two consumers, or of none. Node keys have 16 bytes and ascend. Listpacks
are not checked: the caller must do that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from operator import eq, itemgetter

from logstore.codec import ID
from logstore.codec.node_batch import NodeBatch
from logstore.ids import StreamID
from logstore.options import NAME_MAX_BYTES
from logstore.rdb import codes
from logstore.rdb.rdb_reader import Reader, signed
from logstore.rdb.value import (
    GROUPS_AT_ONCE,
    ID_BYTES,
    NOBODY,
    ConsumerValue,
    GroupValue,
    Idempotence,
    Node,
    PendingValue,
    PlainGroup,
    StreamInfoValue,
    StreamValue,
)
from logstore.row_seal import digest

I64_MAX = (1 << 63) - 1
NOTHING_PENDING = PendingValue()  # shared by all groups without pending entries
IDEMPOTENT_IDS_MAX = 10_000  # of one producer, as on servers
# Of one of them: a string has a byte, as has a number; an ID has two, a packed one sixteen.
_LEAST_BYTES = {
    "nodes": 6,
    "groups": 5,
    "consumers": 10,
    "pending entries": 25,
    "pending entries of a consumer": 16,
    "entries given back": 16,
    "producers": 2,
    "idempotent IDs": 3,
}
OWNERS_MAX = (1 << 32) - 2
DIGEST_BYTES, _OFFSET_BYTES = 16, 5
PLACE_BYTES = DIGEST_BYTES + _OFFSET_BYTES
_SAME_NAME = "two groups have the same name"


def read(reader: Reader, kind: int) -> StreamValue:
    """A whole value of this type; InvalidPayloadError."""
    found = list(nodes(reader))
    return StreamValue(found, info(reader, kind, len(found)))


def nodes(reader: Reader) -> Iterator[Node]:
    """The nodes, one by one; ``info`` is read after the last one."""
    yield from NodeReader(reader)


class NodeReader:
    """The nodes, one by one or many at a time; ``info`` is read after the last one."""

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
    """A count of items, for which enough bytes are left."""
    found = reader.length()
    left = reader.left
    if found > (I64_MAX if left is None else left // _LEAST_BYTES[of]):
        raise reader.error(f"{found} {of}, which the rest has no bytes for")
    return found


def info(reader: Reader, kind: int, node_count: int) -> StreamInfoValue:
    """All that follows the nodes."""
    found = StreamInfoValue(reader.length(), reader.id())
    if found.length and not node_count:
        raise reader.error(f"{found.length} entries and no node")
    if found.length > I64_MAX:
        raise reader.error(f"{found.length} entries")
    if kind >= codes.LISTPACKS_2:
        found.first, found.max_deleted = reader.id(), reader.id()
        found.entries_added = reader.length()
    _groups(reader, kind, found)
    if kind >= codes.LISTPACKS_4:
        found.idempotence = _idempotence(reader)
    found.too_long, reader.too_long = reader.too_long, None
    return found


# -- groups ---------------------------------------------------------------------------------------
# A length, and a string that is short or a number: as ``Reader.length`` and ``Reader.string``.
_LENGTH = rb"([\x00-\x3f]|[\x40-\x7f].|\x80.{4}|\x81.{8})"
_NAME = b"|".join(
    [rb"\xc0.", rb"\xc1.{2}", rb"\xc2.{4}", rb"\x00"]
    + [b"\\x%02x.{%d}" % (size, size) for size in range(1, 64)]
)
_NUMBER_NAME = 0xC0


@cache
def _plain(kind: int) -> re.Pattern[bytes]:
    """Of this type, a group without consumers as it stands in a payload: its name, the two halves
    of its last ID, how many entries it read; no pending entry, no consumer, none given back."""
    read = _LENGTH if kind >= codes.LISTPACKS_2 else b"()"
    nothing = b"\x00\x00\x00" if kind >= codes.LISTPACKS_5 else b"\x00\x00"
    return re.compile(b"(" + _NAME + b")" + 2 * _LENGTH + read + nothing, re.DOTALL)


def _number_name(packed: bytes) -> bytes:
    return b"%d" % int.from_bytes(packed[1:], "little", signed=True)


def _number(packed: bytes) -> int:
    size = len(packed)
    if size == 1:
        return packed[0]
    if size == 2:
        return (packed[0] & 0x3F) << 8 | packed[1]
    return int.from_bytes(packed[1:], "big")


class PackedGroups:
    """Groups that were read and verified, kept as the bytes they came as: a group of a few bytes
    would take hundreds as values, and there may be as many as the payload has room for.

    ``places`` says of each where it begins in ``data``: strings of ``PLACE_BYTES``, one behind the
    other, the digest of the name and the offset, ascending.
    """

    def __init__(self, data: bytes, kind: int, places: bytes, pending: int) -> None:
        self._data = data
        self._kind = kind
        self._places = places
        self.pending = pending  # entries, of all groups

    def __len__(self) -> int:
        return len(self._places) // PLACE_BYTES

    def __iter__(self) -> Iterator[GroupValue]:
        reader = Reader(self._data)
        for _ in range(len(self)):
            yield _group(reader, self._kind)

    def by_digest(self) -> Iterator[PlainGroup | GroupValue]:
        """The groups in the order of the digests of their names; see ``value.Groups``."""
        data, match, number = self._data, _plain(self._kind).match, int.from_bytes
        for start in range(0, len(self._places), PLACE_BYTES):
            of_name = self._places[start : start + DIGEST_BYTES]
            at = number(self._places[start + DIGEST_BYTES : start + PLACE_BYTES], "big")
            plain = match(data, at)
            if plain is None:
                yield _group(Reader(data, start=at), self._kind)
                continue
            name, ms, seq, read = plain.groups()
            yield PlainGroup(
                of_name,
                name[1:] if name[0] < _NUMBER_NAME else _number_name(name),
                _number(ms),
                _number(seq),
                signed(_number(read)) if read else None,
            )


def _groups(reader: Reader, kind: int, found: StreamInfoValue) -> None:
    count = _count(reader, "groups")
    if count > GROUPS_AT_ONCE:
        found.packed = _packed(reader, kind, count)
        return
    names: set[bytes] = set()
    for _ in range(count):
        group = _group(reader, kind)
        if group.name in names:
            raise reader.error(_SAME_NAME)
        names.add(group.name)
        found.groups.append(group)


def _packed(reader: Reader, kind: int, count: int) -> PackedGroups:
    reader.keep()
    start, pattern = reader.offset, _plain(kind)
    places: list[bytes] = []
    pending = 0
    for _ in range(count):
        at = reader.offset - start
        plain = reader.match(pattern)
        if plain is not None:
            name = plain[1]
            name = name[1:] if name[0] < _NUMBER_NAME else _number_name(name)
        else:
            group = _group(reader, kind)
            name = group.name
            pending += len(group.pending)
        places.append(digest(name) + at.to_bytes(_OFFSET_BYTES, "big"))
    places.sort()
    of_name = itemgetter(slice(DIGEST_BYTES))
    if any(map(eq, map(of_name, places), map(of_name, islice(places, 1, None)))):
        raise reader.error(_SAME_NAME)
    return PackedGroups(reader.kept(), kind, b"".join(places), pending)


def _group(reader: Reader, kind: int) -> GroupValue:
    name, last = reader.name(NAME_MAX_BYTES), reader.id()
    entries_read = reader.signed() if kind >= codes.LISTPACKS_2 else None
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
    if kind >= codes.LISTPACKS_5:
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
    if not pending.ascends():  # servers write them in order, and accept any
        pending = pending.ordered()
        if not pending.ascends():
            raise reader.error("an entry is pending twice")
    return pending


def _consumer(reader: Reader, kind: int, pending: PendingValue, number: int) -> ConsumerValue:
    name = reader.name(NAME_MAX_BYTES)
    seen_ms = reader.i64()
    active_ms = reader.i64() if kind >= codes.LISTPACKS_3 else seen_ms  # as servers take it
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
