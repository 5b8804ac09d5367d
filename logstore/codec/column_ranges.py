"""The least and the most that the entries of a node have in columns of a schema.

Whoever looks for entries leaves nodes out by them. So what is told must hold as every reader reads
the values: of a node with a value that has no key, nothing is told.

Invariants: a range holds for the live entries of a node, and for any part of them.

It may not know schemas, nor where nodes lie.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.codec.column_keys import COLUMNS_MAX, ColumnRange, Key, RangedColumn, key_of
from logstore.codec.node import forward, is_live, read_flat, read_master


class _Extremes:
    """What was seen of one column."""

    def __init__(self, column: RangedColumn) -> None:
        self._key = key_of(column)
        self._known = True
        self._nulls = 0
        self._least: tuple[Key, bytes] | None = None
        self._most: tuple[Key, bytes] | None = None

    def add(self, text: bytes | None) -> None:
        """Add the value of an entry; None: it has none."""
        if text is None:
            self._nulls += 1
            return
        key = self._key(text)
        if key is None:
            self._known = False
        elif self._known:
            found = key, text
            if self._least is None or self._most is None:
                self._least = self._most = found
            elif key < self._least[0]:  # type: ignore[operator]  # keys of one column
                self._least = found
            elif key > self._most[0]:  # type: ignore[operator]
                self._most = found

    def found(self) -> ColumnRange | None:
        """The range; None: nothing is told."""
        if not self._known:
            return None
        if self._least is None or self._most is None:
            return ColumnRange(self._nulls, None, None)
        return ColumnRange(self._nulls, self._least[1], self._most[1])


class RangeFinder:
    """Finds the ranges of columns, at most COLUMNS_MAX of them, in nodes."""

    def __init__(self, columns: Sequence[RangedColumn]) -> None:
        if len(columns) > COLUMNS_MAX:
            raise ValueError(f"ranges are of at most {COLUMNS_MAX} columns")
        self._columns = tuple(columns)

    def of(self, lp: bytes, /) -> tuple[int, list[ColumnRange | None]]:
        """How many live entries a node has, and the range of each column; None: nothing is told of
        it. CorruptNodeError."""
        master = read_master(lp)
        found = [_Extremes(column) for column in self._columns]
        rows = 0
        for entry in forward(lp, master):
            if not is_live(entry, b""):
                continue
            rows += 1
            flat = read_flat(lp, entry, master)
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            for column, extremes in zip(self._columns, found, strict=True):
                extremes.add(fields.get(column.field))
        return rows, [each.found() for each in found]
