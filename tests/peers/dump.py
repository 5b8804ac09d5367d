"""The payload of DUMP and RESTORE for streams: read any that the peers write, build our own.

A second reader and writer of these payloads, kept minimal and apart from the package: it judges our
interchange code and takes nothing from it. Groups are kept as raw bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

TYPE_STREAM_LISTPACKS_2 = 19  # Redis 7.0
TYPE_STREAM_LISTPACKS_3 = 21  # Redis 7.2 to 8.4, Valkey
VERSION = 11  # what both take together with type 21
_POLY = 0x95AC9329AC4BC9B5  # Jones, reflected

ID = tuple[int, int]


class Metadata(NamedTuple):
    """What follows the nodes; ``groups`` are raw bytes (b"\\0": none)."""

    length: int
    last_id: ID
    first_id: ID
    max_deleted: ID
    entries_added: int
    groups: bytes
    kind: int
    version: int


def _crc_table() -> list[int]:
    table: list[int] = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLY if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()


def crc64(data: bytes) -> int:
    """CRC-64 Jones as the servers have it."""
    crc = 0
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    def take(self, size: int) -> bytes:
        piece = self.data[self.pos : self.pos + size]
        if len(piece) != size:
            raise ValueError(f"the payload ends {size - len(piece)} bytes early")
        self.pos += size
        return piece

    def length(self) -> int:
        """An RDB length; a special string encoding (11......) comes back negative."""
        first = self.take(1)[0]
        match first >> 6:
            case 0:
                return first & 0x3F
            case 1:
                return (first & 0x3F) << 8 | self.take(1)[0]
            case 2:
                return int.from_bytes(self.take(8 if first & 1 else 4), "big")
        return -1 - (first & 0x3F)

    def id(self) -> ID:
        return self.length(), self.length()

    def string(self) -> bytes:
        size = self.length()
        if size >= 0:
            return self.take(size)
        if size >= -3:
            return b"%d" % int.from_bytes(self.take((1, 2, 4)[-1 - size]), "little", signed=True)
        packed, plain = self.length(), self.length()
        return lzf_decompress(self.take(packed), plain)


def lzf_decompress(packed: bytes, size: int) -> bytes:
    """The bytes that LZF packed; ValueError if they are not ``size``."""
    out = bytearray()
    pos = 0
    while pos < len(packed):
        control = packed[pos]
        pos += 1
        if control < 32:
            out += packed[pos : pos + control + 1]
            pos += control + 1
            continue
        count = control >> 5
        if count == 7:
            count += packed[pos]
            pos += 1
        back = ((control & 31) << 8 | packed[pos]) + 1
        pos += 1
        for _ in range(count + 2):
            out.append(out[-back])
    if len(out) != size:
        raise ValueError(f"LZF gave {len(out)} bytes, not {size}")
    return bytes(out)


def parse_dump(payload: bytes) -> tuple[list[tuple[bytes, bytes]], Metadata]:
    """The nodes of a stream's payload, (16-byte key, listpack) each, and what follows them."""
    body, footer = payload[:-10], payload[-10:]
    if crc64(payload[:-8]) != int.from_bytes(footer[2:], "little"):
        raise ValueError("the payload's CRC is wrong")
    kind = body[0]
    if kind not in (TYPE_STREAM_LISTPACKS_2, TYPE_STREAM_LISTPACKS_3):
        raise ValueError(f"type {kind} is no stream that this reader knows")
    reader = _Reader(body[1:])
    nodes = [(reader.string(), reader.string()) for _ in range(reader.length())]
    length = reader.length()
    last_id, first_id, max_deleted = reader.id(), reader.id(), reader.id()
    entries_added = reader.length()
    groups = reader.data[reader.pos :]
    version = int.from_bytes(footer[:2], "little")
    return nodes, Metadata(
        length, last_id, first_id, max_deleted, entries_added, groups, kind, version
    )


def _length(number: int) -> bytes:
    if number < 1 << 6:
        return bytes((number,))
    if number < 1 << 14:
        return bytes((0x40 | number >> 8, number & 0xFF))
    if number < 1 << 32:
        return b"\x80" + number.to_bytes(4, "big")
    return b"\x81" + number.to_bytes(8, "big")


def _string(text: bytes) -> bytes:
    return _length(len(text)) + text


def build_dump(
    nodes: list[tuple[bytes, bytes]],
    length: int,
    last_id: ID,
    first_id: ID,
    max_deleted: ID,
    entries_added: int,
    groups: bytes = b"\0",
) -> bytes:
    """A payload that Redis from 7.2 on and Valkey both RESTORE: type 21, version 11."""
    parts = [bytes((TYPE_STREAM_LISTPACKS_3,)), _length(len(nodes))]
    for key, lp in nodes:
        parts += (_string(key), _string(lp))
    numbers = (length, *last_id, *first_id, *max_deleted, entries_added)
    body = b"".join((*parts, *map(_length, numbers), groups, VERSION.to_bytes(2, "little")))
    return body + crc64(body).to_bytes(8, "little")


def node_key(ms: int, seq: int) -> bytes:
    """The radix tree's key of a node: its master ID, big endian."""
    return ms.to_bytes(8, "big") + seq.to_bytes(8, "big")


def node_id(key: bytes) -> ID:
    """The master ID of a node's key."""
    return int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")


def compressed_dump(peer: Any, key: str) -> bytes:
    """The payload of DUMP, with its strings compressed."""
    peer.command("CONFIG", "SET", "rdbcompression", "yes")
    try:
        packed: bytes = peer.command("DUMP", key)
    finally:
        peer.command("CONFIG", "SET", "rdbcompression", "no")
    return packed
