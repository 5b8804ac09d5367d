"""The one reader of frames and nodes: of recovery, the store, compaction, tools and Spark alike.

Invariants: a length is checked against the bytes that are there, and the checksum of a large frame
against its bytes, before memory is taken; nothing is returned whose CRC, bound to store and place,
does not fit; the search for frames behind bad bytes is linear in them (``codec.checksums``). Bytes
that the disk does not give back are no valid frame, and an error of their own (UnreadableError):
what stands before and behind them is read, in smaller pieces near them. It says *that* a frame is
bad; whether that is a torn tail or damage is decided in one place, the log tail
(``commit.log_tail``). A node that is read by its locator has the locator's length, stream and
master ID. Never imports the index.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

from logstore import format as fmt
from logstore.codec import codec
from logstore.crc import crc32c
from logstore.errors import CorruptFrameError, UnreadableError
from logstore.format import Kind
from logstore.log import frame as frames
from logstore.tuples import NamedTuple

_HEAD = fmt.FRAME_HEAD
_HEAD_BYTES = fmt.FRAME_HEAD_BYTES
_CHUNK_BYTES = 1 << 20
_PAGE_BYTES = 4096  # what is lost, at least, around an unreadable sector
_AT_ONCE_BYTES = 8 << 20  # a larger body is read once to check it, and once more to keep it
_KIND_AT = fmt.FRAME_MARK_OFFSET - 2
# Heads that a search keeps at a time, of 12 bytes each; of a large tail in proportion to it, so
# that there are never more rounds over it than a couple of dozen.
_AWAITED_MIN = 1 << 20
_BYTES_AN_AWAITED = 256
_MARK = struct.pack("<H", fmt.FRAME_MARK)


class ByteSource(Protocol):
    """Anything that gives bytes by offset: a file, a file at a URI."""

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Up to ``size_bytes`` from ``offset``; UnreadableError as of ``fs.File``."""
        ...


def read(source: ByteSource, size_bytes: int, segment: int, offset: int) -> bytes:
    """Bytes of a segment, as ``pread`` gives them; an UnreadableError names the segment."""
    try:
        return source.pread(size_bytes, offset)
    except UnreadableError as exc:
        exc.segment = segment
        raise


def readable(source: ByteSource, size_bytes: int, offset: int) -> bytes:
    """The bytes at an offset, up to the first that cannot be read."""
    while size_bytes > 0:
        try:
            return source.pread(size_bytes, offset)
        except UnreadableError as exc:
            size_bytes = (exc.offset or 0) - offset
    return b""


def _with_zeros(source: ByteSource, size_bytes: int, offset: int) -> bytes:
    """The same bytes, with zeros for pages that cannot be read: a search goes on behind them. What
    it takes for a frame is read once more."""
    data = bytearray(readable(source, size_bytes, offset))
    while len(data) < size_bytes:
        at = offset + len(data)
        page_bytes = min(size_bytes - len(data), _PAGE_BYTES - at % _PAGE_BYTES)
        try:
            page = source.pread(page_bytes, at)
        except UnreadableError:
            page = bytes(page_bytes)
        if not page:  # the file ends here
            break
        data += page
        data += readable(source, size_bytes - len(data), offset + len(data))
    return bytes(data)


class FrameHead(NamedTuple):
    """The head of a frame as it stands in the log."""

    crc: int
    payload_bytes: int
    commit: int
    durable_upto: int
    ordinal: int
    kind: int
    flags: int
    mark: int


def head_of(data: bytes) -> FrameHead | None:
    """The head that bytes begin with, of which nothing is checked; None if it is cut off."""
    return FrameHead._make(_HEAD.unpack_from(data)) if len(data) >= _HEAD_BYTES else None


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
        """The position where the frame starts."""
        return fmt.position(self.segment, self.offset)

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
    place = fmt.position(segment, offset).to_bytes(8, "little")
    if crc32c(payload, crc32c(place + data[at + 4 : body], seed)) != crc:
        raise _corrupt("the checksum does not fit", segment, offset)
    return LogFrame(segment, offset, size, commit, durable_upto, ordinal, kind, flags, crc, payload)


