"""The words of a command: a cursor over them, and what single ones mean.

Invariants: nothing is converted twice; every refusal is a ``Failed`` in the peers' words. Knows no
command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from logstore.codec import codec
from logstore.ids import ID_TEXT_MAX, MAX_ID, U64_MAX, ZERO_ID, StreamID
from logstore.wire.resp.reply import INVALID_ID, NOT_AN_INTEGER, SYNTAX, Failed

_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]{0,19})\Z")
_GIVEN_IDS = codec().resp_given_ids
_PART = re.compile(rb"[ \t\n\v\f\r]*([+-]?)([0-9]{1,127})\Z")
_PRINTABLE = re.compile(rb"[!-~]*")
_NEGATIVE = re.compile(rb"-[1-9][0-9]*\Z")
I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1
SHOWN_MAX = 128  # bytes of a word that an error message shows


def integer(word: bytes, failure: str = NOT_AN_INTEGER) -> int:
    """A signed number of 64 bits, written as the peers write it: no sign +, no leading zeros."""
    if word.isdigit() and len(word) < 19 and (word[0] != 48 or len(word) == 1):
        return int(word)
    if not _INTEGER.match(word) or word == b"-0":
        raise Failed(failure)
    value = int(word)
    if not I64_MIN <= value <= I64_MAX:
        raise Failed(failure)
    return value


def strict_id(word: bytes, missing_seq: int = 0) -> StreamID:
    """An ID without "-" and "+"."""
    plain, _ = _GIVEN_IDS([word], StreamID)
    if plain:
        return plain[0]
    if len(word) > ID_TEXT_MAX:
        raise Failed(INVALID_ID)
    ms, dash, seq = word.partition(b"-")
    return StreamID(unsigned(ms), unsigned(seq) if dash else missing_seq)


def leading_ids(words: Sequence[bytes]) -> list[StreamID]:
    """The IDs that words begin with, up to the first word that is no ID."""
    return _leading(list(words))[0]


def _leading(words: list[bytes]) -> tuple[list[StreamID], bool]:
    """The same, and whether it is known that each is above the one before."""
    leading, ascending = _GIVEN_IDS(words, StreamID)
    if len(leading) < len(words):
        ascending = False
        for word in words[len(leading) :]:
            try:
                leading.append(strict_id(word))
            except Failed:
                break
    return leading, ascending


def ids(words: list[bytes], *, ascending: bool = False) -> Callable[[], list[StreamID]]:
    """Words as IDs; in ``ascending`` order, each once, where that makes no difference.

    They are read now, so that no commit waits for it. The refusal of a word that is no ID comes
    when the IDs are asked for: the peers read them only if there is a stream.
    """
    read, ordered = _leading(words)
    whole = len(read) == len(words)
    if ascending and not ordered:
        read = sorted(set(read))

    def get() -> list[StreamID]:
        if not whole:
            raise Failed(INVALID_ID)
        return read

    return get


def loose_id(word: bytes, missing_seq: int = 0) -> StreamID:
    """An ID, or "-" for the smallest and "+" for the largest."""
    if word == b"-":
        return ZERO_ID
    if word == b"+":
        return MAX_ID
    return strict_id(word, missing_seq)


def interval_start(word: bytes) -> StreamID:
    """The start of an interval; "(" excludes it."""
    if not word.startswith(b"("):
        return loose_id(word)
    start = strict_id(word[1:])
    if start == MAX_ID:
        raise Failed("ERR invalid start ID for the interval")
    return start.next()


def interval_end(word: bytes) -> StreamID:
    """The end of an interval; "(" excludes it; a missing sequence means all of the millisecond."""
    if not word.startswith(b"("):
        return loose_id(word, U64_MAX)
    end = strict_id(word[1:], U64_MAX)
    if end == ZERO_ID:
        raise Failed("ERR invalid end ID for the interval")
    return end.previous()


def unsigned(text: bytes, failure: str = INVALID_ID) -> int:
    """A number of 64 bits as C's strtoull reads it: blanks and a sign are taken, too."""
    if text.isdigit() and len(text) < 20:
        return int(text)
    match = _PART.match(text)
    if match is None or _NEGATIVE.match(text):
        raise Failed(failure)
    sign, digits = match.groups()
    value = int(digits)
    if value > U64_MAX:
        raise Failed(failure)
    return -value & U64_MAX if sign == b"-" else value


def shown(word: bytes, most: int = SHOWN_MAX) -> str:
    """A word in an error message, as the peers clip it: so many bytes, and up to a zero byte."""
    return word[:most].partition(b"\0")[0].decode("utf-8", "surrogateescape")


def printable(word: bytes) -> bool:
    """Whether a word is ASCII without blanks and control characters."""
    return _PRINTABLE.fullmatch(word) is not None


_ESCAPED = {
    byte: b"\\x%02x" % byte if not 32 <= byte < 127 else bytes([byte]) for byte in range(256)
} | {
    ord("\\"): b"\\\\",
    ord('"'): b'\\"',
    7: b"\\a",
    8: b"\\b",
    9: b"\\t",
    10: b"\\n",
    13: b"\\r",
}


def quoted(word: bytes) -> bytes:
    """A word as the peers print it: in quotes, printable, unambiguous."""
    return b'"' + b"".join([_ESCAPED[byte] for byte in word]) + b'"'


class Words:
    """The words of one command, read from the left."""

    __slots__ = ("_at", "_words")

    def __init__(self, words: list[bytes], at: int = 1) -> None:
        self._words = words
        self._at = at

    def __len__(self) -> int:
        return len(self._words) - self._at

    def next(self, failure: str = SYNTAX) -> bytes:
        """The next word."""
        at = self._at
        self._at = at + 1
        try:
            return self._words[at]
        except IndexError:
            self._at = at
            raise Failed(failure) from None

    def said(self, at: int) -> bytes:
        """The word at a place from the left, 0 for the command's name."""
        return self._words[at]

    def option(self) -> bytes:
        """The next word as the name of an option, in capitals."""
        return self.next().upper()

    def peek(self) -> bytes | None:
        """The next word in capitals, left where it is; None at the end."""
        return self._words[self._at].upper() if self._at < len(self._words) else None

    def take(self, *names: bytes) -> bool:
        """Whether the next word is one of these; it is taken then."""
        taken = self.peek() in names
        self._at += taken
        return taken

    def integer(self, failure: str = NOT_AN_INTEGER) -> int:
        """The next word as a number."""
        return integer(self.next(), failure)

    def rest(self) -> list[bytes]:
        """All that is left."""
        rest = self._words[self._at :]
        self._at = len(self._words)
        return rest

    def end(self) -> None:
        """Nothing may be left."""
        if self._at < len(self._words):
            raise Failed(SYNTAX)
