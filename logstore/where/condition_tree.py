"""What a condition is made of: names, literals, tests, and how they are combined.

The logic is SQL's, of three values: a comparison with null is neither true nor false, and an entry
counts if its condition is true. `normal` brings each ``not`` down to the tests, which have an
opposite each. In that form a test that is unknown may be taken for one that does not hold: so
whoever evaluates it needs no third value.

Invariants: a tree is at most DEPTH_MAX deep and has at most TESTS_MAX tests, so that who walks over
it may call itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from logstore.errors import OptionError
from logstore.tuples import NamedTuple

DEPTH_MAX: Final = 100
TESTS_MAX: Final = 1000
SHOWN_LETTERS: Final = 60  # of a text around a place


class Literal(NamedTuple):
    """A value. ``kind``: number, text, bool, null, timestamp, date or time."""

    kind: str
    value: Any
    at: int


class Name(NamedTuple):
    """A column, and the steps from there into its JSON."""

    column: str
    path: tuple[str | int, ...]
    at: int


class Compared(NamedTuple):
    """``sign``: one of OPPOSITE."""

    name: Name
    sign: str
    value: Literal


class OneOf(NamedTuple):
    """``in``, or ``not in``."""

    name: Name
    values: tuple[Literal, ...]
    negated: bool


class IsNull(NamedTuple):
    """``is null``, or ``is not null``."""

    name: Name
    negated: bool


class Like(NamedTuple):
    """``like``, or ``not like``; ``escape`` is a character, or empty."""

    name: Name
    pattern: Literal
    escape: str
    negated: bool


class Always(NamedTuple):
    """What does not depend on the entry; None is unknown."""

    holds: bool | None


class Not(NamedTuple):
    """The opposite; it is in no normal tree."""

    part: Node
    depth: int


class All(NamedTuple):
    """Each of the parts holds."""

    parts: tuple[Node, ...]
    depth: int


class Either(NamedTuple):
    """One of the parts holds."""

    parts: tuple[Node, ...]
    depth: int


Node: TypeAlias = Any  # one of these; and what the leaves are made into
OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def depth_of(parts: Sequence[Node]) -> int:
    """How deep a node of these parts is."""
    return 1 + max(getattr(each, "depth", 0) for each in parts)


def tests_of(node: Node) -> int:
    """How many tests a tree has."""
    match node:
        case Not(part=part):
            return tests_of(part)
        case All(parts=parts) | Either(parts=parts):
            return sum(map(tests_of, parts))
        case _:
            return 1


def all_of(parts: Sequence[Node]) -> Node:
    """A node that holds if each of the parts does."""
    left = [each for each in parts if each != Always(True)]
    if any(isinstance(each, Always) for each in left):
        return Always(False)
    if len(left) < 2:
        return left[0] if left else Always(True)
    return All(tuple(left), depth_of(left))


def either_of(parts: Sequence[Node]) -> Node:
    """A node that holds if one of the parts does."""
    left = [each for each in parts if not isinstance(each, Always)]
    if Always(True) in parts:
        return Always(True)
    if len(left) < 2:
        return left[0] if left else Always(False)
    return Either(tuple(left), depth_of(left))


def normal(node: Node, *, negated: bool = False) -> Node:
    """The tree without ``not`` and without null, as true for the same entries."""
    match node:
        case Not(part=part):
            return normal(part, negated=not negated)
        case All(parts=parts) | Either(parts=parts):
            made = [normal(each, negated=negated) for each in parts]
            return all_of(made) if isinstance(node, All) != negated else either_of(made)
        case Always(holds=holds):
            return Always(holds is not None and holds != negated)
        case Compared(name=name, sign=sign, value=value):
            if value.kind == "null":
                return Always(False)
            return Compared(name, OPPOSITE[sign] if negated else sign, value)
        case OneOf():
            return _without_null(node._replace(negated=node.negated != negated))
        case _:
            return node._replace(negated=node.negated != negated)


def _without_null(node: OneOf) -> Node:
    """Null is no value that a column has, and it is not known whether it is another one."""
    left = tuple(each for each in node.values if each.kind != "null")
    if not left or (node.negated and len(left) < len(node.values)):
        return Always(False)
    return node._replace(values=left)


def with_leaves(node: Node, made: Callable[[Node], Node]) -> Node:
    """A normal tree with what is made of each test."""
    match node:
        case All(parts=parts):
            return all_of([with_leaves(each, made) for each in parts])
        case Either(parts=parts):
            return either_of([with_leaves(each, made) for each in parts])
        case Always():
            return node
        case _:
            return made(node)


def refused(text: str, at: int, why: str) -> OptionError:
    """The error of a text, with a caret under the place."""
    return OptionError(message_at(text, at, why))


def message_at(text: str, at: int, why: str) -> str:
    """What is wrong with a text, and where."""
    at = min(at, len(text))
    line_at = text.rfind("\n", 0, at) + 1
    begin = max(line_at, at - SHOWN_LETTERS // 2)
    shown = text[begin : begin + SHOWN_LETTERS].partition("\n")[0]
    before = "".join("\t" if each == "\t" else " " for each in shown[: at - begin])
    return f"where: {why}\n  {shown}\n  {before}^"
