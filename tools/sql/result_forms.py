"""The forms of a result of DuckDB: boxes, plain columns, CSV, JSON, a line for each value.

Invariants: memory holds a batch of rows, whatever the form; JSON keeps all values; boxes cut what
is too wide and say so with an ellipsis, and show the types that DuckDB gives.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeAlias

from logstore.api import showing
from logstore.tools import wording
from logstore.tools.text_tables import cell_len
from logstore.tuples import NamedTuple

NULL = "NULL"
LEAST_WIDTH = 12  # of a column that is cut
MEASURED_ROWS = 1000  # by which the widths of a box go
ELLIPSIS = "…"
_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "NUMBER")


class Result(NamedTuple):
    """What a statement gave: the columns, their types, and the rows as they come."""

    columns: list[str]
    types: list[str]
    rows: Iterator[Sequence[Any]]


class Canvas(NamedTuple):
    """How wide lines may be, and whether more than ASCII can be shown."""

    width: int
    unicode: bool


Form: TypeAlias = Callable[[Result, Canvas], Iterator[str]]


# -- values -----------------------------------------------------------------------------------
def json_value(value: Any) -> Any:
    """A value of DuckDB for JSON: text for what JSON lacks, base64 for bytes that are not UTF-8."""
    if isinstance(value, bytes):
        return wording.text_or_base64(value)
    if isinstance(value, dict):
        return {str(json_value(key)): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def text_of(value: Any) -> str:
    """A value as text; null is no text."""
    value = json_value(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shown(value: Any) -> str:
    """A value on a line of people: null is said, and no character controls a terminal."""
    return NULL if value is None else showing.printable(text_of(value))


def distinct(columns: Iterable[str]) -> list[str]:
    """The names of columns as keys: a repeated name gets a suffix."""
    found: dict[str, None] = {}
    for name in columns:
        key, number = name, 2
        while key in found:
            key, number = f"{name}_{number}", number + 1
        found[key] = None
    return list(found)


# -- forms ------------------------------------------------------------------------------------
def json_lines(result: Result, _canvas: Canvas) -> Iterator[str]:
    """An object a line."""
    keys = distinct(result.columns)
    for row in result.rows:
        values = dict(zip(keys, map(json_value, row), strict=True))
        yield json.dumps(values, ensure_ascii=False)


def csv_lines(result: Result, _canvas: Canvas) -> Iterator[str]:
    """A line of names, then a line a row; null is an empty value, an empty text is ``""``."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="")
    for row in chain([result.columns], result.rows):
        writer.writerow(list(map(text_of, row)))
        yield written.getvalue()
        written.seek(0)
        written.truncate()


def value_lines(result: Result, _canvas: Canvas) -> Iterator[str]:
    """A line for each value with its name, and an empty line between rows."""
    names = [showing.printable(name) for name in result.columns]
    width = max(map(cell_len, names), default=0)
    for place, row in enumerate(result.rows):
        if place:
            yield ""
        for name, value in zip(names, row, strict=True):
            yield f"{' ' * (width - cell_len(name))}{name} = {shown(value)}"


def box_lines(result: Result, canvas: Canvas) -> Iterator[str]:
    """A box: names, types, rows, and how many rows there are."""
    from rich import box
    from rich.cells import set_cell_size

    first = [list(map(shown, row)) for row in islice(result.rows, MEASURED_ROWS)]
    heads = [list(map(showing.printable, each)) for each in (result.columns, result.types)]
    widest = [max(map(cell_len, of_it)) for of_it in zip(*heads, *first, strict=True)]
    widths = fitting_widths(widest, canvas.width - 3 * len(widest) - 1)
    right = [any(kind in each.upper() for kind in _NUMBERS) for each in result.types]
    style = box.SQUARE if canvas.unicode else box.ASCII
    more = ELLIPSIS if canvas.unicode else "~"

    def line(cells: list[str], *, head: bool = False) -> str:
        found: list[str] = []
        for cell, width, is_number in zip(cells, widths, right, strict=True):
            free = width - cell_len(cell)
            if free < 0:
                found.append(set_cell_size(cell, width - 1) + more)
            else:
                before = free // 2 if head else free if is_number else 0
                found.append(" " * before + cell + " " * (free - before))
        edge = style.mid_vertical if canvas.unicode else "|"
        return f"{edge} {f' {edge} '.join(found)} {edge}"

    padded = [width + 2 for width in widths]
    yield style.get_top(padded)
    for names in heads:
        yield line(names, head=True)
    yield style.get_row(padded, "head")
    count = 0
    for cells in chain(first, (list(map(shown, row)) for row in result.rows)):
        count += 1
        yield line(cells)
    yield style.get_bottom(padded)
    yield f"{count:,} row{'' if count == 1 else 's'}"


def fitting_widths(widest: Sequence[int], width: int) -> list[int]:
    """The widths of columns that take ``width`` together: the widest are cut first, to one width,
    but to no less than ``LEAST_WIDTH`` each."""
    least, most = LEAST_WIDTH, max(widest, default=0)
    while least < most:  # the largest cut that fits
        middle = (least + most + 1) // 2
        if sum(min(each, middle) for each in widest) <= width:
            least = middle
        else:
            most = middle - 1
    return [min(each, max(least, LEAST_WIDTH)) for each in widest]


FORMS: dict[str, Form] = {
    "box": box_lines,
    "csv": csv_lines,
    "json": json_lines,
    "lines": value_lines,
}
