"""A bound condition that the filters of nodes are asked: which of some nodes may have an entry that
matches, by the values that must be equal.

Invariants: a node is left out only if no entry of it can match. Filters have the texts of values,
and a column has one only where equal values are equal texts; so what is asked of them is the one
text of the value. Of all but ``=`` and ``in`` of columns with filters, any node may match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, or_
from typing import Final, TypeAlias

from logstore.codec import codec
from logstore.codec.column_keys import FILTERED_KINDS, kind_of
from logstore.codec.node_filter import ALL_NODES
from logstore.where.condition_binding import Test
from logstore.where.condition_tree import All, Always, Either, Node
from logstore.where.node_conditions import place_of

Filters: TypeAlias = "Sequence[bytes | None]"
FilterTest: TypeAlias = "Callable[[Filters], int]"  # the filter of each column; nodes as bits
VALUES_MAX: Final = 256  # of ``in``: of more, most nodes have one


def filter_test(node: Node, columns: Sequence[tuple[bytes, str]]) -> FilterTest | None:
    """Asks nodes that have filters of these columns, fields and the names of their types. None: any
    node may match."""
    match node:
        case Always():
            return None
        case All(parts=parts):
            return all_of([filter_test(each, columns) for each in parts])
        case Either(parts=parts):
            tests = [filter_test(each, columns) for each in parts]
            known = [each for each in tests if each is not None]
            return _either(known) if known and len(known) == len(tests) else None
        case _:
            return _of_test(node, columns)


def bytes_test(where: Sequence[bytes], columns: Sequence[tuple[bytes, str]]) -> FilterTest | None:
    """As `filter_test`, for entries with these fields and bytes: name, value, name, value, .."""
    fields = [field for field, _ in columns]
    return all_of(
        [
            has_any(fields.index(name), [value])
            for name, value in zip(where[::2], where[1::2], strict=True)
            if name in fields
        ]
    )


def all_of(tests: Sequence[FilterTest | None]) -> FilterTest | None:
    """What asks the nodes that may match by each of some tests."""
    known = [each for each in tests if each is not None]
    if len(known) <= 1:
        return known[0] if known else None
    return lambda filters: reduce(and_, [test(filters) for test in known])


def _either(tests: list[FilterTest]) -> FilterTest:
    return lambda filters: reduce(or_, [test(filters) for test in tests])


def _of_test(test: Test, columns: Sequence[tuple[bytes, str]]) -> FilterTest | None:
    column = test.column
    if column.standard or not column.typed or column.path is not None or column.kind is None:
        return None
    if not column.exact or test.sign not in ("=", "in"):
        return None
    if kind_of(column.kind) not in FILTERED_KINDS:
        return None
    at = place_of(columns, column.field, column.kind)
    values = test.operand if test.sign == "in" else [test.operand]
    if at is None or len(values) > VALUES_MAX:
        return None
    return has_any(at, [column.kind.write(each) for each in values])


def has_any(at: int, texts: Sequence[bytes]) -> FilterTest:
    """Asks for the nodes that may have one of these texts in a column."""
    nodes_with = codec().nodes_with
    hashes = [codec().filter_hash(each) for each in texts]

    def may(filters: Filters) -> int:
        found = filters[at]
        if found is None:
            return ALL_NODES
        return reduce(or_, [nodes_with(found, each) for each in hashes], 0)

    return may
