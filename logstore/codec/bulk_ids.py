"""IDs that callers give with their rows, and IDs as they are told again: packed, not objects.

Two classes: `GivenIDs`, one ID a row, 16 bytes each, from which `pack` takes them; and `RunList`,
the IDs of a whole bulk load, as runs of consecutive ones of a few bytes each. A load of millions of
rows so costs no Python object for an ID, and what it returns fits into memory.

Invariants: an ID whose sequence is left open (``ms-*``) has none before `GivenIDs.settle`, which
may be called again with another last ID and then decides anew.

It may not know what a commit is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from logstore.codec.interface import ID
from logstore.errors import InvalidEntryError
from logstore.ids import U64_MAX, parse_auto, parse_id

RUNS_A_BLOCK: Final = 256
_ZERO: Final[ID] = (0, 0)


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
        self._flat = array("Q")  # ms, seq, ms, seq, ..
        self._open: list[int] = []  # places of IDs whose sequence is left open

    def __len__(self) -> int:
        return len(self._flat) // 2

    def __getitem__(self, index: int, /) -> ID:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._flat[2 * index], self._flat[2 * index + 1]

    def put(self, ms: int, seq: int, is_open: bool) -> None:
        """Add the ID of one more row."""
        if is_open:
            self._open.append(len(self))
        self._flat.extend((ms, seq))

    def settle(self, last_ms: int, last_seq: int, /) -> int:
        """Give a sequence to each ID that leaves it open; whether all ascend above the last ID.

        -1 if they do, else the place of the first that is not above the one before it.
        """
        ms, seq = last_ms, last_seq
        left = iter(self._open)
        open_at = next(left, -1)
        for place in range(len(self)):
            own_ms, own_seq = self[place]
            if place == open_at:
                open_at = next(left, -1)
                if own_ms == ms and seq == U64_MAX:
                    return place
                own_seq = seq + 1 if own_ms == ms else 0
                self._flat[2 * place + 1] = own_seq
            if (own_ms, own_seq) <= (ms, seq):
                return place
            ms, seq = own_ms, own_seq
        return -1

    def since(self, place: int, /) -> GivenIDs:
        """The IDs from this one on; all must be settled."""
        if not 0 <= place <= len(self):
            raise IndexError(place)
        rest = GivenIDs()
        rest._flat = self._flat[2 * place :]
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
    """IDs in the order in which they were put, as runs of consecutive ones.

    A run is kept as the differences to the one before it, in blocks of RUNS_A_BLOCK; the last run
    still grows, and stands apart. Within a run the sequence carries into ms.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._starts = array("Q")  # of each block: its first byte
        self._counts = array("Q")  # of each block: how many IDs stand before it
        self._runs = 0  # that are in data
        self._before = _ZERO
        self._last: tuple[int, int, int] | None = None  # ms, seq, count of the run that grows
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, ms: int, seq: int, count: int, /) -> None:
        """``count`` IDs from this one on."""
        last = self._last
        if last is not None and last[0] == ms and last[1] + last[2] == seq:
            self._last = (ms, last[1], last[2] + count)
        else:
            if last is not None:
                self._keep(*last)
            self._last = (ms, seq, count)
        self._count += count

    def put_given(self, ids: GivenIDs, /) -> None:
        """All of these IDs."""
        for place in range(len(ids)):
            self.put(*ids[place], 1)

    def _keep(self, ms: int, seq: int, count: int) -> None:
        if self._runs % RUNS_A_BLOCK == 0:
            self._starts.append(len(self._data))
            self._counts.append(self._count - count)
            self._before = _ZERO
        before_ms, before_seq = self._before
        seq_told = seq if ms != before_ms else _zigzag(seq - before_seq)
        for number in (_zigzag(ms - before_ms), seq_told, count):
            left = number
            while left > 0x7F:
                self._data.append(left & 0x7F | 0x80)
                left >>= 7
            self._data.append(left)
        self._before = (ms, seq)
        self._runs += 1

    @property
    def block_count(self) -> int:
        """How many blocks there are; the run that still grows is in the last one."""
        return -(-(self._runs + (self._last is not None)) // RUNS_A_BLOCK)

    def before(self, block: int, /) -> int:
        """How many IDs stand before those of a block."""
        if not 0 <= block < self.block_count:
            raise IndexError(block)
        if block < len(self._counts):
            return self._counts[block]
        assert self._last is not None
        return self._count - self._last[2]

    def block(self, block: int, /) -> list[tuple[int, int, int]]:
        """The runs of a block: ms, seq, count."""
        if not 0 <= block < self.block_count:
            raise IndexError(block)
        found: list[tuple[int, int, int]] = []
        first = block * RUNS_A_BLOCK
        numbers = self._numbers(block)
        ms = seq = 0
        for _ in range(first, min(first + RUNS_A_BLOCK, self._runs)):
            ms_told, seq_told, count = next(numbers), next(numbers), next(numbers)
            seq = seq_told if ms_told else (seq + _unzigzag(seq_told)) & U64_MAX
            ms = (ms + _unzigzag(ms_told)) & U64_MAX
            found.append((ms, seq, count))
        if block == self.block_count - 1 and self._last is not None:
            found.append(self._last)
        return found

    def _numbers(self, block: int) -> Iterator[int]:
        number = shift = 0
        bounds = [*self._starts[block : block + 2], len(self._data)]
        for byte in self._data[bounds[0] : bounds[1]] if len(bounds) > 1 else b"":
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                yield number
                number = shift = 0

    @property
    def nbytes(self) -> int:
        """The bytes that all of it takes."""
        return len(self._data) + 8 * (len(self._starts) + len(self._counts))


def _zigzag(diff: int) -> int:
    """A difference of two 64-bit numbers, small ones first: 0, -1, 1, -2, .."""
    signed = ((diff & U64_MAX) ^ (1 << 63)) - (1 << 63)
    return (signed << 1 ^ signed >> 63) & U64_MAX


def _unzigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)