def _body_bytes(head: bytes, at: int, segment: int, offset: int, end_offset: int) -> int:
    """Bytes of the body that the head at index ``at`` promises; all of it that can be known wrong
    without the body is."""
    if len(head) - at < _HEAD_BYTES:
        raise _corrupt("the header is cut off", segment, offset)
    if head[at + fmt.FRAME_MARK_OFFSET : at + _HEAD_BYTES] != _MARK or not head[at + _KIND_AT]:
        raise _corrupt("no frame mark", segment, offset)
    size = int.from_bytes(head[at + 4 : at + 8], "little")
    if offset + _HEAD_BYTES + size > end_offset:
        raise _corrupt("it is longer than what is there", segment, offset)
    return size


def read_frame(
    source: ByteSource, seed: int, segment: int, offset: int, end_offset: int
) -> LogFrame:
    """The frame at ``offset``, which must end at or before ``end_offset``."""
    head = read(source, _HEAD_BYTES, segment, offset)
    size = _body_bytes(head, 0, segment, offset, end_offset)
    return _large(source, head, seed, segment, offset, size, bodies=True)


def _large(
    source: ByteSource,
    head: bytes,
    seed: int,
    segment: int,
    offset: int,
    size: int,
    *,
    bodies: bool,
) -> LogFrame:
    """A frame whose body is not at hand. Memory is taken for a large one only when it is valid."""
    begin = offset + _HEAD_BYTES
    if size <= _AT_ONCE_BYTES and bodies:
        return parse(head + read(source, size, segment, begin), 0, seed, segment, offset)
    state = crc32c(fmt.position(segment, offset).to_bytes(8, "little") + head[4:], seed)
    for at in range(0, size, _CHUNK_BYTES):
        part = read(source, min(_CHUNK_BYTES, size - at), segment, begin + at)
        if len(part) < min(_CHUNK_BYTES, size - at):
            raise _corrupt("it is cut off", segment, offset)
        state = crc32c(part, state)
    if state != int.from_bytes(head[:4], "little"):
        raise _corrupt("the checksum does not fit", segment, offset)
    if bodies:
        return parse(head + read(source, size, segment, begin), 0, seed, segment, offset)
    _, _, commit, durable_upto, ordinal, kind, flags, _ = _HEAD.unpack(head)
    return LogFrame(segment, offset, size, commit, durable_upto, ordinal, kind, flags, state, b"")


def scan(
    source: ByteSource,
    seed: int,
    segment: int,
    start_offset: int,
    end_offset: int,
    *,
    bodies: bool = True,
) -> Iterator[LogFrame]:
    """Frames from ``start_offset`` on; CorruptFrameError at the first that is not valid, which is
    UnreadableError where the disk does not give it back.

    Without ``bodies`` the payload of a frame may be left out.
    """
    chunk, base = b"", start_offset
    offset = start_offset
    while offset < end_offset:
        at = offset - base
        size = int.from_bytes(chunk[at + 4 : at + 8], "little") if len(chunk) >= at + 8 else 0
        if at + _HEAD_BYTES + size > len(chunk):
            # Looked at before the body is read: what it says may be anything.
            if len(chunk) - at >= _HEAD_BYTES:
                _body_bytes(chunk, at, segment, offset, end_offset)
            chunk = readable(source, min(_CHUNK_BYTES, end_offset - offset), offset)
            if len(chunk) < _HEAD_BYTES:
                chunk = read(source, _HEAD_BYTES, segment, offset)
            base, at = offset, 0
            size = _body_bytes(chunk, 0, segment, offset, end_offset)
            if _HEAD_BYTES + size > len(chunk):
                head = chunk[:_HEAD_BYTES]
                frame = _large(source, head, seed, segment, offset, size, bodies=bodies)
                yield frame
                offset = frame.end_offset
                chunk, base = b"", offset
                continue
        frame = parse(chunk, at, seed, segment, offset)
        yield frame
        offset = frame.end_offset


def commits(scanned: Iterator[LogFrame], after_commit: int | None) -> Iterator[Commit]:
    """Complete commits, their numbers ascending by one; CorruptFrameError where the run breaks.

    ``after_commit`` is the number of the commit before; None takes any first number.
    """
    run: list[LogFrame] = []
    for frame in scanned:
        fresh = frame.commit if after_commit is None else after_commit + 1
        expected = run[0].commit if run else fresh
        if frame.commit != expected or frame.ordinal != len(run):
            raise _corrupt(
                f"commit {frame.commit}.{frame.ordinal} stands where {expected}.{len(run)} must",
                frame.segment,
                frame.offset,
            )
        run.append(frame)
        if frame.last:
            yield Commit(frame.commit, run)
            after_commit, run = frame.commit, []
    if run:
        raise _corrupt("the last commit is not complete", run[-1].segment, run[0].offset)


