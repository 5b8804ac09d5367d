"""Bodies of dumps, as bytes."""

from __future__ import annotations

from logstore.rdb.codes import crc64


def body(payload: bytes) -> bytes:
    """A payload without version and checksum."""
    return payload[:-10]


def signed(body: bytes, version: int = 11) -> bytes:
    """A payload of this value, its checksum right."""
    whole = body + version.to_bytes(2, "little")
    return whole + crc64(whole).to_bytes(8, "little")
