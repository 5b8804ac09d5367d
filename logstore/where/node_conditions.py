"""A bound condition that nodes are asked, by what statistics tell of them: whether an entry of
theirs may match.

Invariants: False is said only if no entry can match, whichever of them are left. Of what is not
told (a standard column, a step into JSON, a column that was another type or is rounded) anything
may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from logstore.codec.column_keys import ColumnRange, key_of, ranged_column
from logstore.schema.column_types import ColumnType, Whole
from logstore.where.condition_binding import Test
from logstore.where.condition_tree import All, Always, Either, Node

Ranges: TypeAlias = "Sequence[ColumnRange | None]"
NodeTest: TypeAlias = "Callable[[Ranges], bool]"  # the range of each column
# Of a whole number of these names, which stored ones it reads: also those of Arrow.
_WHOLE: Final = {
    "int": ("int",),
    "int32": ("int",),
    "long": ("int", "long"),
    "int64": ("int", "long"),
}


def node_test(node: Node, columns: Sequence[tuple[bytes, str]]) -> NodeTest | None:
    """Asks nodes of which the ranges of these columns are told, fields and the names of their
    types. None: it would always be True."""
    match node:
        case Always(holds=holds):
            return None if holds else lambda _: False
        case All(parts=parts):
            tests = [node_test(each, columns) for each in parts]
            known = [each for each in tests if each is not None]
            return _all(known) if known else None
        case Either(parts=parts):
            tests = [node_test(each, columns) for each in parts]
            known = [each for each in tests if each is not None]
            return _either(known) if known and len(known) == len(tests) else None
        case _:
            return _of_test(node, columns)


def _all(tests: list[NodeTest]) -> NodeTest:
    return lambda ranges: all(test(ranges) for test in tests)


def _either(tests: list[NodeTest]) -> NodeTest:
    return lambda ranges: any(test(ranges) for test in tests)


def place_of(columns: Sequence[tuple[bytes, str]], field: bytes, kind: ColumnType) -> int | None:
    """Which of the columns a field of a type is; None: none of them, or the type lacks some of the
    column's values."""
    names = _WHOLE.get(kind.name, ()) if isinstance(kind, Whole) else (kind.name,)
    for at, (other, name) in enumerate(columns):
        if other == field and name in names:
            return at
    return None


def _of_test(test: Test, columns: Sequence[tuple[bytes, str]]) -> NodeTest | None:
    column = test.column
    if column.standard or not column.typed or column.path is not None or column.kind is None:
        return None
    if not column.exact:
        return None
    at = place_of(columns, column.field, column.kind)
    if at is None:
        return None
    if test.sign == "null":
        return lambda ranges: _nulls(ranges[at]) != 0
    asked = _of_values(test)
    if asked is None:
        return None

    def holds(ranges: Ranges) -> bool:
        told = ranges[at]
        if told is None:
            return True
        return told.least is not None and told.most is not None and asked(told.least, told.most)

    return holds


def _nulls(told: ColumnRange | None) -> int | None:
    return None if told is None else told.nulls


def _of_values(test: Test) -> Callable[[bytes, bytes], bool] | None:
    """Asks whether a value between two texts can be one that the test wants."""
    kind = test.column.kind
    assert kind is not None
    column = ranged_column(test.column.field, kind)
    if column is None:
        return None
    if test.sign not in _POSSIBLE:
        return lambda _least, _most: True  # any value will do
    given = test.operand if test.sign in ("in", "not in") else [test.operand]
    key: Any = key_of(column)
    wanted: list[Any] = [key(kind.write(each)) for each in given]
    if None in wanted:
        return None
    possible = _POSSIBLE[test.sign]

    def may(least: bytes, most: bytes) -> bool:
        low, high = key(least), key(most)
        # A text without a key stands in no statistics that we made.
        return low is None or high is None or possible(low, high, wanted)

    return may


_POSSIBLE: Final[dict[str, Callable[[Any, Any, list[Any]], bool]]] = {
    "=": lambda least, most, wanted: least <= wanted[0] <= most,
    "!=": lambda least, most, wanted: not least == most == wanted[0],
    "<": lambda least, _, wanted: least < wanted[0],
    "<=": lambda least, _, wanted: least <= wanted[0],
    ">": lambda _, most, wanted: most > wanted[0],
    ">=": lambda _, most, wanted: most >= wanted[0],
    "in": lambda least, most, wanted: any(least <= each <= most for each in wanted),
    "not in": lambda least, most, wanted: least != most or least not in wanted,
}
