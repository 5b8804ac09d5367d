"""A condition held against the columns that there are: what names stand for, and values of their
types.

A number need not be one of its column's: ``n > 2.5`` is ``n > 2`` of whole numbers. A text is read
as the column's type, so ``at > '2026-11-26'`` compares moments.

Invariants: what is bound compares values of one type, which its column has exactly. Every name and
literal is checked before; an error names the column and shows the place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any, Final

from logstore.errors import Error, InvalidIDError, OptionError, SchemaError, shown
from logstore.ids import parse_id
from logstore.schema.column_types import (
    BINARY,
    BOOL,
    DATE,
    DOUBLE,
    JSON,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    ColumnType,
    Double,
    Enum,
    Fixed,
    String,
    Whole,
)
from logstore.tuples import NamedTuple
from logstore.where.condition_tree import (
    Always,
    Compared,
    IsNull,
    Like,
    Literal,
    Name,
    Node,
    OneOf,
    message_at,
    with_leaves,
)
from logstore.where.condition_values import moment_of, strict

EXACT_MAX: Final = 1 << 53  # of integers that are read as doubles
STANDARD: Final[dict[str, ColumnType | None]] = {
    "id": None,
    "ms": LONG,
    "seq": LONG,
    "ts": TIMESTAMP,
    "stream": STRING,
}
UNCOMPARED: Final = ("fields", "pairs", "id_key")
_WIDE = Context(prec=1000, rounding=ROUND_FLOOR)


class Column(NamedTuple):
    """What a name stands for.

    ``kind``: as what it is read; None until it is known what it is compared with. ``standard``: the
    standard column that it is, else it is a field. ``typed``: by a schema. ``path``: the steps into
    its JSON; None: it is no JSON. ``exact``: a stored value is compared as it is; else it may be
    null, rounded or cut.
    """

    name: str
    kind: ColumnType | None = None
    standard: str = ""
    field: bytes = b""
    typed: bool = False
    path: tuple[str | int, ...] | None = None
    exact: bool = True


class Test(NamedTuple):
    """``sign``: one of ``= != < <= > >= in null like``, or ``not`` and one of the last three;
    ``operand``: a value of the column's type, several, or a pattern and its escape."""

    column: Column
    sign: str
    operand: Any


Find = Callable[[str], "Column | None"]


class Binding:
    """The columns that there are: ``find`` gives one of a name. ``named``: what they are, for a
    message, if there are no others."""

    def __init__(self, find: Find, named: str, *, kept: bool) -> None:
        self._find = find
        self._named = named
        self._error: type[Error] = SchemaError if kept else OptionError

    def bound(self, text: str, tree: Node) -> Node:
        """The tree with what its names stand for. SchemaError, OptionError."""

        def made(leaf: Node) -> Node:
            try:
                return self._test(leaf)
            except _Unfit as error:
                raise self._error(message_at(text, error.at, str(error))) from None

        return with_leaves(tree, made)

    def _test(self, leaf: Node) -> Node:
        column = self._column(leaf.name)
        match leaf:
            case IsNull(negated=negated):
                kind = BINARY if column.kind in (None, JSON) else column.kind
                sign = "not null" if negated else "null"
                return Test(column._replace(kind=kind), sign, None)
            case Like(name=name, pattern=pattern, escape=escape, negated=negated):
                return _like(column, name, pattern, escape, negated=negated)
            case Compared(sign=sign, value=value):
                return _compared(column, sign, value)
            case OneOf(values=values, negated=negated):
                return _one_of(column, values, negated=negated)
            case _:
                raise AssertionError(leaf)

    def _column(self, name: Name) -> Column:
        if name.column in UNCOMPARED:
            raise _Unfit(name.at, f"column {name.column!r} is not compared: use id, or a field")
        column = self._find(name.column)
        if column is None:
            dotted = ".".join(map(str, (name.column, *name.path)))
            hint = f'; a name with a dot in it is written "{dotted}"' if name.path else ""
            raise _Unfit(name.at, f"there is no column {name.column!r}, only {self._named}{hint}")
        is_text = column.kind is None and not column.standard
        if column.kind == JSON or column.path is not None or (is_text and name.path):
            return column._replace(path=name.path, name=_path_text(name))
        if name.path:
            what = "a standard column" if column.kind is None else column.kind.name
            raise _Unfit(
                name.at,
                f"column {name.column!r} is {what}, which has no paths; a name with a dot in it "
                'stands in "double quotes"',
            )
        return column


def listed(names: Sequence[str]) -> str:
    """Names of columns for a message, not too many."""
    return ", ".join(map(repr, names[:10])) + (", .." if len(names) > 10 else "")


