"""Listpack: the byte string a macro node is kept in, element by element.

Layout: u32 total bytes (little endian, header and end byte included), u16 number of elements
(65535 = unknown, and it stays so), the elements, 0xFF. An element is its encoding byte(s) and
data, then the *backlen*: the length of these, in 1 to 5 bytes that are read from right to left,
so that a listpack can be walked from its end.

Invariants: a string that is the canonical decimal form of an int64 is stored as an integer of the
smallest width, and decoding gives the same bytes back. Every read checks its bounds and the
backlen before it returns; whatever is wrong is a CorruptNodeError.

The peers do not agree on one thing: where an element takes 2**14 - 1, 2**21 - 1 or 2**28 - 1 bytes
(a string of 16378 bytes is the first), Redis writes a backlen that is one byte longer than
Valkey's, and each refuses the other's. We write as Redis does and read both.

It may not know what the elements mean: that is node.py.
"""

from __future__ import annotations

import re
from typing import Final

from logstore.errors import CorruptNodeError, TooLargeError

HEADER_BYTES: Final = 6
END_BYTE: Final = 0xFF
COUNT_UNKNOWN: Final = 0xFFFF
TOTAL_MAX: Final = 0xFFFFFFFF

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_CANONICAL_INT: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_DISPUTED: Final = (2**14 - 1, 2**21 - 1, 2**28 - 1)
_INT_WIDTHS: Final = {0xF1: 2, 0xF2: 3, 0xF3: 4, 0xF4: 8}


def parse_int(text: bytes) -> int | None:
    """The int64 that ``text`` is the canonical decimal form of, or None."""
    if len(text) > 20 or _CANONICAL_INT.fullmatch(text) is None:
        return None
    number = int(text)
    return number if _INT64_MIN <= number <= _INT64_MAX else None


def backlen(length: int) -> bytes:
    """The backlen of an element whose encoding and data take ``length`` bytes."""
    if length <= 127:
        return bytes((length,))
    if length < 16383:
        return bytes((length >> 7, length & 127 | 128))
    if length < 2097151:
        return bytes((length >> 14, length >> 7 & 127 | 128, length & 127 | 128))
    high = (length >> 21 & 127 | 128, length >> 14 & 127 | 128, length >> 7 & 127 | 128)
    if length < 268435455:
        return bytes((high[0] & 127, high[1], high[2], length & 127 | 128))
    return bytes((length >> 28, *high, length & 127 | 128))


