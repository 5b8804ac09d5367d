"""Shapes of entries."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

from logstore.ids import StreamID
from tests.scan.conditions import CASES

TOP = 2**64 - 1
REPEATED: list[list[tuple[bytes, bytes]]] = [
    [(b"tag", b"a"), (b"tag", b"b")],
    [(b"tag", b"a"), (b"x", b"1"), (b"tag", b"b"), (b"tag", b"c"), (b"x", b"2")],
    [(b"tag", b"only")],
    [(b"7", b"a"), (b"07", b"b"), (b"7", b"c")],
    [(b"k%d" % (n % 30), b"%d" % n) for n in range(70)],
    [(b"k\xff", b"a"), (b"k\xfe", b"b")],  # two names that are one text
]
SHAPES: dict[str, Any] = {
    "small": lambda rng: (rng.randrange(20), rng.randrange(20)),
    "times": lambda rng: (1_700_000_000_000 + rng.randrange(1000), rng.randrange(3)),
    "wide": lambda rng: (rng.randrange(2**64), rng.randrange(2**64)),
    "powers": lambda rng: (2 ** rng.randrange(64), max(2 ** rng.randrange(65) - 1, 0)),
    "past 2^63": lambda rng: (2**63 + rng.randrange(-5, 5), TOP - rng.randrange(9)),
}


def random_ids(shape: str, seed: int, count: int = 1000) -> list[StreamID]:
    """Up to ``count`` IDs, sorted, no two alike."""
    rng = random.Random(seed)
    drawn = {SHAPES[shape](rng) for _ in range(count)} - {(0, 0)}
    return [StreamID(*id) for id in sorted(drawn)]


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda column, values: column.is_in(values),
    "not in": lambda column, values: ~column.is_in(values),
}
TEXTS = sorted({case.text for case in CASES if case.text is not None})
