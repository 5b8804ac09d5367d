"""RDB files: refused by a typed error, or the same streams however the bytes come.

An input is one byte of how long the pieces are, then a file from its first byte on; the checksum at
its end is left out (eight zeros: the server wrote none).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from logstore.codec import Codec, native_or_none, pure
from logstore.errors import InvalidPayloadError, TooLargeError
from logstore.ids import ZERO_ID
from logstore.rdb.file_reader import FileReader, verify
from tests.fuzz.corpus import using
from tests.fuzz.payloads import SEEDS as VALUES

CODECS: list[Codec] = [each for each in (pure, native_or_none) if each is not None]
MOST_BYTES = 1 << 20
NO_CRC = bytes(8)


def _seeds() -> list[bytes]:
    keys = b"".join(value[:1] + b"\x01s" + value[1:] for value in VALUES[:3])
    listpack = b"\x07\x07\x00\x00\x00\x00\x00\xff"  # an empty one, as a string
    others = (
        b"\x00\x01t\x05hello", b"\x00\x01n\xc1\x39\x30", b"\x04\x01h\x01\x01f\x01v",
        b"\x02\x02se\x01\x01m", b"\x05\x01z\x01\x01m" + bytes(8),
        b"\x12\x01l\x01\x02" + listpack, b"\x0b\x01i\x08" + bytes(8), b"\x10\x02hl" + listpack,
    )  # fmt: skip
    head = b"REDIS0012\xfa\x09redis-ver\x058.2.3\xfe\x00\xfb\x03\x01"
    other = b"".join(others)
    expiring = b"\xfc" + (10**12).to_bytes(8, "little") + b"\xf8\x07" + b"\xf9\x03"
    aux = b"\xf7\x81" + bytes(7) + b"\x09\x02\x01\x00\xf5\x03lib"
    return [
        bytes((how,)) + head + body + b"\xff"
        for how in (0, 7)
        for body in (b"", keys, other + keys, expiring + keys, aux + other)
    ] + [b"\x00VALKEY080" + keys + b"\xff", b"\x00REDIS0003\xff"]


SEEDS = _seeds()


def source(data: bytes, piece: int) -> Callable[[int], bytes]:
    """The bytes in pieces."""
    stream = io.BytesIO(data)
    return lambda size: stream.read(min(size, piece or size))


def outcome(codec: Codec, data: bytes, piece: int, *, batched: bool) -> Any:
    """The streams, or that it is refused."""
    found: list[Any] = []
    with using(codec):
        try:
            reader = FileReader(source(data, piece))
            for key in reader.streams():
                nodes = 0
                while batched and len(batch := key.batch(ZERO_ID)):
                    nodes += len(batch)
                value = key.value(MOST_BYTES)
                found.append((key.name, key.database, key.expires_ms, nodes + len(value.nodes),
                              value.info))  # fmt: skip
            found.append((dict(reader.skipped), reader.notes))
        except (InvalidPayloadError, TooLargeError) as exc:
            return [type(exc)]
    return found


def one(data: bytes) -> None:
    """All ways to read it tell the same."""
    piece, whole = data[0] if data else 0, data[1:] + NO_CRC
    wanted = outcome(pure, whole, 0, batched=False)
    for codec in CODECS:
        for way in ((piece, False), (0, True), (piece, True)):
            found = outcome(codec, whole, way[0], batched=way[1])
            assert found == wanted, (codec, way, found, wanted)
    try:
        verify(source(whole, piece))
    except InvalidPayloadError:
        return
