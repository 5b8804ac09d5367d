"""The least and the most that the entries of a node have in columns of a schema, and filters that
tell which of some nodes may have a value.

Whoever looks for entries leaves nodes out by them. So what is told must hold as every reader reads
the values: of a node with a value that has no key, nothing is told.

Invariants: a range holds for the live entries of a node, and for any part of them; a filter has the
texts of all of them, or there is none.

It may not know schemas, nor where nodes lie.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.codec import node_filter
from logstore.codec.column_keys import (
    COLUMNS_MAX,
    FILTERED_KINDS,
    ColumnRange,
    Key,
    RangedColumn,
    filter_text,
    key_of,
)
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


class _Texts:
    """The hashed texts of a column in some nodes. ``pairs`` is None where one of them is not surely
    the one text of its value."""

    def __init__(self, column: RangedColumn) -> None:
        self._column = column
        self.pairs: list[tuple[int, int]] | None = []

    def add(self, text: bytes, node: int) -> None:
        """Add the text of an entry of a node."""
        found = filter_text(self._column, text)
        if found is None or node >= node_filter.NODES_MAX:
            self.pairs = None
        elif self.pairs is not None:
            self.pairs.append((node_filter.filter_hash(found), node))


class RangeFinder:
    """Finds the ranges of columns, at most COLUMNS_MAX of them, in nodes. ``filtering``: and makes
    filters of up to NODES_MAX nodes."""

    def __init__(self, columns: Sequence[RangedColumn], filtering: bool = False) -> None:
        if len(columns) > COLUMNS_MAX:
            raise ValueError(f"ranges are of at most {COLUMNS_MAX} columns")
        self._columns = tuple(columns)
        self._filtering = filtering
        self._begin()

    def _begin(self) -> None:
        self._nodes = 0
        self._texts = [
            _Texts(each) if self._filtering and each.kind in FILTERED_KINDS else None
            for each in self._columns
        ]

    def of(self, lp: bytes, /) -> tuple[int, list[ColumnRange | None]]:
        """How many live entries a node has, and the range of each column; None: nothing is told of
        it. CorruptNodeError."""
        try:
            return self._found_in(lp)
        finally:
            self._nodes += 1

    def filters(self) -> list[bytes | None]:
        """The filter of each column for the nodes since the last call, numbered as they came; None:
        nothing is told of it."""
        past, texts = self._nodes > node_filter.NODES_MAX, self._texts
        self._begin()
        return [
            None if each is None or each.pairs is None or past else node_filter.made(each.pairs)
            for each in texts
        ]

    def _found_in(self, lp: bytes) -> tuple[int, list[ColumnRange | None]]:
        master = read_master(lp)
        found = [_Extremes(column) for column in self._columns]
        rows = 0
        for entry in forward(lp, master):
            if not is_live(entry, b""):
                continue
            rows += 1
            flat = read_flat(lp, entry, master)
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            for column, extremes, texts in zip(self._columns, found, self._texts, strict=True):
                text = fields.get(column.field)
                extremes.add(text)
                if texts is not None and text is not None:
                    texts.add(text, self._nodes)
        return rows, [each.found() for each in found]
