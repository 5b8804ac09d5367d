"""The published tail: frames that stand in the log, and may not be in the index yet.

Plain commits are published before LMDB has their rows (``write_back``). Whoever reads lays them
over the index: the rows that these frames change are made in memory, by the code that applies them
when the index follows, over those of LMDB's transaction.

Invariants: what is read so is the index as it is at one position, which its meta row says, with all
frames up to there, or none of them; bytes below a published end never change, and positions are
never used again, so rows that were made for one position of one generation stay true; they are
never changed once others can see them, they are swapped for others, so that threads need no lock.
Each frame was checked by the one reader of frames, and the numbers of commits ascend by one; what
cannot be read raises, a tail is never silently shorter. A frame that does not fit the index is an
error, where a replay would pass over it: the index of a reader has lost rows then, or was never
this one. The segment that frames are read from is the active one, which no compaction drops; that
of a reader who stopped in between for long may be gone, and it looks again then (``SegmentGone``).
For reading alone; whoever commits brings the index up to date first, and reads it as it is. An
overlay is kept: the rows of INDEX_LAG_MAX_COMMITS commits at most, with open nodes of at most
OPEN_INLINE_MAX_BYTES each.
"""

from __future__ import annotations

from typing import Any

from logstore import format as fmt
from logstore.engine.apply.streams import apply_commit
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.overlaid_rows import DatabaseRows, OverlaidRows, Overlay
from logstore.engine.runtime.record_cache import RecordCache
from logstore.engine.txn.view import TxnView
from logstore.errors import CorruptionError
from logstore.format import Kind
from logstore.index.env import Generation
from logstore.index.txn import IndexTxn
from logstore.log import log_reader

OF_STREAMS = frozenset({Kind.OPEN, Kind.APPEND, Kind.NODE, Kind.TOMBSTONE, Kind.RECORD})
OF_GROUPS = frozenset({Kind.CONSUMER, Kind.DELIVER, Kind.ACK, Kind.CLAIM})
# Where these kinds of frames, and CREATE, change rows.
DATABASES = ("main", "names", "nodes", "segments", "groups")
NO_ROWS = DatabaseRows({}, [])


def index_upto(engine: Engine, generation: Generation, txn: Any, upto: int) -> IndexTxn:
    """The index in a transaction, with what it lacks of the log up to the published position
    ``upto``, which was looked up before the transaction began.

    CorruptFrameError for frames that cannot be read; CorruptionError if there is anything else than
    the index may lack, or it does not fit; SegmentGone.
    """
    index = IndexTxn(generation, txn)
    meta = index.meta()
    if meta.applied >= upto:
        return index
    over = engine.overlay
    if over is None or (over.generation, over.applied) != (generation.number, meta.applied):
        over = Overlay(generation.number, meta.applied, meta, {})
    if over.meta.applied < upto:
        over = _extended(engine, generation, txn, over, upto)
        engine.overlay = over  # another thread may have one that reaches further: it is made again
    return IndexTxn(generation, OverlaidRows(txn, generation.database_names, over.rows))


def _extended(
    engine: Engine, generation: Generation, txn: Any, over: Overlay, upto: int
) -> Overlay:
    """The overlay with what the frames behind it change, up to a position where a commit ends."""
    meta = over.meta
    start = fmt.start_of_next(meta.applied, meta.active_segment)
    segment, offset = fmt.position_parts(start)
    if fmt.segment_of(upto) != segment or upto <= start:
        raise _unexpected(start, "the log goes on in another segment")
    rows = {name: over.rows.get(name, NO_ROWS).copy() for name in DATABASES}
    index = IndexTxn(generation, OverlaidRows(txn, generation.database_names, rows))
    view = TxnView(engine, index, meta, start, meta.commit)
    view.cache = RecordCache()  # that of the engine is of those who commit
    source = engine.segments.source(segment)
    scanned = log_reader.scan(source, engine.seed, segment, offset, fmt.offset_of(upto))
    for commit in log_reader.commits(scanned, meta.commit):
        apply_commit(view, commit, check=_check)
    view.flush()
    changed = {name: each for name, each in rows.items() if each.ordered}
    return over._replace(meta=view.meta, rows=changed)


def _check(view: TxnView, frame: log_reader.LogFrame, body: Any) -> None:
    """Is this a frame that the index may lack, and has it what the frame is about?"""
    at = frame.position
    if frame.kind in OF_GROUPS:
        if view.groups.by_number(body.group) is None:
            raise _unexpected(at, "its group is not there")
        if frame.kind == Kind.CONSUMER and (
            not body.alive or view.groups.consumer(body.group, body.consumer) is None
        ):
            raise _unexpected(at, "its consumer is not there, or goes")
        return
    if frame.kind == Kind.CREATE:
        if body.stream < view.meta.next_stream or view.holder(body.name) is not None:
            raise _unexpected(at, "its stream is there already")
        return
    if frame.kind not in OF_STREAMS:
        raise _unexpected(at, f"a frame of kind {frame.kind} stands there")
    record = view.record(body.stream)
    if record is None:
        raise _unexpected(at, "its stream is not there")
    if record.position >= at:
        raise _unexpected(at, "its stream has it already")
    if frame.kind == Kind.OPEN and record.open_version:
        raise _unexpected(at, "its stream has an open node already")
    if frame.kind in (Kind.APPEND, Kind.NODE) and (
        not record.open_version or view.open_node(body.stream) is None
    ):
        raise _unexpected(at, "its stream has no open node")
    if frame.kind == Kind.NODE and record.open_master != (body.master_ms, body.master_seq):
        raise _unexpected(at, "its stream has another open node")


def _unexpected(at: int, why: str) -> CorruptionError:
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
