"""The one frame reader: of recovery, the store, compaction, tools and Spark alike.

Invariants: a length is checked against the bytes that are there before memory is taken; nothing is
returned whose CRC, bound to store and place, does not fit. It says *that* a frame is bad; whether
that is a torn tail or damage is decided in one place (engine.tail). Never imports the index.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from crc32c import crc32c

from logstore import format as fmt
from logstore.errors import CorruptFrameError
from logstore.log import frame as frames

_HEAD = fmt.FRAME_HEAD
_HEAD_BYTES = fmt.FRAME_HEAD_BYTES
_CHUNK_BYTES = 1 << 20
_MARK = struct.pack("<H", fmt.FRAME_MARK)


class Bytes(Protocol):
    """Anything that gives bytes by offset: a file, a mapped file."""

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Up to ``size_bytes`` from ``offset``."""
        ...


class LogFrame(NamedTuple):
    """A frame that was read and checked; from a hint ``payload`` is what the hint keeps."""

    segment: int
    offset: int
    payload_bytes: int
    commit: int
    durable_upto: int
    ordinal: int
    kind: int
    flags: int
    crc: int
    payload: bytes

    @property
    def position(self) -> int:
        """Where it starts."""
        return self.segment << 32 | self.offset

    @property
    def end_offset(self) -> int:
        """Where the next frame may start."""
        return self.offset + _HEAD_BYTES + self.payload_bytes

    @property
    def last(self) -> bool:
        """Whether it ends its commit."""
        return bool(self.flags & fmt.FRAME_FLAG_LAST)

    def body(self) -> frames.Body | None:
        """The decoded body; None for a kind that may be skipped."""
        return frames.decode(self.kind, self.payload, segment=self.segment, offset=self.offset)


class Commit(NamedTuple):
    """The frames of one complete commit."""

    number: int
    frames: list[LogFrame]

    @property
    def end(self) -> int:
        """The position where it ends."""
        last = self.frames[-1]
        return fmt.position(last.segment, last.end_offset)


def _corrupt(why: str, segment: int, offset: int) -> CorruptFrameError:
    return CorruptFrameError(f"no valid frame: {why}", segment=segment, offset=offset)


def parse(data: bytes, at: int, seed: int, segment: int, offset: int) -> LogFrame:
    """The frame at index ``at`` of ``data``, which stands at ``offset`` of the segment."""
    if len(data) - at < _HEAD_BYTES:
        raise _corrupt("the header is cut off", segment, offset)
    head = _HEAD.unpack_from(data, at)
    crc, size, commit, durable_upto, ordinal, kind, flags, mark = head
    if mark != fmt.FRAME_MARK or kind == 0:
        raise _corrupt("no frame mark", segment, offset)
    end = at + _HEAD_BYTES + size
    if end > len(data):
        raise _corrupt("it is cut off", segment, offset)
    body = at + _HEAD_BYTES
    payload = data[body:end]
    place = (segment << 32 | offset).to_bytes(8, "little")
    if crc32c(payload, crc32c(place + data[at + 4 : body], seed)) != crc:
        raise _corrupt("the checksum does not fit", segment, offset)
    return LogFrame(segment, offset, size, commit, durable_upto, ordinal, kind, flags, crc, payload)


def read_frame(source: Bytes, seed: int, segment: int, offset: int, end_offset: int) -> LogFrame:
    """The frame at ``offset``, which must end at or before ``end_offset``."""
    head = source.pread(_HEAD_BYTES, offset)
    if len(head) < _HEAD_BYTES:
        raise _corrupt("the header is cut off", segment, offset)
    size = int.from_bytes(head[4:8], "little")
    # checked before memory is taken: the length may be anything
    if offset + _HEAD_BYTES + size > end_offset:
        raise _corrupt("it is longer than what is there", segment, offset)
    return parse(head + source.pread(size, offset + _HEAD_BYTES), 0, seed, segment, offset)


def scan(
    source: Bytes, seed: int, segment: int, start_offset: int, end_offset: int
) -> Iterator[LogFrame]:
    """Frames from ``start_offset`` on; CorruptFrameError at the first that is not valid."""
    chunk, base = b"", start_offset
    offset = start_offset
    while offset < end_offset:
        at = offset - base
        size = int.from_bytes(chunk[at + 4 : at + 8], "little") if len(chunk) >= at + 8 else 0
        if at + _HEAD_BYTES + size > len(chunk):
            want = min(max(_CHUNK_BYTES, _HEAD_BYTES + size), end_offset - offset)
            if len(chunk) - at >= want:
                raise _corrupt("it is longer than what is there", segment, offset)
            chunk, base, at = source.pread(want, offset), offset, 0
            size = int.from_bytes(chunk[4:8], "little")
            if _HEAD_BYTES + size > len(chunk) and offset + _HEAD_BYTES + size <= end_offset:
                chunk = source.pread(_HEAD_BYTES + size, offset)
        found = parse(chunk, at, seed, segment, offset)
        yield found
        offset = found.end_offset


def commits(scanned: Iterator[LogFrame], after_commit: int | None) -> Iterator[Commit]:
    """Complete commits, their numbers ascending by one; CorruptFrameError where the run breaks.

    ``after_commit`` is the number of the commit before; None takes any first number.
    """
    run: list[LogFrame] = []
    for found in scanned:
        fresh = found.commit if after_commit is None else after_commit + 1
        expected = run[0].commit if run else fresh
        if found.commit != expected or found.ordinal != len(run):
            raise _corrupt(
                f"commit {found.commit}.{found.ordinal} stands where {expected}.{len(run)} must",
                found.segment, found.offset,
            )  # fmt: skip
        run.append(found)
        if found.last:
            yield Commit(found.commit, run)
            after_commit, run = found.commit, []
    if run:
        raise _corrupt("the last commit is not complete", run[-1].segment, run[0].offset)


def next_valid(
    source: Bytes, seed: int, segment: int, start_offset: int, end_offset: int
) -> Iterator[LogFrame]:
    """Valid frames anywhere from ``start_offset`` on, found by the frame mark: past damage."""
    offset = start_offset
    while offset < end_offset:
        chunk = source.pread(min(_CHUNK_BYTES, end_offset - offset), offset)
        at = chunk.find(_MARK)
        while at >= 0:
            begin = offset + at - fmt.FRAME_MARK_OFFSET
            if begin >= start_offset:
                try:
                    found = read_frame(source, seed, segment, begin, end_offset)
                except CorruptFrameError:
                    pass
                else:
                    yield found
                    start_offset = found.end_offset
            at = chunk.find(_MARK, at + 1)
        if len(chunk) < 2:
            return
        offset += len(chunk) - 1


def proves_damage(
    source: Bytes, seed: int, segment: int, bad_offset: int, end_offset: int, promised: int
) -> bool:
    """Damage, or the un-synced tail of a crash: is anything known to have been durable there?

    Damage if ``promised`` (a position that a clean close or a checkpoint recorded) lies behind the
    bad bytes, or a valid frame behind them says that its writer knew them to be durable.
    """
    at = fmt.position(segment, bad_offset)
    if at < promised:
        return True
    later = next_valid(source, seed, segment, bad_offset, end_offset)
    return any(found.durable_upto > at for found in later)


def resume_offset(source: Bytes, seed: int, segment: int, bad_offset: int, end_offset: int) -> int:
    """Where the next valid frame behind damage begins; the end if there is none."""
    found = next(next_valid(source, seed, segment, bad_offset + 1, end_offset), None)
    return found.offset if found is not None else end_offset
