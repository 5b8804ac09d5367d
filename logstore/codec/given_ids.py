"""IDs that callers give with their rows, and IDs that a bulk load returns.

Two classes: `GivenIDs`, one ID a row of a batch, from which `pack` takes them; and `RunList`, the
IDs of a whole bulk load, as runs of consecutive ones of a few bytes each, so that what a load of
millions of rows returns fits into memory.

Invariants: an ID whose sequence is left open (``ms-*``) has none before `GivenIDs.settle`, which
may be called again with another last ID and then decides anew.

It may not know what a commit is.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from logstore.codec.node_types import ID
from logstore.errors import InvalidEntryError
from logstore.ids import U64_MAX, parse_auto, parse_id

RUNS_A_BLOCK: Final = 256
Run: TypeAlias = tuple[int, int, int]  # ms, seq, count


def has_id(row: object) -> bool:
    """Whether a row is (ID, fields); of two pairs in a tuple the first is no ID."""
    if not (isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], (Mapping, list))):
        return False
    id = row[0]
    if isinstance(id, tuple):
        return all(isinstance(part, int) for part in id)
    return isinstance(id, str | bytes | int | datetime)


def parse_given(row: Any, place: int) -> tuple[int, int, bool]:
    """ms and seq of a row's ID, and whether the sequence is left open."""
    if not has_id(row):
        raise InvalidEntryError(
            f"row {place}: give every row of one call an ID, (id, fields), or none of them"
        )
    id = row[0]
    text = id.decode("latin-1") if isinstance(id, bytes) else id
    if isinstance(text, str) and text.endswith("-*"):
        return parse_auto(text), 0, True
    ms, seq = parse_id(id)
    return ms, seq, False


class GivenIDs:
    """The IDs of the rows of one batch, in their order."""

    def __init__(self) -> None:
        self._ids: list[ID] = []
        self._open: set[int] = set()  # places of IDs whose sequence is left open

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int, /) -> ID:
        if index < 0:
            raise IndexError(index)
        return self._ids[index]

    def put(self, ms: int, seq: int, is_open: bool) -> None:
        """Add the ID of one more row."""
        if is_open:
            self._open.add(len(self))
        self._ids.append((ms, seq))

    def settle(self, last_ms: int, last_seq: int, /) -> int:
        """Give a sequence to each ID that leaves it open, as an add after the last ID; whether all
        ascend above that.

        -1 if they do, else the place of the first that is not above the one before it.
        """
        before = last_ms, last_seq
        for place, (ms, seq) in enumerate(self._ids):
            id = ms, seq
            if place in self._open:
                id = ms, before[1] + 1 if ms == before[0] else 0
                if id[1] > U64_MAX:
                    return place
                self._ids[place] = id
            if id <= before:
                return place
            before = id
        return -1

    def since(self, place: int, /) -> GivenIDs:
        """The IDs from this one on; all must be settled."""
        if not 0 <= place <= len(self):
            raise IndexError(place)
        rest = GivenIDs()
        rest._ids = self._ids[place:]
        return rest


def given(items: Sequence[Any], first_row: int) -> tuple[GivenIDs, list[Any]]:
    """Rows (ID, fields), split: their IDs, and their fields, which are not looked at.

    An ID is text, bytes, (ms, seq), an aware datetime, or ``<ms>-*``.
    InvalidEntryError for what is no such row, naming it by its number, ``first_row`` and on;
    InvalidIDError.
    """
    ids = GivenIDs()
    fields: list[Any] = []
    for place, row in enumerate(items, first_row):
        ids.put(*parse_given(row, place))
        fields.append(row[1])
    return ids, fields


def given_numbers(ms: Sequence[int], seq: Sequence[int] | None) -> GivenIDs:
    """IDs of their numbers, 0 to 2^64-1; without a list of sequences all of them are left open.

    ValueError if the lists differ in length, OverflowError for a number above 64 bits.
    """
    if seq is not None and len(seq) != len(ms):
        raise ValueError("each ID has two numbers")
    ids = GivenIDs()
    for first, second in zip(ms, seq if seq is not None else [0] * len(ms), strict=True):
        if not 0 <= first <= U64_MAX or not 0 <= second <= U64_MAX:
            raise OverflowError("a number of an ID has more than 64 bits, or a sign")
        ids.put(first, second, seq is None)
    return ids


class RunList:
    """IDs in the order in which they were put, as runs of consecutive ones: ms, seq, count.

    The runs are in blocks of RUNS_A_BLOCK; those before the last one are compressed. Within a run
    the sequence carries into ms.
    """

    def __init__(self) -> None:
        self._full: list[bytes] = []
        self._counts: list[int] = []  # of each block: how many IDs stand before it
        self._last: list[Run] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, ms: int, seq: int, count: int, /) -> None:
        """``count`` IDs, at least 1, from this one on."""
        runs = self._last
        if runs and runs[-1][0] == ms and runs[-1][1] + runs[-1][2] == seq:
            runs[-1] = ms, runs[-1][1], runs[-1][2] + count
        else:
            if len(runs) == RUNS_A_BLOCK:
                self._full.append(_compressed(runs))
                runs.clear()
            if not runs:
                self._counts.append(self._count)
            runs.append((ms, seq, count))
        self._count += count

    def put_given(self, ids: GivenIDs, /) -> None:
        """All of these IDs."""
        for place in range(len(ids)):
            self.put(*ids[place], 1)

    @property
    def block_count(self) -> int:
        """How many blocks there are; the run that still grows is in the last one."""
        return len(self._counts)

    def before(self, block: int, /) -> int:
        """How many IDs stand before those of a block."""
        if block < 0:
            raise IndexError(block)
        return self._counts[block]

    def block(self, block: int, /) -> list[Run]:
        """The runs of a block."""
        if not 0 <= block < self.block_count:
            raise IndexError(block)
        return list(self._last) if block == len(self._full) else _runs_of(self._full[block])

    @property
    def nbytes(self) -> int:
        """The bytes that all of it takes."""
        return sum(map(len, self._full)) + 8 * len(self._counts) + 24 * len(self._last)


def _compressed(runs: list[Run]) -> bytes:
    """A block: the differences of each number to that of the run before, which are small."""
    numbers = [number for run in runs for number in run]
    before = [0, 0, 0, *numbers]
    steps = [(number - last) & U64_MAX for number, last in zip(numbers, before, strict=False)]
    return zlib.compress(array("Q", steps).tobytes(), 1)


def _runs_of(block: bytes) -> list[Run]:
    numbers = [0, 0, 0]
    for step in array("Q", zlib.decompress(block)):
        numbers.append((numbers[-3] + step) & U64_MAX)
    return list(zip(numbers[3::3], numbers[4::3], numbers[5::3], strict=True))
