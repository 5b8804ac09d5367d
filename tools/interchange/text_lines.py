"""The rows of JSON lines, of a JSON array and of CSV, in blocks where they are plain.

The modules json and csv parse; this module hands them one record at a time. The readers of pyarrow
do not name a bad line (test_a_bad_line_is_named_and_stops), change numbers
(test_the_forms_of_a_json_line), and are not installed everywhere. ``text_rows`` says what a line
means.

Invariants: a line that cannot be read is given as the InputLineError that names it, in its place,
and reading goes on after it; the caller decides whether to stop. A line, a record of CSV or an
element of an array that is longer than allowed is never in memory as a whole. Rows are handed over
before more input is waited for.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, repeat
from typing import Any, BinaryIO, TypeAlias

from logstore.errors import InputLineError
from logstore.tools.interchange.file_formats import is_utf8
from logstore.tools.interchange.text_rows import (
    Block,
    ImportRow,
    RowIDs,
    attempt,
    blocks,
    csv_pairs,
    json_pairs,
    plain_csv,
    plain_json,
)

# Of the first record of a CSV: the names of the columns, and whether that record is the header.
HeaderNames: TypeAlias = Callable[[list[str]], tuple[list[str], bool]]
Found: TypeAlias = Generator[ImportRow | InputLineError | Block]
LINE_MAX_BYTES = 64 << 20
PIECE = 1 << 20  # characters or bytes that are read at once of a line that may be too long
BLOCK_BYTES = 64 << 10  # that are read at once of JSON lines
CHUNK_BYTES = 8 << 10  # that are read at once of CSV: few, as bytes in no encoding end a chunk


# -- JSON ---------------------------------------------------------------------------------------
def read_json(source: BinaryIO, ids: RowIDs, *, line_max_bytes: int = LINE_MAX_BYTES) -> Found:
    """Rows of JSON lines, or of one array; empty lines are skipped."""
    number = 0
    while line := source.readline(line_max_bytes + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        first = line.lstrip()
        if first.startswith(b"["):
            yield from _array_rows(first, source, ids, line_max_bytes)
            return
        yield from _json_line(number, line, source, ids, line_max_bytes)
        if first:
            yield from _json_lines(number, source, ids, line_max_bytes)
            return


def _json_lines(number: int, source: BinaryIO, ids: RowIDs, most: int) -> Found:
    """Rows of the lines behind this one. Memory holds the longest allowed line and one byte."""
    plain = plain_json(ids)
    reading: Any = source
    held = b""  # the beginning of a line

    def other(number: int, line: bytes) -> ImportRow | InputLineError | None:
        return attempt(number, partial(json_pairs, line, ids), ids) if line.strip() else None

    while piece := reading.read1(min(BLOCK_BYTES, most + 1 - len(held))):
        lines = io.BytesIO(held + piece).readlines()
        held = b"" if lines[-1].endswith(b"\n") else lines.pop()
        yield from blocks(
            zip(count(number + 1), lines, map(plain, lines), strict=False), other, ids
        )
        number += len(lines)
        if len(held) > min(BLOCK_BYTES, most):
            number += 1
            line = held + source.readline(most + 1 - len(held))
            held = b""
            yield from _json_line(number, line, source, ids, most)
    yield from _json_line(number + 1, held, source, ids, most)


def _json_line(number: int, line: bytes, source: BinaryIO, ids: RowIDs, most: int) -> Found:
    """The row of one line, of which at most the allowed length and one byte is read."""
    if len(line) > most and not line.endswith(b"\n"):
        while line and not line.endswith(b"\n"):
            line = source.readline(PIECE)
        yield _too_long(number, most)
    elif line.strip():
        yield attempt(number, partial(json_pairs, line, ids), ids)


def _array_rows(head: bytes, source: BinaryIO, ids: RowIDs, most: int) -> Found:
    """Rows of a JSON array. Rows are numbered, not lines, for all may be on one line."""
    for number, element in elements(head, source, most):
        if element is None:
            yield _too_long(number, most, "row")
        else:
            yield attempt(number, partial(json_pairs, element, ids), ids, "row")


def _too_long(number: int, most: int, unit: str = "line") -> InputLineError:
    return InputLineError(
        f"longer than {most} bytes: --line-max-bytes takes longer ones, in the memory of several",
        line_number=number,
        unit=unit,
    )


# -- CSV ----------------------------------------------------------------------------------------
class _TooLongError(Exception):
    """A record of CSV is longer than it may be."""


class _Text:
    """A text that is decoded as it comes, in lines that end with any of \\n, \\r and \\r\\n. Bytes
    that are in no encoding become lone surrogates, or are a UnicodeError. ``io.TextIOWrapper`` does
    not tell what it has at hand, which blocks are made of: test_flat_lines_come_in_blocks."""

    def __init__(self, source: BinaryIO, encoding: str) -> None:
        self._source: Any = source
        decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=False)
        self._chunk = io.StringIO()
        self._ended = False

    def readline(self, most: int) -> str:
        """A line, or a part of one; nothing at the end."""
        while not (piece := self._chunk.readline(most)) and not self._ended:
            data = self._source.read1(CHUNK_BYTES)
            self._ended = not data
            self._chunk = io.StringIO(self._decoder.decode(data, self._ended), newline="")
        return piece

    def at_hand(self) -> list[str]:
        """Whole lines that are in memory already; they stay until they are skipped."""
        at = self._chunk.tell()
        lines = self._chunk.readlines()
        self._chunk.seek(at)
        if lines and not lines[-1].endswith(("\n", "\r")):
            lines.pop()
        return lines

    def pass_over(self, lines: list[str]) -> None:
        """Skip lines that were at hand."""
        self._chunk.seek(self._chunk.tell() + sum(map(len, lines)))


class _CSVLines:
    """The lines of a text for a reader of CSV, which is never given more of a record than it may
    have. A record ends with a line behind which quotes are even."""

    def __init__(self, text: _Text, most: int, number: int) -> None:
        self._text = text
        self._most = most
        self._left = most
        self._quotes = 0
        self._within = False  # a line was read in part
        self.number = number  # lines so far

    def begin(self) -> None:
        """Begin another record."""
        self._left, self._quotes = self._most, 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        pieces: list[str] = []
        while piece := self._piece():
            self._left -= len(piece)
            if self._left < 0:
                raise _TooLongError
            pieces.append(piece)
            if not self._within:
                break
        if not pieces:
            raise StopIteration
        return pieces[0] if len(pieces) == 1 else "".join(pieces)

    def skip(self) -> None:
        """Skip the rest of the record."""
        while (self._within or self._quotes % 2) and self._piece():
            pass

    def at_hand(self) -> list[str]:
        """Whole lines behind a record that are in memory already, none too long."""
        lines = self._text.at_hand()
        return lines if sum(map(len, lines)) <= self._most else []

    def pass_over(self, lines: list[str]) -> None:
        """Skip lines that were at hand."""
        self._text.pass_over(lines)
        self.number += len(lines)

    def _piece(self) -> str:
        piece = self._text.readline(PIECE)
        if piece:
            self.number += not self._within
            self._within = not piece.endswith(("\n", "\r"))
            self._quotes += piece.count('"')
        else:
            self._within = False
        return piece


def read_csv(
    source: BinaryIO,
    ids: RowIDs,
    *,
    encoding: str = "utf-8",
    delimiter: str = ",",
    line_max_bytes: int = LINE_MAX_BYTES,
    names: HeaderNames = lambda cells: (cells, True),
    header: Sequence[str] = (),
    lines_before: int = 0,
) -> Found:
    """Rows of CSV under a header; values are stored in UTF-8. Empty lines are skipped.

    Of a record, which may go over several lines, so many characters at most are read. The header is
    that of the source, or was found in the lines before it.
    """
    csv.field_size_limit(sys.maxsize)
    begins = is_plain_encoding(encoding) and not header and not lines_before
    text = _Text(source, "utf-8-sig" if begins else encoding)
    lines = _CSVLines(text, line_max_bytes, lines_before)
    return _csv_rows(lines, ids, delimiter, line_max_bytes, names, list(header))


def is_plain_encoding(encoding: str) -> bool:
    """Whether text is stored in the encoding in which it comes."""
    return encoding.lower().replace("_", "-") in {"utf-8", "utf8"}


def _csv_rows(
    source: _CSVLines,
    ids: RowIDs,
    delimiter: str,
    most: int,
    names: HeaderNames,
    header: list[str],
) -> Found:
    made = partial(csv.reader, delimiter=delimiter, strict=True)
    reader = made(source)
    plain = plain_csv(header, ids)

    def other(number: int, cells: list[str]) -> ImportRow | InputLineError | None:
        return attempt(number, partial(csv_pairs, header, cells, ids), ids) if cells else None

    while True:
        if header:
            numbers, records, sound = _records_at_hand(source, made)
            rows = map(plain, records) if sound else repeat(None)
            yield from blocks(zip(numbers, records, rows, strict=False), other, ids)
        number = source.number + 1
        source.begin()
        bad: InputLineError | None = None
        cells: list[str] = []
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            bad = InputLineError(f"no CSV: {error}", line_number=number)
        except UnicodeError as error:  # where the next line begins is not known
            raise InputLineError(f"not in this encoding: {error}", line_number=number) from None
        except _TooLongError:
            bad = _too_long(number, most)
            source.skip()
            reader = made(source)
        if bad is not None:
            if not header:
                raise bad  # without a header no row has names
            yield bad
        else:
            if not header and cells:
                header, is_header = names(cells)
                plain = plain_csv(header, ids)
                cells = [] if is_header else cells
            if (one := other(number, cells)) is not None:
                yield one


def _records_at_hand(
    source: _CSVLines, made: Callable[[Iterable[str]], Iterator[list[str]]]
) -> tuple[list[int], list[list[str]], bool]:
    """Records that are there whole, the numbers of their lines, and whether all is UTF-8. One that
    is bad, or of which there is only the beginning, is left where it is, with all behind it."""
    lines = source.at_hand()
    reader: Any = made(lines)
    numbers: list[int] = []
    records: list[list[str]] = []
    done = 0
    with suppress(csv.Error):
        for cells in reader:
            numbers.append(source.number + done + 1)
            records.append(cells)
            done = reader.line_num
    source.pass_over(lines[:done])
    return numbers, records, is_utf8(lines)


# -- an array of JSON -----------------------------------------------------------------------------
ARRAY_PIECE = 1 << 20  # bytes that are read at a time
_OUTSIDE = re.compile(rb'["\[\]{},]')
_INSIDE = re.compile(rb'["\\]')


# A decoder of JSON cannot tell an element that is none from one that is not all there yet, nor find
# the next one behind it: test_an_array_that_is_none, test_an_array_of_objects.
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
            piece = source.read(ARRAY_PIECE)
            if not piece:
                raise InputLineError("the array ends too early", line_number=number, unit="row")
            held, at, start = held[start:] + piece, at - start, 0
            continue
        mark, at = found[0], found.end()
        if quoted:
            at += mark == b"\\"  # the character behind a backslash is no quote
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
                _check_array_end(held[at:], source, number)
                return
            number, start, too_long = number + 1, at, False


def _check_array_end(rest: bytes, source: BinaryIO, number: int) -> None:
    """InputLineError if there is more than white space."""
    while not rest.strip():
        rest = source.read(ARRAY_PIECE)
        if not rest:
            return
    raise InputLineError("there is more behind the array", line_number=number, unit="row")
