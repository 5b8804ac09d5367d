"""Conditions of Spark that nodes are asked: what the reader in the JVM says of a query's filter.

A condition is ``["all", [...]]``, ``["any", [...]]``, an object, or null where nothing is known.
An object is a test: ``field``, ``type`` (the column's type in Spark), ``sign`` and ``values``,
texts of that type.

Invariants: a node is left out only if Spark's filter is true for no entry of it. A test of a type
that the statistics do not have, or with a value that is none, may always be true.
"""

from __future__ import annotations

import re
from typing import Any

from logstore.scan.conditions import ScanCondition
from logstore.schema.column_types import (
    BOOL,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    ColumnType,
    Fixed,
)
from logstore.where.condition_binding import Column, Test
from logstore.where.condition_tree import Always, Node, all_of, either_of

_TYPES: dict[str, ColumnType] = {
    "int": INT,
    "bigint": LONG,
    "double": DOUBLE,
    "string": STRING,
    "boolean": BOOL,
    "date": DATE,
    "timestamp": TIMESTAMP,
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SETS = ("in", "not in")
_OF_NULL = ("null", "not null")
_SIGNS = ("=", "!=", "<", "<=", ">", ">=", *_SETS, *_OF_NULL)


def condition(told: Any) -> ScanCondition:
    """What nodes are asked."""
    return ScanCondition(None, [], _tree(told))


def _tree(told: Any) -> Node:
    if told is None:
        return Always(True)
    if isinstance(told, dict):
        return _test(told)
    kind, parts = told
    return (all_of if kind == "all" else either_of)([_tree(each) for each in parts])


def _test(told: dict[str, Any]) -> Node:
    kind, sign = _type(told["type"]), told["sign"]
    if kind is None or sign not in _SIGNS:
        return Always(True)
    try:
        values = [kind.read(each.encode()) for each in told["values"]]
    except ValueError:
        return Always(True)
    if sign in _OF_NULL:
        operand: Any = None
    else:
        operand = values if sign in _SETS else values[0]
    field = told["field"]
    return Test(Column(field, kind, field=field.encode(), typed=True), sign, operand)


def _type(name: str) -> ColumnType | None:
    found = _DECIMAL.fullmatch(name)
    return Fixed(int(found[1]), int(found[2])) if found else _TYPES.get(name)
