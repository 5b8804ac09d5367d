"""The published tail: frames that stand in the log, and may not be in the index yet.

Plain commits are published before LMDB has their rows. Between the position where the index stands
and the published end there are append frames to open nodes that the index has, tombstones in nodes
that it has and the records behind them, and deliveries and acks of groups that it has, all in the
active segment, and nothing else: every other commit has its
rows, and those of all before it, in LMDB before it is published. Readers lay these frames over what
the index says (``overlaid_index``).

Invariants: bytes below a published end never change, and positions are never used again, so what
was read once stays true, in any generation of the index; a tail is never changed once others can
see it, it is swapped for a longer one, so that threads need no lock; each frame was checked by the
one reader of frames, and the numbers of commits ascend by one; what cannot be read raises, a tail
is never silently shorter. At most KEPT_MAX_BYTES of the log are kept. The segment that frames are
read from is the active one, which no compaction drops; that of a reader who stopped in between for
long may be gone, and it looks again then (``SegmentGone``).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from logstore import format as fmt
from logstore.engine.runtime.overlaid_groups import GroupFrame, Rows, laid_over
from logstore.engine.runtime.segments import Segments
from logstore.engine.shm.late_free import let_go
from logstore.errors import CorruptionError
from logstore.ids import StreamID
from logstore.index.env import Generation
from logstore.index.keys import Meta, Run
from logstore.log import frame as frames
from logstore.log import groupframe, reader
from logstore.tuples import NamedTuple

KEPT_MAX_BYTES = 256 * 1024


class Appended(NamedTuple):
    """One append frame: where it stands, the last ID that it adds, its listpack bytes."""

    run: Run
    last: StreamID
    data: bytes

    @property
    def position(self) -> int:
        """Where it stands."""
        return self.run.position


class Stated(NamedTuple):
    """One frame of a delete: where it stands, and what it says of a node or of the record."""

    position: int
    body: frames.Tombstone | frames.Record


Change: TypeAlias = Appended | Stated


class Tail:
    """The frames between two positions of one segment, ascending: those of streams by stream,
    tombstones once more, of all streams, and those of groups."""

    __slots__ = (
        "by_stream", "commit", "end", "last_crc", "last_frame", "of_groups", "start", "tombstones",
    )  # fmt: skip

    def __init__(
        self,
        start: int,
        end: int,
        commit: int,
        last_frame: int,
        last_crc: int,
        by_stream: dict[int, tuple[Change, ...]],
        tombstones: tuple[Stated, ...],
        of_groups: tuple[GroupFrame, ...],
    ) -> None:
        self.start = start  # the position of the first frame
        self.end = end  # the position where the last commit ends
        self.commit = commit  # its number
        self.last_frame = last_frame  # the position of its last frame
        self.last_crc = last_crc
        self.by_stream = by_stream
        self.tombstones = tombstones
        self.of_groups = of_groups


class LaidRows(NamedTuple):
    """Rows of groups over an index that stands at ``applied``, with all frames up to ``end``."""

    generation: int
    applied: int
    end: int
    rows: Rows


class PublishedTail:
    """Reads the published tail of one store, and keeps what it has read."""

    __slots__ = ("_kept", "_laid", "_segments")

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._kept: Tail | None = None
        self._laid: LaidRows | None = None

    def behind(self, meta: Meta, upto: int) -> Tail:
        """All that stands behind an index that is at ``meta``, at least up to the published
        position ``upto``, which is above it.

        CorruptFrameError for frames that cannot be read; CorruptionError if there is anything else
        than it may hold; SegmentGone.
        """
        start = fmt.start_of_next(meta.applied, meta.active_segment)
        if fmt.segment_of(upto) != fmt.segment_of(start) or upto <= start:
            raise unexpected(start, "the log goes on in another segment")
        kept = self._kept
        if kept is not None and kept.start <= start <= kept.end:
            if upto <= kept.end:
                return kept
            if upto - kept.start <= KEPT_MAX_BYTES:
                return self._keep(self._longer(kept, upto))
        fresh = Tail(start, start, meta.commit, meta.last_frame, meta.last_crc, {}, (), ())
        return self._keep(self._longer(fresh, upto))

    def group_rows(self, generation: Generation, txn: Any, meta: Meta, tail: Tail) -> Rows:
        """Rows of groups that an index at ``meta`` has not as they are at the end of the tail."""
        if not tail.of_groups:
            return {}
        before = self._laid
        rows: Rows = {}
        if before is not None and before[:2] == (generation.number, meta.applied):
            if before.end == tail.end:
                return before.rows
            if before.end < tail.end:
                rows = before.rows
        rows = laid_over(generation, txn, rows, tail.of_groups, unexpected)
        self._laid = LaidRows(generation.number, meta.applied, tail.end, rows)
        let_go(before)
        return rows

    def _keep(self, tail: Tail) -> Tail:
        if tail.end - tail.start <= KEPT_MAX_BYTES:
            before = self._kept
            self._kept = tail  # another thread may have put a longer one there: it is read again
            let_go(before)
        return tail

    def _longer(self, tail: Tail, upto: int) -> Tail:
        """The tail with the frames behind it, up to a position where a commit ends."""
        segment, offset = fmt.position_parts(tail.end)
        source = self._segments.source(segment)
        by_stream = dict(tail.by_stream)
        tombstones, of_groups = list(tail.tombstones), list(tail.of_groups)
        end, number = tail.end, tail.commit
        last_frame, last_crc = tail.last_frame, tail.last_crc
        scanned = reader.scan(source, self._segments.seed, segment, offset, fmt.offset_of(upto))
        for commit in reader.commits(scanned, number):
            for frame in commit.frames:
                body = frame.body()
                last_frame, last_crc = frame.position, frame.crc
                if isinstance(body, groupframe.Deliver | groupframe.Ack):
                    of_groups.append((frame.position, body))
                    continue
                change: Change
                if isinstance(body, frames.Append) and body.data is not None:
                    run = Run(frame.position, frame.payload_bytes, body.entries, body.elements)
                    change = Appended(run, StreamID(body.last_ms, body.last_seq), body.data)
                elif isinstance(body, frames.Tombstone):
                    change = Stated(frame.position, body)
                    tombstones.append(change)
                elif isinstance(body, frames.Record):
                    change = Stated(frame.position, body)
                else:
                    raise unexpected(frame.position, f"a frame of kind {frame.kind} stands there")
                by_stream[body.stream] = (*by_stream.get(body.stream, ()), change)
            end, number = commit.end, commit.number
        return Tail(
            tail.start, end, number, last_frame, last_crc,
            by_stream, tuple(tombstones), tuple(of_groups),
        )  # fmt: skip


def unexpected(at: int, why: str) -> CorruptionError:
    """The error of a published frame at position ``at`` that does not fit to the index.

    Its type is the one that is doubted first: a process that lost its place among LMDB's readers
    may see an index of long ago, and reads again (``snapshot``).
    """
    segment, offset = fmt.position_parts(at)
    return CorruptionError(
        f"the index lacks a commit that it must have: {why}; close the store, delete its index "
        "directory, and open it again; it is rebuilt from the log",
        segment=segment,
        offset=offset,
    )
