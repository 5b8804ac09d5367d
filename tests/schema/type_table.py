"""The table of types of docs/schemas.md, and a store with a stream of each type.

Invariants: what a tool must give is said by the table and by the values here, never by the code
under test. Values are compared with their types, zeros with their signs, moments with their zone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import logstore
from tests.house.repo import ROOT

HEAD = "| type | Python |"
INF = math.inf
# Beside the value that stands in the table.
EDGES: dict[str, tuple[Any, ...]] = {
    "bool": (False,),
    "int": (0, 2**31 - 1, -(2**31)),
    "long": (0, 2**63 - 1, -(2**63)),
    "double": (
        0.0, -0.0, math.nan, INF, -INF, 0.1, 22.0, -1e16, 1e9, 1e10, 5e-324, 1.7976931348623157e308,
    ),
    "decimal": (Decimal("99999999.99"), Decimal("-99999999.99"), Decimal("0.00")),
    "string": ("", "é", "a\nb", "null", "nan", " ", 'a"b', "a\0b", "\U0001f600"),
    "binary": (b"", b"\0", b"null"),
    "date": (date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31)),
    "timestamp": (
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 11, 26, 0, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    ),
    "time": (time(0), time(23, 59, 59, 999999)),
    "uuid": (UUID(int=0), UUID(int=2**128 - 1)),
    "json": ("text", "", True, [], {}, 3.5, 2**70, -1, {"é": {"b": [1, None], "a": ""}}),
    "enum": ("high",),
}  # fmt: skip
NAMES = {"UTC": UTC, "Decimal": Decimal, "UUID": UUID, "date": date, "datetime": datetime}
NAMES["time"] = time


def table() -> dict[str, dict[str, str]]:
    """The rows of the table by their types: the cells by the names of their columns."""
    lines = iter((ROOT / "docs" / "schemas.md").read_text().splitlines())
    head = cells(next(line for line in lines if line.startswith(HEAD)))
    next(lines)
    found = {}
    for line in lines:
        if not line.startswith("|"):
            break
        row = dict(zip(head, map(code_of, cells(line)), strict=True))
        found[row["type"]] = row
    return found


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def code_of(cell: str) -> str:
    """What stands in a cell as code, which is all of it."""
    found = re.fullmatch(r"`([^`]+)`", cell)
    return cell if found is None else found[1]


TABLE = table()
TYPES = list(TABLE)


def plain(kind: str) -> str:
    """The name of a type without what stands in parentheses, which is the name of its stream."""
    return kind.partition("(")[0]


def example(kind: str) -> Any:
    """The value that the table has of a type."""
    return eval(TABLE[kind]["Python"], dict(NAMES))


def values(kind: str) -> list[Any]:
    """What is added of a type; null, behind these, is not among them."""
    return [example(kind), *EDGES[plain(kind)]]


def outside(kind: str, value: Any) -> Any:
    """A value of Python as a tool has it whose column has the type of the table."""
    if kind == "uuid":
        return str(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if kind == "json":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return value


def same(found: Any) -> Any:
    """A value, so that it is equal to another one only if that is the same: of the same type, NaN
    too, with its sign, its digits and its zone."""
    if isinstance(found, datetime):
        return type(found), found.utcoffset(), found.replace(tzinfo=None)
    if isinstance(found, dict | list):
        return type(found), json.dumps(found, sort_keys=True)
    return type(found), repr(found)


@contextmanager
def typed_store(path: Path) -> Iterator[logstore.Store[bytes]]:
    """A store with a stream for each type: the values, then null twice, given and left out."""
    with logstore.open(path) as store:
        for kind in TYPES:
            stream = store.stream(plain(kind))
            stream.configure(schema=f"v {kind}?, n int")
            for at, value in enumerate(values(kind)):
                stream.add({"v": value, "n": at})
            stream.add({"v": None, "n": -1})
            stream.add({"n": -2})
        yield store


def check_cell(kind: str, tool: str, found: str, read: Sequence[Any]) -> None:
    """The type that a tool gives, and its values, with null at the end, are those of the table."""
    assert found == TABLE[kind][tool]
    wanted = [outside(kind, value) for value in values(kind)]
    assert [same(each) for each in read] == [same(each) for each in [*wanted, None, None]]