def next_valid(
    source: ByteSource,
    seed: int,
    segment: int,
    start_offset: int,
    end_offset: int,
    *,
    after_commit: int | None = None,
    bodies: bool = True,
) -> Iterator[LogFrame]:
    """Valid frames anywhere from ``start_offset`` on, found by the frame mark: past damage.

    ``after_commit`` is the number of a commit before them, if one is known; without ``bodies`` the
    payload of a frame may be left out. The work grows with the bytes, whatever they are.
    """
    offset, known = start_offset, after_commit
    while offset < end_offset:
        try:
            for frame in scan(source, seed, segment, offset, end_offset, bodies=bodies):
                offset, known = frame.end_offset, frame.commit
                yield frame
        except CorruptFrameError:
            begin = _search(source, seed, segment, offset + 1, end_offset, known)
            if begin is None:
                return
            offset = begin


def _search(
    source: ByteSource, seed: int, segment: int, start: int, end: int, after_commit: int | None
) -> int | None:
    """Where a valid frame begins at or behind ``start``: that which ends first."""
    least, slack = (0, 1 << 62) if after_commit is None else (after_commit, 2)
    room = max(_AWAITED_MIN, (end - start) // _BYTES_AN_AWAITED)
    begin = start
    while begin < end:
        search = codec().FrameSearch(
            seed, segment, begin, end, least, slack + (begin - start) // _HEAD_BYTES, room
        )
        offset = begin
        while offset < end and (search.awaited or not search.full):
            data = _with_zeros(source, min(_CHUNK_BYTES, end - offset), offset)
            match: tuple[int, int] | None = search.feed(data)
            if match is not None:
                return match[0]
            if not data:
                break
            offset += len(data)
        if not search.full:
            return None
        begin = search.resume
    return None


class FramesBehind(NamedTuple):
    """What stands behind bytes that are no valid frame."""

    damaged: bool  # those bytes were known to be durable; else it is the tail of a crash
    complete: bool  # a commit ends there; set only for a tail


def behind(
    source: ByteSource,
    seed: int,
    segment: int,
    bad_offset: int,
    end_offset: int,
    promised: int,
    after_commit: int | None = None,
) -> FramesBehind:
    """Damage, or the un-synced tail of a crash: is anything known to have been durable there?

    Damage if ``promised`` (a position that a clean close or a checkpoint recorded) lies behind the
    bad bytes, or a valid frame behind them says that its writer knew them to be durable.
    """
    at = fmt.position(segment, bad_offset)
    if at < promised:
        return FramesBehind(damaged=True, complete=False)
    complete = False
    for frame in next_valid(
        source, seed, segment, bad_offset, end_offset, after_commit=after_commit, bodies=False
    ):
        if frame.durable_upto > at:
            return FramesBehind(damaged=True, complete=False)
        complete = complete or frame.last
    return FramesBehind(damaged=False, complete=complete)


def resume_offset(
    source: ByteSource,
    seed: int,
    segment: int,
    bad_offset: int,
    end_offset: int,
    after_commit: int | None = None,
) -> int:
    """Where the next valid frame behind damage begins; the end if there is none."""
    begin = _search(source, seed, segment, bad_offset + 1, end_offset, after_commit)
    return end_offset if begin is None else begin


_BODY_BYTES = fmt.NODE_BODY.size


def listpack(
    source: ByteSource,
    seed: int,
    position: int,
    payload_bytes: int,
    stream: int,
    master: tuple[int, int],
) -> bytes:
    """The listpack of the node frame at a position."""
    segment, offset = fmt.position_parts(position)
    data = read(source, fmt.FRAME_HEAD_BYTES + payload_bytes, segment, offset)
    frame = parse(data, 0, seed, segment, offset)
    if frame.payload_bytes != payload_bytes:
        why = "a frame has not the length that its locator says"
    elif frame.kind not in (Kind.NODE, Kind.OPEN) or payload_bytes < _BODY_BYTES:
        why = "a locator points at a frame that is no node"
    else:
        head = fmt.NODE_BODY.unpack_from(frame.payload)
        if head[:3] == (stream, *master):
            return frame.payload[_BODY_BYTES:]
        why = f"a locator of node {master[0]}-{master[1]} points at node {head[1]}-{head[2]}"
    raise CorruptFrameError(f"{why}: run 'logstore check'", segment=segment, offset=offset)
