"""Writing RDB: lengths and strings, the value of a stream as one of its types, files of streams.

Invariants: numbers and strings have the shortest form that servers write, but no LZF, which every
reader can do without. A value that is written with the type that it was read with has the same
bytes, except for compression. What a type cannot hold is left out (idempotent adds before type 26;
with older types first ID, counts, activity). Entries that were given back are never left out:
before type 27 they go to a consumer without a name, as delivered at time 0, so that any claim takes
them. A group has never read more entries than were added, for newer servers would refuse the whole
file. A file is written in pieces, and is whole only with its end, ``FileWriter.finish``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator

from logstore.ids import StreamID
from logstore.rdb import codes
from logstore.rdb.codes import crc64
from logstore.rdb.value import (
    NOBODY,
    ConsumerValue,
    GroupValue,
    Idempotence,
    Node,
    StreamInfoValue,
)

# -- Lengths and strings --------------------------------------------------------------------------
_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,9}")
_I64 = struct.Struct("<q")


def length(number: int) -> bytes:
    """A length or count, up to 2^64-1."""
    if number < 1 << 6:
        return bytes((number,))
    if number < 1 << 14:
        return bytes((0x40 | number >> 8, number & 0xFF))
    if number < 1 << 32:
        return b"\x80" + number.to_bytes(4, "big")
    return b"\x81" + number.to_bytes(8, "big")


def signed(number: int) -> bytes:
    """A signed number of 64 bits as a length."""
    return length(number & (1 << 64) - 1)


def i64(number: int) -> bytes:
    """A time: eight bytes, little endian."""
    return _I64.pack(number)


def string(text: bytes) -> bytes:
    """A string; a short one that is the plain form of a number is stored as that."""
    if len(text) <= 11 and _INTEGER.fullmatch(text):
        number = int(text)
        for code, size in ((b"\xc0", 1), (b"\xc1", 2), (b"\xc2", 4)):
            if -(1 << 8 * size - 1) <= number < 1 << 8 * size - 1:
                return code + number.to_bytes(size, "little", signed=True)
    return length(len(text)) + text


# -- Streams --------------------------------------------------------------------------------------
NOBODYS_NAME = b""
NOTHING_REMEMBERED = Idempotence(100, 100, [], 0, 0)  # of a new stream, as on servers


def kind_of(found: StreamInfoValue, most: int) -> int:
    """The type that holds all of a stream, at least 21, at most ``most``: the lowest, so that as
    many servers as can take it."""
    kind = codes.LISTPACKS_3
    if most >= codes.LISTPACKS_4 and found.idempotence not in (None, NOTHING_REMEMBERED):
        kind = codes.LISTPACKS_4
    if most >= codes.LISTPACKS_5 and any(group.nacked for group in found.all_groups()):
        kind = codes.LISTPACKS_5
    return kind


def node_pieces(count: int, found: Iterable[Node]) -> Iterator[bytes]:
    """The ``count`` nodes, in pieces to be written one after the other."""
    yield length(count)
    for master, lp in found:
        yield length(len(master)) + master + length(len(lp))
        yield lp


def info_pieces(found: StreamInfoValue, kind: int) -> Iterator[bytes]:
    """All that follows the nodes."""
    yield length(found.length) + _id(found.last)
    if kind >= codes.LISTPACKS_2:
        assert found.first is not None
        assert found.entries_added is not None
        yield _id(found.first) + _id(found.max_deleted) + length(found.entries_added)
    groups = sorted(found.all_groups(), key=lambda each: each.name)
    yield length(len(groups))
    for group in groups:
        yield from _group(group, kind, found)
    if kind >= codes.LISTPACKS_4:
        yield from _idempotence(found.idempotence or NOTHING_REMEMBERED)


def _idempotence(found: Idempotence) -> Iterator[bytes]:
    yield length(found.duration_s) + length(found.max_ids) + length(len(found.producers))
    for producer, items in found.producers:
        yield string(producer) + length(len(items))
        for name, id in items:
            yield string(name) + _id(id)
    yield length(found.added) + length(found.duplicates)


def _id(id: StreamID) -> bytes:
    return length(id.ms) + length(id.seq)


def _group(group: GroupValue, kind: int, found: StreamInfoValue) -> Iterator[bytes]:
    yield string(group.name) + _id(group.last)
    if kind >= codes.LISTPACKS_2:
        read = found.read_by(group)
        assert read is not None
        yield signed(read)
    pending = group.pending
    yield length(len(pending))
    places: list[list[int]] = [[] for _ in range(len(group.consumers) + 1)]
    for place, owner in enumerate(pending.owners):
        time_ms = pending.times[place] if owner != NOBODY else 0
        yield pending.id_at(place) + i64(time_ms) + length(pending.counts[place])
        places[owner].append(place)
    consumers = [(each, places[at]) for at, each in enumerate(group.consumers, 1)]
    if kind < codes.LISTPACKS_5:
        consumers = _with_nobodys(consumers, places[NOBODY])
    yield from _consumers(group, kind, sorted(consumers, key=lambda each: each[0].name))
    if kind >= codes.LISTPACKS_5:
        yield length(len(group.nacked)) + b"".join(group.nacked)


def _with_nobodys(
    consumers: list[tuple[ConsumerValue, list[int]]], given_back: list[int]
) -> list[tuple[ConsumerValue, list[int]]]:
    """The consumers, with one without a name for entries that were given back."""
    if given_back:
        for place, (consumer, places) in enumerate(consumers):
            if consumer.name == NOBODYS_NAME:
                consumers[place] = (consumer, sorted(places + given_back))
                break
        else:
            consumers.append((ConsumerValue(NOBODYS_NAME, 0, -1), given_back))
    return consumers


def _consumers(
    group: GroupValue, kind: int, consumers: list[tuple[ConsumerValue, list[int]]]
) -> Iterator[bytes]:
    yield length(len(consumers))
    for consumer, places in consumers:
        yield string(consumer.name) + i64(consumer.seen_ms)
        if kind >= codes.LISTPACKS_3:
            yield i64(consumer.active_ms)
        yield length(len(places))
        yield b"".join([group.pending.id_at(place) for place in places])


# -- Files ----------------------------------------------------------------------------------------
_AUX, _EXPIRES_MS, _SELECT, _END = b"\xfa", b"\xfc", b"\xfe", b"\xff"
PIECE_BYTES = 256 * 1024


class FileWriter:
    """Writes one file through ``write``; ``notes`` say who made it. Its streams have type 21, or
    ``kind_of`` with ``most``, the newest type that who is to load it knows."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        notes: Iterable[tuple[bytes, bytes]] = (),
        most: int = codes.LISTPACKS_3,
    ) -> None:
        self._write = write
        self._most = most
        self._crc = 0
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._put(b"REDIS%04d" % codes.VERSION_OF[most])
        for name, value in notes:
            self._put(_AUX + string(name) + string(value))
        self._put(_SELECT + length(0))

    def stream(
        self,
        name: bytes,
        node_count: int,
        nodes: Iterable[Node],
        info: StreamInfoValue,
        expires_ms: int | None = None,
        schema: str = "",
    ) -> None:
        """Write one stream; ``nodes`` are as many as ``node_count`` says. Before it goes the text
        of its schema, if it has one."""
        if schema:
            self._put(_AUX + string(codes.SCHEMA_NOTE) + string(schema.encode()))
        if expires_ms is not None:
            self._put(_EXPIRES_MS + i64(expires_ms))
        kind = kind_of(info, self._most)
        self._put(bytes((kind,)) + string(name))
        for piece in node_pieces(node_count, nodes):
            self._put(piece)
        for piece in info_pieces(info, kind):
            self._put(piece)

    def finish(self) -> None:
        """Write the end and the checksum."""
        self._put(_END)
        self._flush()
        self._write(self._crc.to_bytes(8, "little"))

    def _put(self, piece: bytes) -> None:
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes >= PIECE_BYTES:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        self._crc = crc64(data, self._crc)
        self._write(data)
