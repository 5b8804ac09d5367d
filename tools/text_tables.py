"""Tables as lines of text that fit a terminal, and what they are made of: cells, units, widths.

A table without names of columns is one of names and values, whose values are broken between words.
Any other has a line for each row: long texts lose their middle, where names differ least, and what
still does not fit loses columns, or becomes a table of names and values for each row.

Invariants: no line is wider than the terminal; a number is never cut; the sizes of a column have
one unit, which stands in its head. Knows no terminal, and prints nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from logstore.api import showing
from logstore.api.showing import readable
from logstore.tuples import NamedTuple

FOLDED = 20  # characters that a text keeps, while a column can be left out instead
LEAST = 10  # and when none is left that can
GAP = "  "
_UNITS = {"bytes", "KiB", "MiB", "GiB", "TiB", "%", "d", "h", "min", "s"}  # behind a number


class ByteCount(int):
    """A number of bytes in a cell; a column of them has one unit."""


class Paper(NamedTuple):
    """What a table is written on: how wide it is, and in which encoding."""

    width: int
    encoding: str = "utf-8"

    @property
    def dots(self) -> str:
        """What stands for a middle that is left out."""
        return "…" if self.encoding.lower().startswith("utf") else "~"

    def shown(self, text: str) -> str:
        """Text in characters that the encoding has: escapes stand for others."""
        if text.isascii():
            return text
        return text.encode(self.encoding, "backslashreplace").decode(self.encoding)


# -- cells ----------------------------------------------------------------------------------------
def cell(value: Any) -> str:
    """A value as text for people."""
    if isinstance(value, bytes):
        return readable(value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, ByteCount):
        return showing.size(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def in_units(
    columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> tuple[list[str], list[list[str]]]:
    """The heads and the cells of a table; sizes have the unit of the largest of their column."""
    every = [list(row) for row in rows]
    heads = list(columns)
    for place, head in enumerate(heads):
        sizes = [row[place] for row in every if isinstance(row[place], ByteCount)]
        if sizes and head:
            unit = showing.size_unit(max(sizes))
            heads[place] = f"{head} {unit}"
            for row in every:
                if isinstance(row[place], ByteCount):
                    row[place] = showing.size_in(row[place], unit)
    return heads, [list(map(cell, row)) for row in every]


def is_number(text: str) -> bool:
    """Whether a cell is a number, or stands for one; such columns are aligned right."""
    number, _, unit = text.partition(" ")
    if unit in _UNITS:
        text = number
    if text in {"", "-", "now", "unknown"}:
        return True
    text = text.removeprefix("<").replace(",", "").replace(".", "", 1)
    return text.removeprefix("-").isdigit()


# -- widths ---------------------------------------------------------------------------------------
def cell_len(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len as width

    return width(text)


def beginning(text: str, width: int) -> str:
    """The beginning of a text, of so many columns at most."""
    if text.isascii():
        return text[: max(0, width)]
    used = 0
    for at, each in enumerate(text):
        used += cell_len(each)
        if used > width:
            return text[:at]
    return text


def elided(text: str, width: int, dots: str = "…") -> str:
    """A text of so many columns at most, without its middle if it is longer."""
    if cell_len(text) <= width:
        return text
    if width <= len(dots):
        return dots[: max(0, width)]
    behind = (width - 1) // 2
    return beginning(text, width - 1 - behind) + dots + beginning(text[::-1], behind)[::-1]


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """A text as lines of so many columns, broken between words, the further ones indented; a word
    that is wider than a line is broken, too."""
    lines, line = [], ""
    for space, word in re.findall(r"( *)([^ ]+)", text):
        rest = word
        if line.strip() and cell_len(line + space + word) > width:
            lines.append(line)
            line = " " * indent
        else:
            line += space if cell_len(line + space) < width else ""
        while cell_len(line + rest) > width:
            head = beginning(rest, width - cell_len(line)) or rest[0]
            lines.append(line + head)
            line, rest = " " * indent, rest[len(head) :]
        line += rest
    return [*lines, line] if line.strip() or not lines else lines


def fitting(
    columns: Sequence[str],
    cells: list[list[str]],
    narrow: Sequence[str],
    width: int,
    folded: int = FOLDED,
    whole: Collection[str] = (),
) -> tuple[Sequence[str], list[list[str]]]:
    """The columns that fit, and their cells, if those of ``narrow`` are left out one by one; of
    texts ``folded`` characters count."""
    for name in narrow:
        if _least_width(columns, cells, folded, whole) <= width:
            break
        left_out = list(columns).index(name)
        columns = [column for place, column in enumerate(columns) if place != left_out]
        cells = [[each for place, each in enumerate(row) if place != left_out] for row in cells]
    return columns, cells


def _least_width(
    columns: Sequence[str], cells: list[list[str]], folded: int, whole: Collection[str]
) -> int:
    widest, fixed = _measured(columns, cells, whole)
    least = [w if is_fixed else min(w, folded) for w, is_fixed in zip(widest, fixed, strict=True)]
    return sum(least) + len(GAP) * (len(least) - 1)


def _measured(
    columns: Sequence[str], cells: list[list[str]], whole: Collection[str]
) -> tuple[list[int], list[bool]]:
    """How wide columns are, and which cannot be narrower: those of numbers, and ``whole`` ones."""
    each_of = list(zip(columns, *cells, strict=True))
    widest = [max(map(cell_len, of_it)) for of_it in each_of]
    return widest, [of_it[0] in whole or all(map(is_number, of_it[1:])) for of_it in each_of]


def _widths(widest: list[int], fixed: list[bool], width: int) -> list[int] | None:
    """The widths of columns that take ``width`` together: the widest lose most, down to one width.
    None: they cannot."""
    room = width - len(GAP) * (len(widest) - 1)
    for most in range(max(LEAST, min(max(widest), room)), LEAST - 1, -1):
        found = [w if is_fixed else min(w, most) for w, is_fixed in zip(widest, fixed, strict=True)]
        if sum(found) <= room:
            return found
    return None


# -- lines ----------------------------------------------------------------------------------------
class TextTable(NamedTuple):
    """A table as lines; ``head`` names the columns, and is empty where they have no names."""

    head: str
    lines: Iterator[str]


def text_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    paper: Paper,
    *,
    narrow: Sequence[str] = (),
    whole: Collection[str] = (),
) -> TextTable:
    """A table of rows.

    Where it is too wide, columns are left out in the order of ``narrow``. Those of ``whole`` are
    IDs, which nobody could copy without their middle. The last column is broken between words."""
    if not any(columns):
        return TextTable("", _pair_lines([tuple(map(cell, row)) for row in rows], paper))
    every_row = list(rows)
    named, cells = in_units(columns, every_row)
    cells = [list(map(paper.shown, row)) for row in cells]
    less = [named[columns.index(name)] for name in narrow]
    heads, cells = fitting(named, cells, less, paper.width, whole=whole)
    widest, fixed = _measured(heads, cells, whole)
    widths = _widths(widest, fixed, paper.width)
    if widths is None:
        return TextTable("", _row_by_row(columns, every_row, paper))
    every = list(zip(heads, *cells, strict=True))
    right = [bool(cells) and all(map(is_number, of_it[1:])) for of_it in every]
    head, *more = _row_lines(heads, widths, right, paper)
    lines = (line for row in cells for line in _row_lines(row, widths, right, paper))
    return TextTable(head, chain(more, lines))


def _row_lines(
    row: Sequence[str], widths: Sequence[int], right: Sequence[bool], paper: Paper
) -> Iterator[str]:
    """A row as a line, or several where its last text is broken."""
    last = [row[-1]] if right[-1] else wrapped(row[-1], widths[-1])
    shown = zip([*row[:-1], last[0]], widths, right, strict=True)
    line = (_aligned(elided(text, wide, paper.dots), wide, of) for text, wide, of in shown)
    yield GAP.join(line).rstrip()
    indent = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    yield from (" " * indent + text for text in last[1:])


def _row_by_row(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], paper: Paper
) -> Iterator[str]:
    """Each row as a table of names and values."""
    for place, row in enumerate(rows):
        if place:
            yield ""
        pairs = zip(columns, map(cell, row), strict=True)
        yield from _pair_lines([pair for pair in pairs if pair[1]], paper)


def _pair_lines(pairs: list[tuple[str, ...]], paper: Paper) -> Iterator[str]:
    """Names, and beside them their values, broken between words."""
    shown = [tuple(map(paper.shown, pair)) for pair in pairs]
    names = max((cell_len(name) for name, _ in shown), default=0)
    names = min(names, max(LEAST, paper.width // 2 - len(GAP)))
    values = max(LEAST, paper.width - names - len(GAP))
    for name, value in shown:
        left, right = wrapped(name, names), wrapped(value, values)
        for place in range(max(len(left), len(right))):
            before = left[place] if place < len(left) else ""
            after = right[place] if place < len(right) else ""
            yield (_aligned(before, names, False) + GAP + after).rstrip()


def _aligned(text: str, width: int, to_right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if to_right else text + space
