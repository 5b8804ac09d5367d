"""Requests of the Redis protocol that are there whole and plain: arrays of bulk strings.

Invariants: only what is complete and exactly as clients write it is taken; at whatever is not, it
stops, and leaves it to who knows what to say of it; nothing is read behind the bytes there are.

It may not know a command.
"""

from __future__ import annotations

from typing import Final

REQUEST_MAX_WORDS: Final = 1024 * 1024
_STAR, _DOLLAR, _CR, _LF, _ZERO = b"*$\r\n0"
_DIGITS_MAX = 9


def resp_requests(data: bytearray, at: int, bulk_max_bytes: int) -> tuple[list[list[bytes]], int]:
    """Requests from byte ``at`` on, and the byte behind the last of them that is whole."""
    found: list[list[bytes]] = []
    while True:
        count, begin = _number(data, at, _STAR)
        if not 0 < count <= REQUEST_MAX_WORDS:
            return found, at
        words: list[bytes] = []
        while len(words) < count:
            size, begin = _number(data, begin, _DOLLAR)
            if not 0 <= size <= bulk_max_bytes or len(data) - begin < size + 2:
                return found, at
            end = begin + size
            if data[end] != _CR or data[end + 1] != _LF:
                return found, at
            words.append(bytes(data[begin:end]))
            begin = end + 2
        found.append(words)
        at = begin


def _number(data: bytearray, at: int, mark: int) -> tuple[int, int]:
    """The number behind ``mark``, and the byte behind its line; -1 if there is none like it."""
    if at >= len(data) or data[at] != mark:
        return -1, at
    end = data.find(b"\r\n", at + 1, at + _DIGITS_MAX + 3)
    digits = data[at + 1 : end]
    if end < 0 or not digits.isdigit() or (digits[0] == _ZERO and len(digits) > 1):
        return -1, at
    return int(digits), end + 2
