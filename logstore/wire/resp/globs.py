"""Glob patterns as Redis reads them, for KEYS, SCAN, CONFIG GET, COMMAND LIST and transfers.

``*`` stands for any bytes, ``?`` for one, ``[a-c]`` and ``[^x]`` for one of a class, and ``\\``
goes before what is meant literally. A class that is not closed goes to the end of the pattern.

Nothing here goes back: the pattern is cut at its stars into segments, each of which stands for a
fixed number of bytes, so that the leftmost place of each is the right one. A segment of literals is
found by ``bytes.find``; one with many other parts by bit-parallel matching (shift-and), one step
for each byte. Invariant: a pattern is read at its first use, and no further than names can be long,
so that making one costs nothing where it is made.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

from logstore.options import NAME_MAX_BYTES

_LITERALS = re.compile(rb"[^*?\[\\]+")
_STARS = re.compile(rb"\*+")
_FEW = 8  # parts of a segment that are simply compared at each place
_STAR, _QUESTION, _BRACKET, _ESCAPE = b"*?[\\"


class _Segment:
    """What stands between two stars: as many bytes as it has elements."""

    def __init__(self) -> None:
        self.length = 0
        self._literals: list[tuple[int, bytes]] = []  # by their places
        self._classes: list[tuple[int, bytes]] = []  # a table of 256 for each
        self._run: list[bytes] = []  # literals behind each other, not in the list yet
        self._rows: dict[int, int] = {}  # by byte: a bit for each element that takes it

    def literal(self, text: bytes) -> None:
        """Bytes that stand for themselves."""
        self._run.append(text)
        self.length += len(text)

    def one_of(self, table: bytes | None) -> None:
        """One byte of a class; None: any byte."""
        self.end()
        if table is not None:
            self._classes.append((self.length, table))
        self.length += 1

    def end(self) -> None:
        """The literals that came last are whole."""
        if self._run:
            run = b"".join(self._run)
            self._literals.append((self.length - len(run), run))
            self._run = []

    def at(self, text: bytes, folded: bytes, place: int) -> bool:
        """Whether it stands at a place that has room for it."""
        for offset, literal in self._literals:
            if not folded.startswith(literal, place + offset):
                return False
        return all(table[text[place + offset]] for offset, table in self._classes)

    def find(self, text: bytes, folded: bytes, start: int, end: int) -> int:
        """The first place in ``text[start:end]`` at which it stands; -1: nowhere."""
        if end - start < self.length:
            return -1
        if len(self._literals) + len(self._classes) > _FEW:
            return self._shift_and(text, folded, start, end)
        if not self._literals:
            last = end - self.length
            return next((at for at in range(start, last + 1) if self.at(text, folded, at)), -1)
        offset, literal = max(self._literals, key=lambda placed: len(placed[1]))
        alone = len(literal) == self.length
        end -= self.length - offset - len(literal)
        place = folded.find(literal, start + offset, end)
        while place >= 0 and not alone and not self.at(text, folded, place - offset):
            place = folded.find(literal, place + 1, end)
        return place if place < 0 else place - offset

    def _shift_and(self, text: bytes, folded: bytes, start: int, end: int) -> int:
        state, rows, last = 0, self._rows, self.length - 1
        for place in range(start, end):
            byte = text[place]
            row = rows.get(byte)
            if row is None:
                row = rows[byte] = self._row(byte, folded[place])
            state = (state << 1 | 1) & row
            if state >> last:
                return place - last
        return -1

    @cached_property
    def _template(self) -> tuple[bytes, int, int]:
        """The literals at their places, backwards; bits of these, and of those that take any."""
        text, fixed, any_of = (bytearray(b"0" * self.length) for _ in range(3))
        any_of[:] = b"1" * self.length
        for offset, literal in self._literals:
            end = offset + len(literal)
            text[offset:end] = literal
            fixed[offset:end] = b"1" * len(literal)
            any_of[offset:end] = b"0" * len(literal)
        for offset, _ in self._classes:
            any_of[offset] = 48
        return bytes(text[::-1]), int(fixed[::-1], 2), int(any_of[::-1], 2)

    def _row(self, byte: int, folded: int) -> int:
        template, fixed, any_of = self._template
        equal = bytearray(b"0" * 256)
        equal[folded] = 49
        row = int(template.translate(bytes(equal)), 2) & fixed | any_of
        taken = bytearray(b"0" * self.length)
        for offset, table in self._classes:
            if table[byte]:
                taken[-1 - offset] = 49
        return row | int(taken, 2)


class _Read(NamedTuple):
    """A pattern cut into segments."""

    first: _Segment
    between: list[_Segment]
    last: _Segment | None  # None: there is no star
    length: int  # of all segments


class Glob:
    """One pattern; with ``nocase`` an ASCII letter fits in both cases."""

    def __init__(self, pattern: bytes, *, nocase: bool = False) -> None:
        self.pattern = pattern
        self._nocase = nocase

    def fits(self, text: bytes) -> bool:
        """Whether a name, or another text of at most so many bytes, fits."""
        if not text:  # the servers do not look for a star in it, but know "*" before they look
            return self.pattern in (b"", b"*")
        read = self._read
        size = len(text)
        if read is None or size < read.length:
            return False
        folded = text.lower() if self._nocase else text
        first, last = read.first, read.last
        if last is None:
            return size == first.length and first.at(text, folded, 0)
        at, end = first.length, size - last.length
        if not first.at(text, folded, 0) or not last.at(text, folded, end):
            return False
        for segment in read.between:
            at = segment.find(text, folded, at, end)
            if at < 0:
                return False
            at += segment.length
        return True

    @cached_property
    def _read(self) -> _Read | None:
        """The pattern; None if it is longer than any name."""
        pattern, at, end = self.pattern, 0, len(self.pattern)
        segments = [_Segment()]
        tables: dict[bytes, bytes] = {}
        length = 0
        while at < end and length <= NAME_MAX_BYTES:
            char, segment = pattern[at], segments[-1]
            before = segment.length
            if match := _STARS.match(pattern, at):
                at = match.end()
                segments.append(_Segment())
            elif match := _LITERALS.match(pattern, at):
                segment.literal(self._folded(match[0]))
                at = match.end()
            elif char == _QUESTION:
                segment.one_of(None)
                at += 1
            elif char == _BRACKET:
                behind = _class_end(pattern, at + 1)
                text = pattern[at + 1 : behind]
                if text not in tables:
                    tables[text] = _table(text, nocase=self._nocase)
                segment.one_of(tables[text])
                at = behind
            else:
                at += at + 1 < end
                segment.literal(self._folded(pattern[at : at + 1]))
                at += 1
            length += segment.length - before
        for segment in segments:
            segment.end()
        if length > NAME_MAX_BYTES:
            return None
        if len(segments) == 1:
            return _Read(segments[0], [], None, length)
        between = [middle for middle in segments[1:-1] if middle.length]
        return _Read(segments[0], between, segments[-1], length)

    def _folded(self, text: bytes) -> bytes:
        return text.lower() if self._nocase else text


def _class_end(pattern: bytes, at: int) -> int:
    """The place behind a class whose bracket stands before ``at``."""
    end = len(pattern)
    at += pattern[at : at + 1] == b"^"
    while at < end:
        if pattern[at] == _ESCAPE and end - at >= 2:
            at += 2
        elif pattern[at] == 93:  # "]"
            return at + 1
        else:  # a range takes what ends it, also a bracket
            at += 3 if end - at >= 3 and pattern[at + 1] == 45 else 1
    return end


def _table(text: bytes, *, nocase: bool) -> bytes:
    """Which of the 256 bytes are in a class, from what stands behind its bracket."""
    escaped, members = bytearray(256), bytearray(256)
    negated = text.startswith(b"^")
    at, end = int(negated), len(text)
    while at < end:
        char = text[at]
        if char == _ESCAPE and end - at >= 2:
            escaped[text[at + 1]] = 1  # in this case only, also with nocase
            at += 2
        elif char == 93:
            break
        elif end - at >= 3 and text[at + 1] == 45:
            low, high = sorted((_signed(char), _signed(text[at + 2])))
            _take(members, *((_lower(low), _lower(high)) if nocase else (low, high)))
            at += 3
        else:
            members[_lower(char) if nocase else char] = 1
            at += 1
    if nocase:
        members = bytearray(members[_lower(byte)] for byte in range(256))
    return bytes(
        [(member | exact) != negated for member, exact in zip(members, escaped, strict=True)]
    )


def _take(members: bytearray, low: int, high: int) -> None:
    """Add a range of bytes; from 128 on they are negative, as C's ``char`` is there."""
    if low <= min(high, -1):
        members[low + 256 : min(high, -1) + 257] = b"\1" * (min(high, -1) - low + 1)
    low = max(low, 0)
    if low <= high:
        members[low : high + 1] = b"\1" * (high - low + 1)


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _lower(char: int) -> int:
    return char + 32 if 65 <= char <= 90 else char
