"""The elements of a JSON array, one by one, as the bytes that they are.

Invariants: only brackets, quotes and commas are looked at, so an element is handed over as it was
written, whole, whether it is JSON or not; one that is longer than it may be is never in memory as a
whole. What ends too early, or goes on behind its end, is an InputLineError.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from logstore.errors import InputLineError

PIECE = 1 << 20  # bytes that are read at a time
_OUTSIDE = re.compile(rb'["\[\]{},]')
_INSIDE = re.compile(rb'["\\]')


def elements(head: bytes, source: BinaryIO, most: int) -> Iterator[tuple[int, bytes | None]]:
    """Elements with their numbers from 1 on; None for one of more bytes than ``most``.

    ``head`` is the beginning, read from the source already: behind white space, a bracket.
    """
    held = head[head.index(b"[") + 1 :]
    number, start, at, depth = 1, 0, 0, 0
    quoted = too_long = False
    while True:
        found = (_INSIDE if quoted else _OUTSIDE).search(held, at)
        if found is None:
            at = max(at, len(held))
            if at - start > most:
                start, too_long = len(held), True
            piece = source.read(PIECE)
            if not piece:
                raise InputLineError("the array ends too early", line_number=number, unit="row")
            held, at, start = held[start:] + piece, at - start, 0
            continue
        mark, at = found[0], found.end()
        if quoted:
            at += mark == b"\\"  # what stands behind it is no quote
            quoted = mark != b'"'
        elif mark == b'"':
            quoted = True
        elif mark in b"[{":
            depth += 1
        elif depth and mark in b"]}":
            depth -= 1
        elif not depth and mark != b"}":  # one that closes nothing is a part of what is no JSON
            element = held[start : at - 1].strip()
            if mark != b"]" or element or too_long or number > 1:
                yield number, None if too_long or len(element) > most else element
            if mark == b"]":
                _check_end(held[at:], source, number)
                return
            number, start, too_long = number + 1, at, False


def _check_end(rest: bytes, source: BinaryIO, number: int) -> None:
    """InputLineError if there is more than white space."""
    while not rest.strip():
        rest = source.read(PIECE)
        if not rest:
            return
    raise InputLineError("there is more behind the array", line_number=number, unit="row")
