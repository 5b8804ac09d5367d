"""Building a commit: frames laid out at their final positions, written with one append.

Invariants: a frame's position is known as soon as it is added, so that what is applied to the index
names the bytes that will be written; nothing reaches the file before ``encode`` was called; a
commit never spans segments. Knows no index and takes no lock.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final

from logstore import format as fmt
from logstore.codec import codec
from logstore.crc import crc32c
from logstore.errors import TooLargeError
from logstore.format import Kind

if TYPE_CHECKING:
    from logstore.codec.node_batch import NodeBatch

_HEAD = fmt.FRAME_HEAD
_COVERED: Final[Any] = fmt.FRAME_HEAD_AFTER_CRC.pack
_LAST: Final = fmt.FRAME_FLAG_LAST
_MARK: Final = fmt.FRAME_MARK
_HEAD_BYTES: Final = fmt.FRAME_HEAD_BYTES
_BATCH = -1  # in the place of a kind
_FRAME_HEAD: Final[Any] = codec().frame_head


def crc_seed(uuid: bytes) -> int:
    """The seed that binds every frame's CRC to its store."""
    return int(crc32c(uuid))


def head(
    seed: int,
    at: int,
    payload: bytes,
    commit: int,
    durable_upto: int,
    ordinal: int,
    kind: int,
    flags: int,
) -> tuple[int, bytes]:
    """The checksum and the head of a frame that stands at position ``at``, its payload behind."""
    covered = _COVERED(at, len(payload), commit, durable_upto, ordinal, kind, flags, _MARK)
    made: tuple[int, bytes] = _FRAME_HEAD(covered, payload, seed)
    return made


class SegmentTooFull(Exception):  # noqa: N818  (control flow of a commit, never seen by users)
    """The commit is known not to fit in the active segment: it begins in the next one."""


class CommitBuffer:
    """The frames of one commit that begins at ``start`` (a position)."""

    __slots__ = (
        "_last_position",
        "_payloads",
        "_starts",
        "end",
        "last_crc",
        "last_start",
        "number",
        "start",
    )

    def __init__(self, start: int, number: int) -> None:
        self.start = start
        self._last_position = start | fmt.OFFSET_MAX  # of the segment: no commit goes beyond it
        self.number = number
        self.end = start
        self._payloads: list[tuple[int, Any]] = []  # of _BATCH: (batch, stream)
        self._starts: list[int] = []
        self.last_start = start
        self.last_crc = 0

    def add_payload(self, kind: int, payload: bytes) -> tuple[int, int]:
        """Add a frame whose body is encoded; its position and payload length."""
        at, size = self.end, len(payload)
        self._payloads.append((kind, payload))
        self._starts.append(at)
        self.end = end = at + _HEAD_BYTES + size
        if end > self._last_position:
            raise TooLargeError("one commit must stay under 4 GiB: split the transaction")
        return at, size

    def add_payloads(self, kind: int, payloads: list[bytes]) -> list[int]:
        """Add many frames of a kind; their positions."""
        return [self.add_payload(kind, payload)[0] for payload in payloads]

    def add_nodes(self, batch: NodeBatch, stream: int) -> int:
        """Add node frames of a stream, behind which another frame is to come; where they begin."""
        at = self.end
        size = batch.nbytes + len(batch) * (_HEAD_BYTES + fmt.NODE_BODY.size)
        self._payloads.append((_BATCH, (batch, stream)))
        self._starts.append(at)
        self.end = end = at + size
        if end > self._last_position:
            raise TooLargeError("one commit must stay under 4 GiB: split the transaction")
        return at

    def frame_at(self, position: int) -> tuple[int, bytes] | None:
        """Kind and payload of the frame added at a position; None if it is not of this commit."""
        if not self.start <= position < self.end:
            return None
        place = bisect_right(self._starts, position) - 1
        kind, payload = self._payloads[place]
        at = self._starts[place]
        if kind != _BATCH:
            return (kind, payload) if at == position else None
        batch, stream = payload
        found = batch.payload_at(stream, position - at, _HEAD_BYTES)
        return None if found is None else (Kind.NODE, found)

    def holds_only(self, kind: int) -> bool:
        """Whether all of its frames are of this kind."""
        return all(each == kind for each, _ in self._payloads)

    def encode(self, seed: int, durable_upto: int) -> bytes:
        """All frames as bytes; the last one ends the commit."""
        at, number = self.start, self.number
        if len(self._payloads) == 1:
            kind, payload = self._payloads[0]
            self.last_start = at
            self.last_crc, front = head(seed, at, payload, number, durable_upto, 0, kind, _LAST)
            single: bytes = front + payload
            return single
        out: list[bytes] = []
        ordinal, left = 0, len(self._payloads)
        for kind, payload in self._payloads:
            left -= 1
            if kind == _BATCH:
                batch, stream = payload
                covered = _COVERED(at, 0, number, durable_upto, ordinal, Kind.NODE, 0, _MARK)
                out.append(batch.frames(stream, covered, seed))
                at += len(out[-1])
                ordinal += len(batch)
                continue
            flags = 0 if left else _LAST
            self.last_start = at
            self.last_crc, front = head(
                seed, at, payload, number, durable_upto, ordinal, kind, flags
            )
            out += (front, payload)
            at += _HEAD_BYTES + len(payload)
            ordinal += 1
        return b"".join(out)
