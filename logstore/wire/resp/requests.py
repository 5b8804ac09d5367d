"""Requests of the Redis protocol, from bytes to words: arrays of bulk strings, and inline ones.

Invariants: what is sent is hostile: every length is checked before memory is taken for it, and the
buffer never holds more than one request's limit beyond what was asked for; a request that is cut
into pieces anywhere gives the same words; after an error nothing more is parsed. An inline request
is split in time that grows with the line, whatever is in it: the patterns never go back (their
repetitions are possessive), nothing is read behind a quote that is not closed, and a limit of words
ends it at that word. Knows no command.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import islice

from logstore.codec import RowBatch, codec

# A word ends at a blank; a closing quote ends it, too, and a blank or nothing must follow.
_WORD = re.compile(
    rb"""
      [^\ \n\r\t"']*+ (?: "(?:[^"\\]|\\.)*+" | '(?:[^'\\]|\\'|\\)*+' ) (?=\s|\Z)
    | [^\ \n\r\t"']++ (?!["'])
    """,
    re.VERBOSE | re.DOTALL,
)
# What is no word reaches to the end, and so do blanks with nothing behind: all is looked at once.
_WORDS = re.compile(rb"\s*+(" + _WORD.pattern + rb"|\S.*+|\Z)", re.VERBOSE | re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def split_inline(line: bytes, most: int | None = None) -> list[bytes] | None:
    """The words of a line, at most so many; None if its quotes are unbalanced."""
    if b'"' not in line and b"'" not in line and b"\v" not in line and b"\f" not in line:
        return line.split(None, -1 if most is None else most)[:most]
    matches = _WORDS.finditer(line)
    words: list[bytes] = []
    for match in matches if most is None else islice(matches, most):
        word = match[1]
        double, single = word.find(b'"'), word.find(b"'")
        if double < 0 and single < 0:
            if word:
                words.append(word)
        elif _WORD.fullmatch(word) is None:  # only the last one can be none
            return None
        elif single < 0 or 0 <= double < single:
            words.append(word[:double] + _ESCAPE.sub(_letter, word[double + 1 : -1]))
        else:
            words.append(word[:single] + word[single + 1 : -1].replace(rb"\'", b"'"))
    return words


def _letter(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes((int(match[1], 16),))
    return _LETTERS.get(match[2], match[2])


INLINE_MAX_BYTES = 64 * 1024
WORDS_MAX = 1024 * 1024
BULK_MAX_BYTES = 512 * 1024 * 1024
STRANGER_WORDS_MAX = 10  # before AUTH
STRANGER_MAX_BYTES = 16384  # of a request in all
COMPACT_BYTES = 1 << 16
_BLANK = re.compile(rb"(?:\r?\n)+")
_NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_LENGTHS = {b"$%d" % size: size for size in range(1000)}  # of short words, as they are sent


class ProtocolError(Exception):
    """What was sent is no request; the connection ends behind the reply."""


class RequestParser:
    """Takes bytes as they come, gives requests as they are whole."""

    def __init__(self, bulk_max_bytes: int = BULK_MAX_BYTES) -> None:
        self._data = bytearray()
        self._at = 0  # where the unread part begins
        self._words: list[bytes] = []
        self._read = 0  # bytes of the request that were taken already
        self._left = 0  # words of the request that are still to come
        self._bulk = -1  # bytes of the word that comes next; -1: its length comes first
        self._bulk_max = bulk_max_bytes
        self._ready: deque[list[bytes]] = deque()  # requests that are whole
        self._plain = codec().resp_requests
        self._adds = codec().resp_adds
        self.trusted = True

    def feed(self, data: bytes) -> None:
        """More bytes."""
        if self._at > COMPACT_BYTES or self._at == len(self._data):
            del self._data[: self._at]
            self._at = 0
        self._data += data

    @property
    def empty(self) -> bool:
        """Whether nothing is waiting: what comes next begins a request."""
        return self._at == len(self._data) and not (self._left or self._ready)

    @property
    def held_bytes(self) -> int:
        """Bytes that are waiting for the rest of their request."""
        ready = sum(len(word) for words in self._ready for word in words)
        return len(self._data) - self._at + self._read + ready

    def adds(self, most: int) -> tuple[bytes, RowBatch, int] | None:
        """The next requests if they are two or more plain adds to one stream, at most so many: its
        key, the rows, and their bytes as sent. None if something else comes first, or one alone."""
        if self._ready or self._left or not self.trusted or self._at >= len(self._data):
            return None
        adds = self._adds(self._data, self._at, self._bulk_max, most)
        if adds is None or len(adds[1]) < 2:
            return None
        key, rows, end = adds
        size, self._at = end - self._at, end
        return key, rows, size

    def next(self) -> list[bytes] | None:
        """The next request, [] for an empty one; None until more bytes came. ProtocolError."""
        if self._ready:
            return self._ready.popleft()
        if not self._left:
            if self.trusted and self._at < len(self._data):
                # What is whole and plain, all at once; what is not is looked at word by word, so
                # that a request that comes in many pieces is not read again with each of them.
                whole, self._at = self._plain(self._data, self._at, self._bulk_max)
                if whole:
                    self._ready.extend(whole)
                    return self._ready.popleft()
            begun = self._begin()
            if begun is not None:
                return begun
            if not self._left:
                return None
        return self._go_on()

    def _begin(self) -> list[bytes] | None:
        """Read the head of a request; words if it is an inline one, or empty."""
        data, at = self._data, self._at
        if at >= len(data):
            return None
        if data[at] in b"\r\n" and (blank := _BLANK.match(data, at)):
            self._at = blank.end()  # empty lines are no requests, however many
            return []
        line_max = self._line_max
        if data[at] != 42:  # "*"
            return self._inline(at, data.find(b"\n", at, at + line_max + 1))
        end = data.find(b"\r", at, at + line_max + 1)
        if end < 0 or end + 1 == len(data):
            if end < 0 and len(data) - at > line_max:
                raise ProtocolError("too big mbulk count string")
            return None
        count = _number(data[at + 1 : end], "invalid multibulk length")
        if count > WORDS_MAX:
            raise ProtocolError("invalid multibulk length")
        if not self.trusted and count > STRANGER_WORDS_MAX:
            raise ProtocolError("unauthenticated multibulk length")
        self._at = end + 2
        if count <= 0:
            return []
        self._left, self._words = count, []
        return None

    @property
    def _line_max(self) -> int:
        return INLINE_MAX_BYTES if self.trusted else STRANGER_MAX_BYTES

    def _inline(self, at: int, end: int) -> list[bytes] | None:
        if end < 0:
            if len(self._data) - at > self._line_max:
                raise ProtocolError("too big inline request")
            return None
        self._at = end + 1
        most = None if self.trusted else STRANGER_WORDS_MAX + 1
        words = split_inline(bytes(self._data[at:end]), most)
        if words is None:
            raise ProtocolError("unbalanced quotes in request")
        if not self.trusted and len(words) > STRANGER_WORDS_MAX:
            raise ProtocolError("unauthenticated multibulk length")
        return words

    def _go_on(self) -> list[bytes] | None:
        data, at, words, left, bulk = self._data, self._at, self._words, self._left, self._bulk
        size = len(data)
        find, add, line_max = data.find, words.append, self._line_max
        known = _LENGTHS if self.trusted else {}
        try:
            while left:
                if bulk < 0:
                    end = find(b"\r", at, at + line_max)
                    if end < 0 or end + 1 == size:
                        if end < 0 and size - at >= line_max:
                            raise ProtocolError("too big bulk count string")
                        return None
                    bulk = known.get(bytes(data[at:end]), -1) if end - at < 6 else -1
                    if bulk < 0:
                        if data[at] != 36:  # "$"
                            shown = chr(data[at]) if 32 <= data[at] < 127 else "?"
                            raise ProtocolError(f"expected '$', got '{shown}'")
                        bulk = self._checked(data[at + 1 : end])
                    at = end + 2
                if size - at < bulk + 2:
                    return None
                if bulk < COMPACT_BYTES:
                    add(bytes(data[at : at + bulk]))
                else:
                    with memoryview(data) as view:  # else it would be copied twice
                        add(bytes(view[at : at + bulk]))
                at += bulk + 2
                bulk = -1
                left -= 1
        finally:
            self._read += at - self._at
            self._at, self._left, self._bulk = at, left, bulk
        self._words, self._read = [], 0
        return words

    def _checked(self, digits: bytearray) -> int:
        length = _number(digits, "invalid bulk length")
        if not 0 <= length <= self._bulk_max:
            raise ProtocolError("invalid bulk length")
        if not self.trusted and length + sum(map(len, self._words)) > STRANGER_MAX_BYTES:
            raise ProtocolError("unauthenticated bulk length")
        return length


def _number(digits: bytearray, failure: str) -> int:
    """A number as the peers read one: no zero leads, and no sign but a minus."""
    if not _NUMBER.fullmatch(digits):
        raise ProtocolError(failure)
    return int(digits)
