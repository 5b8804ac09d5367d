"""LZF, in which servers compress the nodes that they dump: decompression only.

A control byte below 32 is followed by that many literal bytes and one more; any other says how far
back to copy from, and how much.

Invariants: the output never grows past the size that was announced, and that is refused where so
few bytes could not give it; whatever is wrong is a CorruptNodeError.

It may not know what was compressed.
"""

from __future__ import annotations

from typing import Final

from logstore.errors import CorruptNodeError

RATIO_MAX: Final = 88  # three bytes give 264 at most


def lzf_decompress(packed: bytes, size: int) -> bytes:
    """The ``size`` bytes that were compressed."""
    if not 0 <= size <= len(packed) * RATIO_MAX:
        raise _damaged()
    out = bytearray()
    at, end = 0, len(packed)
    while at < end:
        control = packed[at]
        at += 1
        if control < 32:
            literal = packed[at : at + control + 1]
            if len(literal) <= control:
                raise _damaged()
            out += literal
            at += control + 1
        else:
            at = _copy(packed, at, control, out)
        if len(out) > size:
            raise _damaged()
    if len(out) != size:
        raise _damaged()
    return bytes(out)


def _copy(packed: bytes, at: int, control: int, out: bytearray) -> int:
    """Copy what a control byte points back to; where the next one stands."""
    count = (control >> 5) + 2
    needed = 2 if count == 9 else 1
    if at + needed > len(packed):
        raise _damaged()
    if needed == 2:
        count += packed[at]
        at += 1
    back = ((control & 31) << 8 | packed[at]) + 1
    start = len(out) - back
    if start < 0:
        raise _damaged()
    if back >= count:
        out += out[start : start + count]
    else:  # it copies what it has just written
        piece = bytes(out[start:])
        out += (piece * (count // back + 1))[:count]
    return at + 1


def _damaged() -> CorruptNodeError:
    return CorruptNodeError("a compressed string is damaged")
