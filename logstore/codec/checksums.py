"""What checksums prove: rows of the index, heads of frames, and frames that are looked for.

Invariants: the checksum of a row is bound to its key, that of a frame to its store by the seed, so
that a value under another key, or a frame of another store, is not taken for a sound one.

It may not know what a row or a frame holds.
"""

from __future__ import annotations

import heapq
from functools import cache

from logstore.crc import crc32c
from logstore.format import (
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    FRAME_MARK,
    FRAME_MARK_OFFSET,
    POSITION_SEGMENT_BITS,
)

_CRC_BYTES = 4
_MARK = FRAME_MARK.to_bytes(2, "little")
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, bits reflected
_ONE = 1 << 31  # x^0


def seal(key: bytes, value: bytes) -> bytes:
    """A value of the index with its CRC.

    Args:
        key: the key that it is to stand under.
        value: the value.

    Returns:
        The value, and behind it 4 bytes.
    """
    return value + crc32c(value, crc32c(key)).to_bytes(_CRC_BYTES, "little")


def unseal(key: bytes, data: bytes) -> bytes | None:
    """A value of the index without its CRC.

    Args:
        key: the key that it stands under.
        data: what ``seal`` gave.

    Returns:
        The value; None if it is not what was sealed for this key.
    """
    value = data[:-_CRC_BYTES]
    if len(data) < _CRC_BYTES:
        return None
    if crc32c(value, crc32c(key)) != int.from_bytes(data[-_CRC_BYTES:], "little"):
        return None
    return value


def frame_head(covered: bytes, payload: bytes, seed: int) -> tuple[int, bytes]:
    """The head of a frame, whose CRC covers its position, too, which does not stand in it.

    Args:
        covered: the position as 8 bytes, and behind it all of the head but the CRC.
        payload: what stands behind the head.
        seed: what binds CRCs to the store.

    Returns:
        The CRC, and the head that begins with it.
    """
    crc: int = crc32c(payload, crc32c(covered, seed))
    return crc, crc.to_bytes(_CRC_BYTES, "little") + covered[8:]


def _multiply(a: int, b: int) -> int:
    """The product of two polynomials, modulo that of CRC-32C."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@cache
def _power(n: int) -> int:
    """x^(8n)."""
    if n % 2:
        return _multiply(_power(n - 1), 1 << 23)
    return _multiply(_power(n // 2), _power(n // 2)) if n else _ONE


def _moved(crc: int, size: int) -> int:
    """By what the start value ``crc`` changes the checksum of ``size`` bytes, beside start 0."""
    for place in (0, 8, 16, 24):
        if size >> place & 0xFF:
            crc = _multiply(_power(size & 0xFF << place), crc)
    return crc


class FrameSearch:
    """The next valid frame behind damage, whatever the bytes are, in one pass over a segment from
    offset ``start`` on, which ends at ``end``.

    A frame can begin wherever its mark stands, and its length can be any. To read each body that a
    head promises would be quadratic, and whoever may add an entry could plant such heads. So the
    checksum of all bytes from ``start`` on is kept: that of a body follows from what it was before
    the body and what it is behind it, by `_moved`, which costs the logarithm of the length. Each
    byte is checksummed once; at most ``room`` heads wait for their ends at a time.

    ``seed``: the store's; ``least_commit``, ``slack``: a frame has a commit number of at least the
    first, and of at most so many more, and one more for each head that fits before it.

    ``full``: there was no room for the heads from ``resume`` on, they were not looked at: another
    round must begin there.
    """

    def __init__(
        self, seed: int, segment: int, start: int, end: int, least_commit: int, slack: int,
        room: int,
    ) -> None:  # fmt: skip
        if not 0 <= start <= end <= 0xFFFFFFFF or room < 1:
            raise ValueError("a search lies within a segment")
        self._seed, self._segment, self._start, self._end = seed, segment, start, end
        self._least, self._slack, self._room = least_commit, slack, room
        self.resume = self._read_upto = self._crc_at = start
        self._crc = 0
        self.full = False
        self._rest = b""
        self._heap: list[tuple[int, int, int]] = []  # end, begin, checksum of all up to the end

    @property
    def awaited(self) -> int:
        """How many heads wait for the end of what they promise."""
        return len(self._heap)

    def feed(self, data: bytes) -> tuple[int, int] | None:
        """Look at the next bytes; where the first valid frame that ends in them begins and ends."""
        base = self._read_upto - len(self._rest)
        data = self._rest + data
        at = data.find(_MARK, FRAME_MARK_OFFSET)
        while at >= 0:
            begin = base + at - FRAME_MARK_OFFSET
            head = FRAME_HEAD.unpack_from(data, at - FRAME_MARK_OFFSET)
            if self._plausible(head, begin):
                found = self._upto(data, base, begin + FRAME_HEAD_BYTES)
                if found is not None:
                    return found
                self._wait_for(data, base, begin, head)
            at = data.find(_MARK, at + 1)
        found = self._upto(data, base, base + len(data))
        if found is None:
            self._read_upto = base + len(data)
            self._rest = data[max(0, len(data) - FRAME_HEAD_BYTES + 1) :]
        return found

    def _plausible(self, head: tuple[int, ...], begin: int) -> bool:
        _, size, commit, durable_upto, ordinal, kind, flags, _ = head
        return (
            not self.full
            and begin >= self.resume
            and kind != 0
            and flags <= 1
            and begin + FRAME_HEAD_BYTES + size <= self._end
            and commit >= self._least
            and commit - self._least <= self._slack + (begin - self._start) // FRAME_HEAD_BYTES
            and durable_upto <= self._segment << POSITION_SEGMENT_BITS | self._end
            and ordinal <= begin // FRAME_HEAD_BYTES
        )

    def _advance(self, data: bytes, base: int, offset: int) -> None:
        if offset > self._crc_at:
            part = memoryview(data)[self._crc_at - base : offset - base]
            self._crc = crc32c(part, self._crc)
            self._crc_at = offset

    def _upto(self, data: bytes, base: int, offset: int) -> tuple[int, int] | None:
        """Judge all that ends at or before ``offset``."""
        while self._heap and self._heap[0][0] <= offset:
            end, begin, crc = self._heap[0]
            self._advance(data, base, end)
            if self._crc == crc:
                return begin, end
            heapq.heappop(self._heap)
        self._advance(data, base, offset)
        return None

    def _wait_for(self, data: bytes, base: int, begin: int, head: tuple[int, ...]) -> None:
        self.full = len(self._heap) == self._room
        if self.full:
            return  # another round begins here
        self.resume = begin + 1
        crc, size = head[:2]
        at = begin - base
        place = (self._segment << POSITION_SEGMENT_BITS | begin).to_bytes(8, "little")
        state = crc32c(place + data[at + 4 : at + FRAME_HEAD_BYTES], self._seed)
        end = begin + FRAME_HEAD_BYTES + size
        heapq.heappush(self._heap, (end, begin, crc ^ _moved(state ^ self._crc, size)))
