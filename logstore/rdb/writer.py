"""Writing lengths and strings of RDB, as servers write them without compression.

Invariants: the shortest form of each, but no LZF, which every reader does without.
"""

from __future__ import annotations

import re
import struct

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