class _Unfit(Exception):  # noqa: N818
    """A name or a literal that cannot be; where it stands."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


def _path_text(name: Name) -> str:
    steps = [f"[{each}]" if isinstance(each, int) else f".{each}" for each in name.path]
    return name.column + "".join(steps)


# -- tests ------------------------------------------------------------------------------------
def _compared(column: Column, sign: str, literal: Literal) -> Node:
    if column.standard == "id":
        return Test(column, sign, _id(literal))
    column, value = _value(column, literal)
    if isinstance(column.kind, Whole | Fixed):
        return _fitted(column, sign, value)
    return Test(column, sign, value)


def _one_of(column: Column, values: tuple[Literal, ...], *, negated: bool) -> Node:
    sign = "not in" if negated else "in"
    if column.standard == "id":
        return Test(column, sign, [_id(each) for each in values])
    found: list[tuple[Column, Any]] = []
    for literal in values:
        typed, value = _value(column, literal)
        if found and typed != found[0][0]:
            raise _Unfit(
                literal.at, f"the values of in are of one type, and not {typed.kind} and others"
            )
        found.append((typed, value))
    column = found[0][0]
    given = [value for _, value in found]
    if isinstance(column.kind, Whole | Fixed):
        tests = [_fitted(column, "=", each) for each in given]
        given = [each.operand for each in tests if isinstance(each, Test)]
        if not given:
            return Test(column, "not null", None) if negated else Always(False)
    return Test(column, sign, given)


def _like(column: Column, name: Name, pattern: Literal, escape: str, *, negated: bool) -> Node:
    if column.kind in (None, JSON) and column.standard != "id":
        column = column._replace(kind=STRING)
    if not isinstance(column.kind, String | Enum):
        what = "an ID" if column.kind is None else column.kind.name
        raise _Unfit(name.at, f"column {column.name!r} is {what}: like is of text")
    return Test(column, "not like" if negated else "like", (pattern.value, escape))


def _fitted(column: Column, sign: str, number: Decimal) -> Node:
    """A comparison of whole numbers, or of decimals, with any number, as one with a number that
    the column can have."""
    kind = column.kind
    assert isinstance(kind, Whole | Fixed)
    if isinstance(kind, Whole):
        unit, most = Decimal(1), Decimal(kind.most)
        least = -most - 1
    else:
        unit = Decimal(1).scaleb(-kind.scale)
        most = (Decimal(10) ** kind.digits - 1) * unit if kind.digits < 28 else _most(kind)
        least = -most
    there = Test(column, "not null", None)
    if number > most:
        return there if sign in ("<", "<=", "!=") else Always(False)
    if number < least:
        return there if sign in (">", ">=", "!=") else Always(False)
    low = number.quantize(unit, context=_WIDE)
    value = int(low) if isinstance(kind, Whole) else low
    if low == number:
        return Test(column, sign, value)
    if sign in ("=", "!="):
        return there if sign == "!=" else Always(False)
    return Test(column, "<=" if sign in ("<", "<=") else ">", value)


def _most(kind: Fixed) -> Decimal:
    return Decimal((0, (9,) * kind.digits, -kind.scale))


# -- literals ---------------------------------------------------------------------------------
def _id(literal: Literal) -> Any:
    text = str(literal.value) if literal.kind == "number" else literal.value
    try:
        return parse_id(text)
    except InvalidIDError:
        raise _Unfit(
            literal.at,
            f"column 'id' is compared with an ID, such as '1700000000000-0', not {_said(literal)}",
        ) from None


_BY_LITERAL: Final = {
    "number": DOUBLE,
    "text": STRING,
    "bool": BOOL,
    "timestamp": TIMESTAMP,
    "date": DATE,
    "time": TIME,
}


def _value(column: Column, literal: Literal) -> tuple[Column, Any]:
    """The column with its type, and the literal as a value of it: of whole numbers and decimals
    still any number."""
    kind, value = column.kind, literal.value
    if kind is None or kind == JSON:
        kind = _BY_LITERAL[literal.kind]
        if literal.kind == "number":
            _check_exact(column, literal)
        return column._replace(kind=kind), float(value) if kind == DOUBLE else value
    try:
        return column, _of_type(kind, literal)
    except (ValueError, TypeError) as error:
        why = f"{shown(value)} {error}" if literal.kind == "text" else f"not {_said(literal)}"
        raise _Unfit(
            literal.at,
            f"column {column.name!r} is {kind.name}: {why}; compare it with {_example(kind)}",
        ) from None


def _of_type(kind: ColumnType, literal: Literal) -> Any:
    """ValueError, TypeError for a literal that is none of the type."""
    value: Any = literal.value
    if literal.kind == "text":
        if kind == BINARY:
            return value.encode()
        if kind == TIMESTAMP:
            return moment_of(value.encode())
        found = strict(kind)(value.encode())
        return Decimal(found) if isinstance(kind, Whole | Fixed) else found
    if literal.kind == "number" and isinstance(kind, Whole | Fixed | Double):
        return float(value) if isinstance(kind, Double) else value
    if literal.kind == "date" and kind == TIMESTAMP:
        return moment_of(value.isoformat().encode())
    if _BY_LITERAL[literal.kind] != kind:
        raise TypeError
    return value


def _check_exact(column: Column, literal: Literal) -> None:
    number: Decimal = literal.value
    if number.as_tuple().exponent == 0 and abs(number) > EXACT_MAX:  # 1e300 is meant as a double
        raise _Unfit(
            literal.at,
            f"{number} is too large to be compared as double: give column {column.name!r} a type, "
            "in a schema",
        )


def _said(literal: Literal) -> str:
    value = literal.value
    if isinstance(value, datetime | date | time):
        return f"the {literal.kind} '{value}'"
    return f"the {literal.kind} {shown(value) if literal.kind == 'text' else str(value).lower()}"


def _example(kind: ColumnType) -> str:
    """A value that fits, as a condition has it."""
    if isinstance(kind, Whole):
        return "a number, such as 21"
    if isinstance(kind, Double | Fixed):
        return "a number, such as 21.5"
    if isinstance(kind, Enum):
        return f"one of its texts, such as {kind.example}"
    return _EXAMPLES.get(kind.name, "a text in 'quotes'")


_EXAMPLES: Final = {
    "bool": "true or false",
    "date": "date '2026-11-26'",
    "timestamp": "timestamp '2026-11-26 12:00:00Z'",
    "time": "time '12:30:00'",
    "uuid": "'00000000-0000-0000-0000-00000000000a'",
}
