"""A bound condition that entries are asked, one by one.

What can be looked for in the bytes of a node, which is where most nodes are left out, is told
apart: `sought` has the fields that must have just these bytes. And `interval` says which IDs can
match.

Invariants: an entry is asked by what is stored of it, whoever reads it later; of a field that
repeats the last value counts. It answers as a scan does (``scan.conditions``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final

from logstore.codec.node_types import TIMESTAMP_MS_MAX
from logstore.errors import InvalidIDError
from logstore.ids import MAX_ID, U64_MAX, ZERO_ID, StreamID, datetime_ms
from logstore.schema.column_types import BINARY, Enum, String
from logstore.tuples import NamedTuple
from logstore.where.condition_binding import Column, Test
from logstore.where.condition_tree import All, Always, Either, Node
from logstore.where.condition_values import (
    comparable,
    loose,
    parsed_json,
    picked,
    step_into,
    strict,
)

I64_MAX: Final = (1 << 63) - 1


class Asked(NamedTuple):
    """An entry that is asked: its ID, and its fields as they are stored."""

    ms: int
    seq: int
    fields: dict[bytes, bytes]


Predicate = Callable[[Asked], bool]
Parse = Callable[[bytes], Any]


class EntryCondition:
    """A bound condition of the entries of a stream; ``stream`` is its name. ``parse`` gives the
    value of what its codec stored, None for what is none."""

    def __init__(self, node: Node, stream: str, parse: Parse = parsed_json) -> None:
        self._stream = stream
        self._parse = parse
        self.tree = node
        self.holds: Predicate = self._predicate(node)
        self.sought: list[bytes] = [part for each in _parts(node) for part in _sought(each)]
        self.interval: tuple[StreamID, StreamID] = _interval(node)

    def matches(self, ms: int, seq: int, flat: list[bytes]) -> bool:
        """Whether it holds for an entry: its ID, and names and values by turns."""
        return self.holds(Asked(ms, seq, dict(zip(flat[::2], flat[1::2], strict=True))))

    def _predicate(self, node: Node) -> Predicate:
        match node:
            case Always(holds=holds):
                return lambda _: bool(holds)
            case All(parts=parts):
                return partial(_all, [self._predicate(each) for each in parts])
            case Either(parts=parts):
                return partial(_either, [self._predicate(each) for each in parts])
            case _:
                return _of_test(node, self._reader(node.column))

    def _reader(self, column: Column) -> Callable[[Asked], Any]:
        """Reads the value of a column; None for null."""
        if column.standard:
            return _STANDARD.get(column.standard, lambda _: self._stream)
        field, kind = column.field, column.kind
        assert kind is not None
        if column.path is not None:
            return partial(_json_value, field, self._parse, column.path, kind)
        read = strict(kind) if column.typed else loose(kind)
        return partial(_field_value, field, read)


def _all(parts: list[Predicate], asked: Asked) -> bool:
    return all(each(asked) for each in parts)


def _either(parts: list[Predicate], asked: Asked) -> bool:
    return any(each(asked) for each in parts)


# -- values -----------------------------------------------------------------------------------
def _field_value(field: bytes, read: Callable[[bytes], Any], asked: Asked) -> Any:
    text = asked.fields.get(field)
    if text is None:
        return None
    try:
        return read(text)
    except ValueError:
        return None


def _json_value(
    field: bytes, parse: Parse, path: tuple[str | int, ...], kind: Any, asked: Asked
) -> Any:
    text = asked.fields.get(field)
    return None if text is None else picked(step_into(parse(text), path), kind)


def _moment(asked: Asked) -> datetime | None:
    return None if asked.ms > TIMESTAMP_MS_MAX else StreamID(asked.ms, 0).time


_STANDARD: Final[dict[str, Callable[[Asked], Any]]] = {
    "id": lambda asked: (asked.ms, asked.seq),
    "ms": lambda asked: asked.ms if asked.ms <= I64_MAX else None,
    "seq": lambda asked: asked.seq if asked.seq <= I64_MAX else None,
    "ts": _moment,
}


# -- tests ------------------------------------------------------------------------------------
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": lambda value, other: value == other,
    "!=": lambda value, other: value != other,
    "<": lambda value, other: value < other,
    "<=": lambda value, other: value <= other,
    ">": lambda value, other: value > other,
    ">=": lambda value, other: value >= other,
    "in": lambda value, others: value in others,
    "not in": lambda value, others: value not in others,
    "like": lambda value, pattern: pattern(value),
    "not like": lambda value, pattern: not pattern(value),
}


def _of_test(test: Test, read: Callable[[Asked], Any]) -> Predicate:
    sign, operand = test.sign, test.operand
    if sign == "null":
        return lambda asked: read(asked) is None
    if sign == "not null":
        return lambda asked: read(asked) is not None
    if sign in ("like", "not like"):
        operand = Pattern(*operand).matches
    elif sign in ("in", "not in"):
        operand = frozenset(map(comparable, operand))
    else:
        operand = comparable(operand)
    compare = _COMPARED[sign]

    def holds(asked: Asked) -> bool:
        value = read(asked)
        return value is not None and compare(comparable(value), operand)

    return holds


class Pattern:
    """A pattern of ``like``, matched in a time that no pattern makes more than its length times
    that of the text: each piece between ``%`` is looked for behind the one before."""

    def __init__(self, pattern: str, escape: str) -> None:
        pieces: list[str] = [""]
        for sign, is_plain in characters_of(pattern, escape):
            if sign == "%" and not is_plain:
                pieces.append("")
            else:
                pieces[-1] += re.escape(sign) if is_plain else "."
        self._first, *self._rest = [re.compile(each, re.DOTALL) for each in pieces]
        self._last_length = _length(pieces[-1])

    def matches(self, text: str) -> bool:
        """Whether the whole text is of the pattern."""
        if not self._rest:
            return self._first.fullmatch(text) is not None
        found = self._first.match(text)
        for piece in self._rest[:-1]:
            if found is None:
                return False
            found = piece.search(text, found.end())
        begin = len(text) - self._last_length
        return (
            found is not None
            and begin >= found.end()
            and self._rest[-1].fullmatch(text, begin) is not None
        )


def _length(piece: str) -> int:
    """How many characters a piece has, where each may stand behind a backslash."""
    return len(re.sub(r"\\(.)", r"\1", piece, flags=re.DOTALL))


def characters_of(pattern: str, escape: str) -> list[tuple[str, bool]]:
    """The characters of a pattern, and whether each stands for itself."""
    found: list[tuple[str, bool]] = []
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == escape:
            at += 1
            found.append((pattern[at], True))
        else:
            found.append((sign, sign not in "%_"))
        at += 1
    return found


# -- what can be looked for -------------------------------------------------------------------
def _parts(node: Node) -> tuple[Node, ...]:
    """What must hold of all."""
    return node.parts if isinstance(node, All) else (node,)


def _sought(node: Node) -> list[bytes]:
    """The field and the bytes that it must have; none if other bytes can be equal."""
    if not isinstance(node, Test) or node.sign != "=" or node.column.standard:
        return []
    column = node.column
    if column.path is not None or not isinstance(column.kind, String | Enum):
        is_binary = column.typed and column.kind == BINARY
        return [column.field, node.operand] if is_binary else []
    text: str = node.operand
    if "\ufffd" in text:  # in its place stand bytes that are no UTF-8, too
        return []
    return [column.field, text.encode()]


Interval = tuple[StreamID, StreamID]
NOWHERE: Final[Interval] = (MAX_ID, ZERO_ID)
EVERYWHERE: Final[Interval] = (ZERO_ID, MAX_ID)


def _interval(node: Node) -> Interval:
    """From the first to the last ID that can match; reversed if there is none."""
    match node:
        case Always(holds=holds):
            return EVERYWHERE if holds else NOWHERE
        case All(parts=parts):
            ends = [_interval(each) for each in parts]
            return max(low for low, _ in ends), min(high for _, high in ends)
        case Either(parts=parts):
            ends = [each for each in map(_interval, parts) if each[0] <= each[1]]
            if not ends:
                return NOWHERE
            return min(low for low, _ in ends), max(high for _, high in ends)
        case _:
            return _of_ids(node)


def _of_ids(test: Test) -> Interval:
    column, sign, operand = test
    if column.standard not in ("id", "ms", "ts") or sign in ("!=", "not in", "null", "not null"):
        return EVERYWHERE
    values = operand if sign == "in" else [operand]
    ends = [_ends(column.standard, each) for each in values]
    low, high = min(each[0] for each in ends), max(each[1] for each in ends)
    if sign in ("<", "<="):
        return ZERO_ID, high
    return (low, MAX_ID) if sign in (">", ">=") else (low, high)


def _ends(standard: str, value: Any) -> Interval:
    """The first and the last ID of a value, or around it."""
    if standard == "id":
        return value, value
    try:
        ms = value if standard == "ms" else datetime_ms(value)
    except InvalidIDError:  # before 1970
        ms = -1
    if ms < 0:
        return ZERO_ID, ZERO_ID
    return StreamID(ms, 0), StreamID(ms, U64_MAX)
