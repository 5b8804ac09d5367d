"""Inline requests: a line of words with quotes and escapes, split as Redis and Valkey do.

Invariants: time grows with the line, whatever is in it: the patterns never go back (their
repetitions are possessive), and behind a quote that is not closed nothing more is looked at; a
limit of words ends it at that word. Knows no command.
"""

from __future__ import annotations

import re
from itertools import islice

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


def split(line: bytes, most: int | None = None) -> list[bytes] | None:
    """The words of a line, at most so many; None if its quotes are unbalanced."""
    if b'"' not in line and b"'" not in line and b"\v" not in line and b"\f" not in line:
        return line.split(None, -1 if most is None else most)[:most]
    found = _WORDS.finditer(line)
    words: list[bytes] = []
    for match in found if most is None else islice(found, most):
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
