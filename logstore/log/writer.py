"""Building a commit: frames laid out at their final positions, written with one append.

Invariants: a frame's position is known as soon as it is added, so that what is applied to the index
names the bytes that will be written; nothing reaches the file before ``encode`` was called; a
commit never spans segments. Knows no index and takes no lock.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, repeat

from crc32c import crc32c

from logstore import format as fmt
from logstore.errors import TooLargeError
from logstore.log import frame as frames

_HEAD = fmt.FRAME_HEAD
_COVERED = fmt.FRAME_HEAD_AFTER_CRC.pack
_LAST, _MARK = fmt.FRAME_FLAG_LAST, fmt.FRAME_MARK
_HEAD_BYTES = fmt.FRAME_HEAD_BYTES
_OFFSET_MAX = fmt.OFFSET_MAX


def crc_seed(uuid: bytes) -> int:
    """What binds every frame's CRC to its store."""
    return int(crc32c(uuid))


def frame_crc(seed: int, at: int, head_after_crc: bytes, payload: bytes) -> int:
    """The CRC of a frame at a position."""
    return int(crc32c(payload, crc32c(at.to_bytes(8, "little") + head_after_crc, seed)))


class SegmentTooFull(Exception):  # noqa: N818  (control flow of a commit, never seen by users)
    """The commit is known not to fit in the active segment: it begins in the next one."""


class CommitBuffer:
    """The frames of one commit that begins at ``start`` (a position)."""

    __slots__ = ("_payloads", "_starts", "end", "last_crc", "last_start", "number", "start")

    def __init__(self, start: int, number: int) -> None:
        self.start = start
        self.number = number
        self.end = start
        self._payloads: list[tuple[int, bytes]] = []
        self._starts: list[int] = []
        self.last_start = start
        self.last_crc = 0

    def __len__(self) -> int:
        return len(self._payloads)

    def add(self, body: frames.Body) -> tuple[int, int]:
        """Add a frame; its position and payload length."""
        return self.add_payload(frames.KIND_OF[type(body)], frames.encode(body))

    def add_payload(self, kind: int, payload: bytes) -> tuple[int, int]:
        """Add a frame whose body is encoded; its position and payload length."""
        at, size = self.end, len(payload)
        self._payloads.append((kind, payload))
        self._starts.append(at)
        self.end = end = at + _HEAD_BYTES + size
        if end & _OFFSET_MAX < at & _OFFSET_MAX:
            raise TooLargeError("one commit must stay under 4 GiB: split the transaction")
        return at, size

    def add_payloads(self, kind: int, payloads: list[bytes]) -> list[int]:
        """Add many frames of a kind; their positions."""
        sizes = [len(payload) + _HEAD_BYTES for payload in payloads]
        starts = list(accumulate(sizes, initial=self.end))
        if (self.end & _OFFSET_MAX) + sum(sizes) > _OFFSET_MAX:
            raise TooLargeError("one commit must stay under 4 GiB: split the transaction")
        self.end = starts.pop()
        self._payloads += zip(repeat(kind), payloads)
        self._starts += starts
        return starts

    def mark(self) -> int:
        """A point to go back to with ``rewind``."""
        return len(self._payloads)

    def rewind(self, mark: int) -> None:
        """Forget the frames added since ``mark``: their operation was refused."""
        for _, payload in self._payloads[mark:]:
            self.end -= _HEAD_BYTES + len(payload)
        del self._payloads[mark:]
        del self._starts[mark:]

    def frame_at(self, position: int) -> tuple[int, bytes] | None:
        """Kind and payload of the frame added at a position; None if it is not of this commit."""
        if not self.start <= position < self.end:
            return None
        place = bisect_left(self._starts, position)
        return self._payloads[place] if self._starts[place] == position else None

    def encode(self, seed: int, durable_upto: int) -> bytes:
        """All frames as bytes; the last one ends the commit."""
        at, number = self.start, self.number
        if len(self._payloads) == 1:
            kind, payload = self._payloads[0]
            covered = _COVERED(at, len(payload), number, durable_upto, 0, kind, _LAST, _MARK)
            self.last_start = at
            self.last_crc = crc = crc32c(payload, crc32c(covered, seed))
            return crc.to_bytes(4, "little") + covered[8:] + payload
        out: list[bytes] = []
        last = len(self._payloads) - 1
        for ordinal, (kind, payload) in enumerate(self._payloads):
            size = len(payload)
            flags = _LAST if ordinal == last else 0
            covered = _COVERED(at, size, number, durable_upto, ordinal, kind, flags, _MARK)
            crc = crc32c(payload, crc32c(covered, seed))
            out += (crc.to_bytes(4, "little"), covered[8:], payload)
            self.last_start, self.last_crc = at, crc
            at += _HEAD_BYTES + size
        return b"".join(out)