def _short_backlen(length: int) -> bytes:
    """The backlen that Valkey gives the lengths of _DISPUTED: all bits set, in one byte less."""
    return b"\x7f" + b"\xff" * (length.bit_length() // 7 - 1)


def encode_int(number: int) -> bytes:
    """The element of an int64, in its smallest form."""
    if 0 <= number <= 127:
        return bytes((number, 1))
    if -4096 <= number <= 4095:
        return bytes((0xC0 | number >> 8 & 0x1F, number & 0xFF, 2))
    for code, width in _INT_WIDTHS.items():
        if -(1 << 8 * width - 1) <= number < 1 << 8 * width - 1:
            return bytes((code, *number.to_bytes(width, "little", signed=True), width + 1))
    raise OverflowError(f"{number} is no int64")


def encode_string(text: bytes) -> bytes:
    """The element of a byte string, stored as a string."""
    length = len(text)
    if length < 64:
        head = bytes((0x80 | length,))
    elif length < 4096:
        head = bytes((0xE0 | length >> 8, length & 0xFF))
    elif length <= TOTAL_MAX:
        head = b"\xf0" + length.to_bytes(4, "little")
    else:
        raise TooLargeError(f"a string of {length} bytes does not fit a node; split it")
    return head + text + backlen(len(head) + length)


def encode(text: bytes) -> bytes:
    """The element of a field or value: an integer where the text is one, a string otherwise."""
    number = parse_int(text)
    return encode_string(text) if number is None else encode_int(number)


def check(lp: bytes) -> int:
    """Check header and end byte; return the offset of the end byte."""
    total = len(lp)
    if total <= HEADER_BYTES:
        raise CorruptNodeError(f"a listpack of {total} bytes is too short to be one")
    if int.from_bytes(lp[:4], "little") != total:
        raise CorruptNodeError(f"the listpack's header does not say {total} bytes")
    if lp[-1] != END_BYTE:
        raise CorruptNodeError("the listpack does not end with 0xFF")
    return total - 1


def stored_count(lp: bytes) -> int:
    """The number of elements as the header has it; COUNT_UNKNOWN if it does not tell."""
    return lp[4] | lp[5] << 8


def finish(elements: int, *pieces: bytes) -> bytes:
    """A listpack of ``elements`` elements whose bytes are the joined ``pieces``."""
    total = HEADER_BYTES + sum(map(len, pieces)) + 1
    if total > TOTAL_MAX:
        raise TooLargeError(f"a node of {total} bytes is larger than a listpack can be")
    count = min(elements, COUNT_UNKNOWN).to_bytes(2, "little")
    return b"".join((total.to_bytes(4, "little"), count, *pieces, b"\xff"))


def _shape(lp: bytes, pos: int) -> tuple[int, int]:
    """Length of the encoding bytes before a string's data (0: an integer), and of both."""
    code = lp[pos]
    if code < 0x80:
        return 0, 1
    if code < 0xC0:
        return 1, 1 + (code & 0x3F)
    if code < 0xE0:
        return 0, 2
    if code < 0xF0:
        return 2, 2 + ((code & 0x0F) << 8 | lp[pos + 1])
    if code == 0xF0:
        return 5, 5 + int.from_bytes(lp[pos + 1 : pos + 5], "little")
    if code in _INT_WIDTHS:
        return 0, 1 + _INT_WIDTHS[code]
    raise CorruptNodeError(f"no element begins with byte 0x{code:02x} (at {pos})")


def _after(lp: bytes, pos: int, size: int, end: int) -> int:
    """Offset behind the element at ``pos`` of ``size`` bytes; its backlen is checked."""
    if pos + size >= end:
        raise CorruptNodeError(f"the element at {pos} runs past the end of the listpack")
    if size <= 127:
        if lp[pos + size] == size:
            return pos + size + 1
    else:
        tail = backlen(size)
        after = pos + size + len(tail)
        if after <= end and lp[pos + size : after] == tail:
            return after
        if size in _DISPUTED:
            tail = _short_backlen(size)
            after -= 1
            if after <= end and lp[pos + size : after] == tail:
                return after
    raise CorruptNodeError(f"the element at {pos} has a wrong back length")


def _need(pos: int, end: int) -> None:
    if pos >= end:
        raise CorruptNodeError("the listpack ends before its last element")


def skip(lp: bytes, pos: int, end: int) -> int:
    """Offset of the element after the one at ``pos``."""
    _need(pos, end)
    return _after(lp, pos, _shape(lp, pos)[1], end)


def read(lp: bytes, pos: int, end: int) -> tuple[bytes | int, int]:
    """The element at ``pos``, a string or an integer as it is stored, and the offset after it."""
    _need(pos, end)
    head, size = _shape(lp, pos)
    after = _after(lp, pos, size, end)
    if head:
        return lp[pos + head : pos + size], after
    code = lp[pos]
    if size == 1:
        return code, after
    if size == 2:
        number = (code & 0x1F) << 8 | lp[pos + 1]
        return number - 8192 if number > 4095 else number, after
    return int.from_bytes(lp[pos + 1 : pos + size], "little", signed=True), after


def read_bytes(lp: bytes, pos: int, end: int) -> tuple[bytes, int]:
    """The element at ``pos`` as the bytes that were stored, and the offset after it."""
    value, after = read(lp, pos, end)
    return (value if isinstance(value, bytes) else b"%d" % value), after


def read_int(lp: bytes, pos: int, end: int) -> tuple[int, int]:
    """The element at ``pos``, which must be an integer, and the offset after it."""
    value, after = read(lp, pos, end)
    if isinstance(value, bytes):
        number = parse_int(value)
        if number is None:
            raise CorruptNodeError(f"the element at {pos} must be an integer and is not")
        return number, after
    return value, after


def before(lp: bytes, pos: int, end: int) -> int:
    """Offset of the element that ends at ``pos`` (which may be the end byte's offset)."""
    length = shift = 0
    at = pos
    while True:
        at -= 1
        if at < HEADER_BYTES or shift > 28:
            raise CorruptNodeError(f"no element ends at {pos}")
        length |= (lp[at] & 127) << shift
        shift += 7
        if lp[at] < 128:
            break
    start = at - length
    if start < HEADER_BYTES or skip(lp, start, end) != pos:
        raise CorruptNodeError(f"no element ends at {pos}")
    return start


def respell(lp: bytes, *, valkey: bool) -> bytes:
    """The listpack with the backlens that Valkey, or Redis, writes where the two do not agree."""
    end = check(lp)
    if end <= _DISPUTED[0]:
        return lp
    pieces: list[bytes] = []
    copied = pos = HEADER_BYTES
    while pos < end:
        after = skip(lp, pos, end)
        size = _shape(lp, pos)[1]
        if size in _DISPUTED:
            pieces += (lp[copied : pos + size], _short_backlen(size) if valkey else backlen(size))
            copied = after
        pos = after
    return finish(stored_count(lp), *pieces, lp[copied:end]) if pieces else lp
