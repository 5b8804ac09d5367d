"""Values with their checksums: rows of the index, heads of frames. Compiled twin: _checksums.pxi.

Invariants: the checksum of a row is bound to its key, that of a frame to its store by the seed, so
that a value under another key, or a frame of another store, is not taken for a sound one.

It may not know what a row or a frame holds.
"""

from __future__ import annotations

from logstore.crc import crc32c

_CRC_BYTES = 4


def seal(key: bytes, value: bytes) -> bytes:
    """A value of the index with its CRC.

    Args:
        key: the key that it is to stand under.
        value: the value.

    Returns:
        The value, and behind it 4 bytes.
    """
    return value + crc32c(value, crc32c(key)).to_bytes(_CRC_BYTES, "little")


def unseal(key: bytes, data: bytes) -> bytes | None:
    """A value of the index without its CRC.

    Args:
        key: the key that it stands under.
        data: what ``seal`` gave.

    Returns:
        The value; None if it is not what was sealed for this key.
    """
    value = data[:-_CRC_BYTES]
    if len(data) < _CRC_BYTES:
        return None
    if crc32c(value, crc32c(key)) != int.from_bytes(data[-_CRC_BYTES:], "little"):
        return None
    return value


def frame_head(covered: bytes, payload: bytes, seed: int) -> tuple[int, bytes]:
    """The head of a frame, whose CRC covers its position, too, which does not stand in it.

    Args:
        covered: the position as 8 bytes, and behind it all of the head but the CRC.
        payload: what stands behind the head.
        seed: what binds CRCs to the store.

    Returns:
        The CRC, and the head that begins with it.
    """
    crc: int = crc32c(payload, crc32c(covered, seed))
    return crc, crc.to_bytes(_CRC_BYTES, "little") + covered[8:]
