"""Rows of an import that need nothing but to be added, many at a time.

Most rows are flat: an ID, and fields that are text, numbers, true, false or null. What such a line
means is found here in a tenth of the time that ``lines`` takes, which is asked for all others.
Invariants: the rows of a block are those that ``lines`` makes of the same lines, none left out; a
line of which that is not certain is in no block. Knows nothing of stores.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from logstore.errors import InputLineError
from logstore.tools.formats import is_utf8
from logstore.tools.lines import NUMBERS, Row, RowIDs, attempt
from logstore.tuples import NamedTuple

Fields: TypeAlias = dict[str, str] | list[tuple[str, str]]  # a list where a name repeats
R = TypeVar("R")
PlainRow: TypeAlias = Fields | tuple[str, Fields]  # with the text of its ID, if it has one
OPEN = "*"  # in place of a sequence: an add takes such an ID, an import does not
_name = itemgetter(0)


class Block(NamedTuple):
    """Rows as ``add_many`` takes them: all have the texts of their IDs, which nobody has looked at,
    or none has one; and their lines."""

    lines: Sequence[int]
    rows: Sequence[PlainRow]
    ids: RowIDs

    @property
    def with_ids(self) -> bool:
        """Whether they have IDs."""
        return isinstance(self.rows[0], tuple)

    def row(self, at: int) -> Row | InputLineError:
        """One of them as ``lines`` gives it, or why it is none."""
        found = self.rows[at]
        given, fields = found if isinstance(found, tuple) else (None, found)
        pairs = fields.items() if isinstance(fields, dict) else fields
        stored = [(name.encode(), value.encode()) for name, value in pairs]
        return attempt(self.lines[at], lambda: (given, stored), self.ids)


def one_by_one(
    found: Iterable[Row | InputLineError | Block],
) -> Iterator[Row | InputLineError]:
    """The rows of blocks, and what stands between blocks, in order."""
    for each in found:
        if isinstance(each, Block):
            yield from map(each.row, range(len(each.rows)))
        else:
            yield each


def blocks(
    found: Iterable[tuple[int, R, PlainRow | None]],
    other: Callable[[int, R], Row | InputLineError | None],
    ids: RowIDs,
) -> Iterator[Row | InputLineError | Block]:
    """Plain rows put together, of the numbers of lines, what stands there, and what plain row that
    is; where there is none, what ``other`` makes of it, which is nothing where nothing stands."""
    lines: list[int] = []
    rows: list[PlainRow] = []
    with_ids = False
    for number, read, row in found:
        if row is None or (row.__class__ is tuple) is not with_ids:
            if rows:
                yield Block(lines, rows, ids)
                lines, rows = [], []
            if row is None:
                one = other(number, read)
                if one is not None:
                    yield one
                continue
            with_ids = not with_ids
        lines.append(number)
        rows.append(row)
    if rows:
        yield Block(lines, rows, ids)


# -- JSON ---------------------------------------------------------------------------------------
def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


# Objects are tuples here, so that they are no lists; numbers are their text.
_scan: Callable[[str, int], tuple[Any, int]] = vars(
    json.JSONDecoder(
        object_pairs_hook=tuple,
        parse_float=str,
        parse_int=str,
        parse_constant=_refuse_constant,
    )
)["scan_once"]
_ENDS = frozenset({"\n", "\r\n", ""})


def plain_json(ids: RowIDs) -> Callable[[bytes], PlainRow | None]:
    """What finds the row of a line of JSON; None if ``lines`` must look at it."""
    if ids.of_times:
        return lambda _line: None
    field, required = ids.field, ids.required
    # Who has none of these, where no ID is in front, has no ID.
    of_ids = {field, NUMBERS[0]} if ids.default else {field}

    def row(line: bytes) -> PlainRow | None:
        try:
            text = line.decode()
            found, end = _scan(text, 0)
        except (ValueError, StopIteration, RecursionError):
            return None
        if found.__class__ is not tuple or not found:
            return None
        if end + 1 != len(text) and text[end:] not in _ENDS:
            return None
        if b"\\u" in line and (b"\\ud" in line or b"\\uD" in line):
            return None  # it may be half of a character, which is no UTF-8
        name, given = found[0]
        if name != field:
            free = not required and of_ids.isdisjoint(map(_name, found))
            return _fields(found) if free else None
        if given.__class__ is not str or OPEN in given or not ids.surely_meant(given):
            return None
        rest = found[1:]
        if len(rest) == 1 and rest[0][0] == "fields" and rest[0][1].__class__ is tuple:
            rest = rest[0][1]
        fields = _fields(rest)
        return None if fields is None else (given, fields)

    return row


def _fields(found: Sequence[tuple[str, Any]]) -> Fields | None:
    """Fields with their values as text, without those that are null; None if one is nested, or
    there is none."""
    fields: dict[str, Any] = dict(found)
    if len(fields) == len(found):
        for value in fields.values():
            if value.__class__ is not str:
                break
        else:
            return fields or None
    texts = _texts(found)
    fields = dict(texts)
    return (fields if len(fields) == len(texts) else texts) or None


def _texts(found: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Nothing if one is nested."""
    made: list[tuple[str, str]] = []
    for name, value in found:
        if value is not None:
            text = {True: "true", False: "false"}[value] if isinstance(value, bool) else value
            if not isinstance(text, str):
                return []
            made.append((name, text))
    return made


# -- CSV ----------------------------------------------------------------------------------------
def plain_csv(header: Sequence[str], ids: RowIDs) -> Callable[[list[str]], PlainRow | None]:
    """What finds the row of a record of UTF-8 under a header; None if ``lines`` must look at it."""
    width = len(header)
    id_at = header.index(ids.field) if ids.field in header else -1
    names = [name for at, name in enumerate(header) if at != id_at]
    missing = id_at < 0 and (ids.required or (ids.default and NUMBERS[0] in header))
    if ids.of_times or missing or not names or not is_utf8(names):
        return lambda _cells: None
    repeated = len(set(names)) < len(names)

    def row(cells: list[str]) -> PlainRow | None:
        if len(cells) != width:
            return None
        given = None
        if id_at >= 0:
            given = cells[id_at]
            if OPEN in given or not ids.surely_meant(given):
                return None
            cells = cells[:id_at] + cells[id_at + 1 :]
        pairs = zip(names, cells, strict=True)
        fields: Fields = list(pairs) if repeated else dict(pairs)
        return fields if given is None else (given, fields)

    return row
