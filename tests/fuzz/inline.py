"""Inline requests: a line gives the words that the servers' sdssplitargs gives.

An input is a byte with the limit of words (0: none), then the line.
"""

from __future__ import annotations

from logstore.wire.resp.requests import split_inline

SEEDS = [
    bytes((most,)) + line
    for most in (0, 2)
    for line in (
        b"PING", b"XADD s * \"a b\" 'c\\n'", b'"\\x41\\xfg\\n\\r\\t\\b\\a\\q"', b"'it\\'s'",
        b'a"b"',
        b'"a"b', b"'a", b'""', b" \t\r\v\f x ", b"a\vb\fc", b'ab\\"c" d', b"\\", b'"\\', b"*1",
        b"x" * 300, b'" ' * 40,
    )
]  # fmt: skip
_BLANK = b" \t\n\v\f\r"
_ENDS = b" \n\r\t"
_LETTERS = {110: 10, 114: 13, 116: 9, 98: 8, 97: 7}
_HEX = b"0123456789abcdefABCDEF"


def reference(line: bytes) -> list[bytes] | None:
    """What C does, byte by byte; None: the quotes are unbalanced."""
    words: list[bytes] = []
    at = 0
    while True:
        while at < len(line) and line[at] in _BLANK:
            at += 1
        if at == len(line):
            return words
        word = bytearray()
        end = _word(line, at, word)
        if end is None:
            return None
        words.append(bytes(word))
        at = end


def _word(line: bytes, at: int, word: bytearray) -> int | None:
    """Read one word; the place behind it."""
    while at < len(line) and line[at] not in _ENDS:
        byte = line[at]
        at += 1
        if byte not in b"\"'":
            word.append(byte)
            continue
        at = _quoted(line, at, byte, word)
        behind = line[at : at + 1]
        return at if at > 0 and (not behind or behind in _BLANK) else None
    return at


def _quoted(line: bytes, at: int, quote: int, word: bytearray) -> int:
    """Read up to the closing quote; the place behind it, -1 if there is none."""
    while at < len(line):
        byte = line[at]
        if byte == quote:
            return at + 1
        if byte == 92 and quote == 34 and line[at + 1 : at + 2] == b"x" and _is_hex(line, at):
            word.append(int(line[at + 2 : at + 4], 16))
            at += 3
        elif byte == 92 and quote == 34 and at + 1 < len(line):
            at += 1
            word.append(_LETTERS.get(line[at], line[at]))
        elif byte == 92 and quote == 39 and line[at + 1 : at + 2] == b"'":
            at += 1
            word.append(39)
        else:
            word.append(byte)
        at += 1
    return -1


def _is_hex(line: bytes, at: int) -> bool:
    digits = line[at + 2 : at + 4]
    return len(digits) == 2 and all(digit in _HEX for digit in digits)


def one(data: bytes) -> None:
    """The same words, or refused by both."""
    most, line = (data[0] if data else 0), data[1:]
    line = line.replace(b"\n", b"").replace(b"\0", b"")  # C ends there
    found = split_inline(line, most or None)
    wanted = reference(line)
    if not most:
        assert found == wanted, (line, found, wanted)
    elif wanted is not None:
        assert found == wanted[:most], (line, found, wanted)
