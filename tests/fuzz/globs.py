"""Globs: what fits is what fits by the servers' own way to match, which goes back where it must.

An input is a byte (bit 0: without case), one of the pattern's length, the pattern, then the text.
"""

from __future__ import annotations

from logstore.wire.resp.globs import Glob

SIZE_MAX = 60  # beyond, only that it ends
SEEDS = [
    bytes((how, len(pattern))) + pattern + text
    for how in (0, 1)
    for pattern, text in (
        (b"a*" * 12 + b"b", b"a" * 40), (b"[a-c]?*", b"bxyz"), (b"[^x]*[\\]]", b"a]"),
        (b"h[ae]llo", b"hallo"), (b"\\*a\\", b"*a\\"), (b"[", b"["), (b"*a*b*", b"xxaxxbxx"),
        (b"[z-a]\xff*", b"b\xff\xff"), (b"A?c", b"abC"), (b"*", b""), (b"[a-", b"a"),
        (b"*abcdefghij[xy]*", b"abcdefghiabcdefghijx"),
    )
]  # fmt: skip


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _lower(byte: int) -> int:
    return byte + 32 if 65 <= byte <= 90 else byte


class _Reference:
    """stringmatchlen of the servers, told in Python."""

    def __init__(self, pattern: bytes, text: bytes, *, nocase: bool) -> None:
        self._pattern, self._text, self._nocase = pattern, text, nocase
        self._skip = False  # a longer part for an earlier star cannot fit either

    def fits(self, p: int = 0, s: int = 0) -> bool:
        pattern, text = self._pattern, self._text
        while p < len(pattern) and s < len(text):
            if pattern[p] == 42:
                return self._star(p, s)
            if pattern[p] == 91:
                taken, p = self._class(p, text[s])
                if not taken:
                    return False
                s += 1
            elif pattern[p] == 63:
                s += 1
            else:
                if pattern[p] == 92 and len(pattern) - p >= 2:
                    p += 1
                if self._fold(pattern[p]) != self._fold(text[s]):
                    return False
                s += 1
            p += 1
            if s >= len(text):
                while p < len(pattern) and pattern[p] == 42:
                    p += 1
                break
        return p >= len(pattern) and s >= len(text)

    def _fold(self, byte: int) -> int:
        return _lower(byte) if self._nocase else byte

    def _star(self, p: int, s: int) -> bool:
        pattern, text = self._pattern, self._text
        while p + 1 < len(pattern) and pattern[p + 1] == 42:
            p += 1
        if p + 1 == len(pattern):
            return True
        while s < len(text):
            if self.fits(p + 1, s):
                return True
            if self._skip:
                return False
            s += 1
        self._skip = True
        return False

    def _class(self, p: int, byte: int) -> tuple[bool, int]:
        """Whether a class takes the byte, and the place of its end."""
        pattern, end = self._pattern, len(self._pattern)
        p += 1
        negated = p < end and pattern[p] == 94
        p += negated
        found = False
        while True:
            if end - p >= 2 and pattern[p] == 92:
                p += 1
                found |= pattern[p] == byte
            elif p >= end:
                p -= 1
                break
            elif pattern[p] == 93:
                break
            elif end - p >= 3 and pattern[p + 1] == 45:
                low, high = sorted((_signed(pattern[p]), _signed(pattern[p + 2])))
                at = _signed(byte)
                if self._nocase:
                    low, high, at = _lower(low), _lower(high), _lower(at)
                p += 2
                found |= low <= at <= high
            else:
                found |= self._fold(pattern[p]) == self._fold(byte)
            p += 1
        return found != negated, p


def one(data: bytes) -> None:
    """It fits as it does there."""
    how, size = (*data[:2], 0, 0)[:2]
    pattern, text = data[2 : 2 + size], data[2 + size :]
    found = Glob(pattern, nocase=bool(how & 1)).fits(text)
    if not text or len(pattern) > SIZE_MAX or len(text) > SIZE_MAX:
        return
    wanted = _Reference(pattern, text, nocase=bool(how & 1)).fits()
    assert found == wanted, (pattern, text, found)
