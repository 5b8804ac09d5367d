"""What conditions on a field answer, as literals: one table for all parts that compare values.

A row is ``(what the entry has, the column's type, operator, operand, the answer)``; None is an
entry without the field. The rule: ``in [x]`` answers as ``== x``, null is in no comparison, -0.0
equals 0.0, NaN equals NaN and is larger than any number.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from logstore.tuples import NamedTuple

NAN = math.nan
INF = math.inf
DAY = datetime(2026, 1, 2, tzinfo=UTC)
SIGNS = ("==", "!=", "<", "<=", ">", ">=")


class ConditionCase(NamedTuple):
    """One row of the table."""

    text: str | None
    type: Any
    sign: str
    operand: Any
    answer: bool


def _ordered(kind: Any, operand: Any, rows: dict[str | None, str]) -> list[ConditionCase]:
    """Rows of all signs: of each text the answers in the order of SIGNS, 1 or 0."""
    return [
        ConditionCase(text, kind, sign, operand, answer == "1")
        for text, answers in rows.items()
        for sign, answer in zip(SIGNS, answers, strict=True)
    ]


def _sets(kind: Any, operand: list[Any], rows: dict[str | None, str]) -> list[ConditionCase]:
    """Rows of ``in`` and ``not in``, in this order."""
    return [
        ConditionCase(text, kind, sign, operand, answer == "1")
        for text, answers in rows.items()
        for sign, answer in zip(("in", "not in"), answers, strict=True)
    ]


#                    ==  !=  <  <=  >  >=
NUMBERS = [
    case
    for kind in (pa.float64(), pa.float32())
    for case in (
        *_ordered(kind, 0.0, {
            None: "000000", "": "000000", "x": "000000", "0.0": "100101", "-0.0": "100101",
            "nan": "010011", "inf": "010011", "-inf": "011100", "1.5": "010011",
        }),
        *_ordered(kind, -0.0, {
            None: "000000", "0.0": "100101", "-0.0": "100101", "0": "100101", "nan": "010011",
            "-1": "011100",
        }),
        *_ordered(kind, NAN, {
            None: "000000", "x": "000000", "0.0": "011100", "nan": "100101", "inf": "011100",
            "-nan": "100101", "-inf": "011100",
        }),
        *_ordered(kind, INF, {
            None: "000000", "nan": "010011", "inf": "100101", "1.5": "011100",
        }),
        *_sets(kind, [1.5], {None: "00", "": "00", "x": "00", "1.5": "10", "2": "01", "nan": "01"}),
        *_sets(kind, [0.0], {None: "00", "0.0": "10", "-0.0": "10", "nan": "01", "1.5": "01"}),
        *_sets(kind, [-0.0, 7.0], {None: "00", "0.0": "10", "-0.0": "10", "7": "10", "8": "01"}),
        *_sets(kind, [NAN], {None: "00", "0.0": "01", "nan": "10", "-nan": "10", "inf": "01"}),
        *_sets(kind, [NAN, 0.0], {None: "00", "-0.0": "10", "nan": "10", "inf": "01"}),
    )
]  # fmt: skip
OTHERS = [
    *_ordered(pa.int64(), 3, {None: "000000", "x": "000000", "3": "100101", "2": "011100"}),
    *_sets(pa.int64(), [3], {None: "00", "": "00", "x": "00", "3": "10", "2": "01"}),
    *_ordered(pa.string(), "b", {None: "000000", "": "011100", "b": "100101", "c": "010011"}),
    *_sets(pa.string(), ["b"], {None: "00", "": "01", "b": "10", "c": "01"}),
    *_sets(pa.string(), ["0.0"], {None: "00", "0.0": "10", "-0.0": "01"}),
    *_sets(pa.string(), [""], {None: "00", "": "10", "c": "01"}),
    *_sets(pa.bool_(), [True], {None: "00", "true": "10", "false": "01", "x": "00"}),
    *_ordered(pa.bool_(), False, {None: "000000", "false": "100101", "true": "010011"}),
    *_sets(pa.date32(), [date(2026, 1, 2)], {None: "00", "2026-01-02": "10", "2026-01-03": "01"}),
    *_sets(pa.timestamp("us", tz="UTC"), [DAY], {
        None: "00", "2026-01-02T00:00:00Z": "10", "2026-01-02 00:00:00.000001": "01",
    }),
]  # fmt: skip
CASES = [*NUMBERS, *OTHERS]


class TextCase(NamedTuple):
    """What ``range(where=)`` and ``--where`` answer: texts are equal as bytes, and only so."""

    text: str | None
    operand: Any  # a value of ``where=``
    answer: bool


TEXT_CASES = [
    TextCase(text, operand, answer == "1")
    for operand, rows in [
        (0, {None: "0", "": "0", "0": "1", "-0": "0", "0.0": "0", "00": "0", " 0": "0"}),
        ("0", {None: "0", "0": "1", "-0": "0", "0.0": "0"}),
        (0.0, {None: "0", "0": "0", "0.0": "1", "-0.0": "0"}),
        (-0.0, {None: "0", "0.0": "0", "-0.0": "1"}),
        (NAN, {None: "0", "nan": "1", "NaN": "0", "-nan": "0"}),
        ("", {None: "0", "": "1", "0": "0", "null": "0"}),
        ("None", {None: "0", "None": "1"}),
        (-1, {None: "0", "-1": "1", "-01": "0", "1": "0"}),
        (1 << 63, {None: "0", str(1 << 63): "1", str(-(1 << 63)): "0"}),
    ]
    for text, answer in rows.items()
]
