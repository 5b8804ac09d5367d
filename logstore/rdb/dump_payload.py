"""DUMP payloads: the type, the value, two bytes of version, eight bytes of CRC-64.

Invariants: nothing of a payload is read before its CRC fits. Bytes between the value and the
version are an error (servers ignore them).
"""

from __future__ import annotations

from logstore.errors import InvalidPayloadError, OptionError, TooLargeError
from logstore.rdb import codes, rdb_writer, stream_reader
from logstore.rdb.codes import crc64
from logstore.rdb.rdb_reader import Reader
from logstore.rdb.value import StreamValue

PAYLOAD_MAX_BYTES = 512 << 20  # servers take no longer argument
_FOOTER_BYTES, _CRC_BYTES = 10, 8


def decode(payload: bytes) -> StreamValue:
    """The stream of a payload; InvalidPayloadError, TooLargeError."""
    if len(payload) > PAYLOAD_MAX_BYTES:
        raise TooLargeError(
            f"a payload of {len(payload)} bytes, {PAYLOAD_MAX_BYTES} at most: take an RDB file"
        )
    body = memoryview(payload)[:-_CRC_BYTES]
    version = int.from_bytes(payload[-_FOOTER_BYTES:-_CRC_BYTES], "little")
    if len(payload) <= _FOOTER_BYTES or crc64(body) != int.from_bytes(payload[-8:], "little"):
        raise InvalidPayloadError(
            "DUMP payload version or checksum are wrong: it is damaged, or no DUMP payload"
        )
    if not version:
        raise InvalidPayloadError(
            "DUMP payload version or checksum are wrong: there is no version 0 of RDB"
        )
    kind = payload[0]
    if not codes.readable(kind, version):
        raise InvalidPayloadError(
            f"Bad data format: type {kind} of RDB version {version} is no stream that is known"
        )
    codes.warn_of(version)
    reader = Reader(payload[1:-_FOOTER_BYTES])
    found = stream_reader.read(reader, kind)
    if not reader.ended():
        raise reader.error("something stands behind the stream")
    return found


def encode(value: StreamValue, kind: int = codes.LISTPACKS_3, version: int | None = None) -> bytes:
    """A payload of one of the types 15, 19, 21, 26 and 27, which servers RESTORE.

    Type 21 with its version 11 is taken by Redis from 7.2 on and by every Valkey, type 19 also by
    Redis 7.0, type 15 by Redis 5, type 26 by Redis from 8.6 on, type 27 from 8.8 on. OptionError
    for another type, TooLargeError.
    """
    if kind not in codes.VERSION_OF:
        raise OptionError(f"streams are written as type 15, 19, 21, 26 or 27, not {kind}")
    version = codes.VERSION_OF[kind] if version is None else version
    size = sum(len(lp) for _, lp in value.nodes)
    if size > PAYLOAD_MAX_BYTES:
        raise TooLargeError(
            f"the stream's nodes have {size} bytes, more than servers take at once "
            f"({PAYLOAD_MAX_BYTES}): write an RDB file"
        )
    pieces = [bytes((kind,))]
    pieces += rdb_writer.node_pieces(len(value.nodes), value.nodes)
    pieces += rdb_writer.info_pieces(value.info, kind)
    pieces.append(version.to_bytes(2, "little"))
    body = b"".join(pieces)
    return body + crc64(body).to_bytes(8, "little")
