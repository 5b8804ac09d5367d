"""Which columns of a stream have filters in the statistics of a segment: those that leave out nodes
that nothing else does, within a share of the stream's bytes.

A column has none where its least and most leave out most blocks, as of one that is sorted; and none
where most nodes have most of its values, unless its filters are small: they still tell what is
nowhere. Those that leave out most come first, and of equal ones the first of the schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from logstore.codec import node_filter
from logstore.codec.column_keys import ColumnRange

BYTES_SHARE: Final = 0.0175  # of the nodes of a stream
SMALL_SHARE: Final = 0.002
SPREAD_MAX: Final = 0.5
BLOCKS_MIN: Final = 8  # below, the least and the most of blocks say little
LEFT_SHARE: Final = 0.125  # of the blocks
SAMPLES: Final = 16
Filters = Sequence["bytes | None"]
Ranges = Sequence["ColumnRange | None"]


class _ColumnBlocks:
    """What the blocks have of a column."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.spreads: list[float] = []
        self.ranges: list[ColumnRange | None] = []
        self.samples: list[ColumnRange | None] = []

    def add(
        self,
        whole: ColumnRange | None,
        sample: ColumnRange | None,
        filter: bytes | None,
        nodes: int,
    ) -> None:
        """Add a block of so many nodes, with the range of one of them."""
        self.ranges.append(whole)
        self.samples.append(sample)
        if filter is not None:
            self.size_bytes += len(filter)
            self.spreads.append(node_filter.spread(filter, nodes))

    def spread(self) -> float:
        """In which share of a block's nodes a value is that is in the block."""
        return sum(self.spreads) / len(self.spreads)

    def is_decided(self, key: Any) -> bool:
        """Whether the least and the most of blocks leave out most of them."""
        count = len(self.ranges)
        if count < BLOCKS_MIN:
            return False
        known = [
            (key(low), key(high))
            for low, high in map(_ends, self.ranges)
            if low is not None and high is not None
        ]
        samples = map(_ends, self.samples[:: -(-count // SAMPLES)])
        asked = [key(low) for low, _ in samples if low is not None]
        left = sum(low <= each <= high for each in asked for low, high in known)
        left += (count - len(known)) * len(asked)
        return bool(asked) and left <= count * LEFT_SHARE * len(asked)


class FilterChoice:
    """Gathers what the blocks of a stream have, and chooses."""

    def __init__(self, columns: int) -> None:
        self._columns = [_ColumnBlocks() for _ in range(columns)]

    def add(self, whole: Ranges, sample: Ranges, filters: Filters, nodes: int) -> None:
        """Add a block of so many nodes: the ranges of all, those of one, and its filters."""
        for at, each in enumerate(self._columns):
            each.add(whole[at], sample[at], filters[at], nodes)

    def columns(self, keys: Sequence[Any], size_bytes: int) -> set[int]:
        """The columns that have filters; ``keys`` give the keys of texts, and the nodes of all
        blocks have so many bytes."""
        found = []
        for at, each in enumerate(self._columns):
            if each.spreads and not each.is_decided(keys[at]):
                spread = each.spread()
                if spread <= SPREAD_MAX or each.size_bytes <= size_bytes * SMALL_SHARE:
                    found.append((round(spread, 1), at))
        left = size_bytes * BYTES_SHARE
        chosen = set()
        for _, at in sorted(found):
            if self._columns[at].size_bytes <= left:
                left -= self._columns[at].size_bytes
                chosen.add(at)
        return chosen


def _ends(told: ColumnRange | None) -> tuple[bytes | None, bytes | None]:
    return (None, None) if told is None else (told.least, told.most)
