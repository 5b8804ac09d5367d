"""An index that nobody else writes to takes in what was appended to the log since it was made.

Used by who reads a store without writing to it (``recovery.readonly``), and by who builds the next
index of an open one beside those who commit (``recovery.next_index``).

Invariants: a commit is taken in only if it is complete, and up to where it was told to end; frames
are applied by the code that applies them anywhere, all of one call in one transaction of LMDB. The
log's segments may go meanwhile: SegmentGone, and nothing was taken in.
"""

from __future__ import annotations

from logstore import format as fmt
from logstore.engine.apply.streams import apply_commit
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.segments import SegmentGone
from logstore.errors import CorruptFrameError, UnreadableError
from logstore.index.env import Generation
from logstore.index.keys import Meta
from logstore.index.txn import IndexTxn
from logstore.log import chain, file_names, log_reader


def take_in(engine: Engine, generation: Generation, bound: int | None) -> Meta:
    """Apply complete commits behind the index, up to the position ``bound``; where it stands then.

    The record cache of ``engine`` is of this index alone, or nobody else uses it now.
    """
    engine.cache.clear()
    with generation.env.begin(write=True) as lmdb_txn:
        index = IndexTxn(generation, lmdb_txn)
        meta = index.meta()
        txn = WriteTxn(engine, index, meta, meta.applied, meta.commit)
        links = chain.main_links(engine.fs, engine.path, engine.uuid, fmt.segment_of(meta.applied))
        if not links or links[0].number != fmt.segment_of(meta.applied):
            raise SegmentGone(fmt.segment_of(meta.applied))
        before = links[0].number
        for link in links:
            if link.number != before and fmt.segment_of(link.previous_end) != before:
                raise SegmentGone(fmt.segment_of(link.previous_end))  # dropped before it was read
            before = link.number
            last = link.number == links[-1].number
            if not _segment(engine, link, bound, txn, last=last):
                break
        txn.flush()
    engine.cache.clear()
    return txn.meta


def _segment(
    engine: Engine, link: chain.Link, bound: int | None, txn: WriteTxn, *, last: bool
) -> bool:
    """Complete commits of one segment; False if the rest is not to be looked at.

    CorruptFrameError for what is not valid, and was: in a sealed segment, or published.
    """
    start = link.start_offset
    if fmt.segment_of(txn.meta.applied) == link.number:
        start = fmt.offset_of(txn.meta.applied)
    file = engine.fs.open(file_names.segment(engine.path, link.number))
    good = fmt.position(link.number, start)
    try:
        scanned = log_reader.scan(file, engine.seed, link.number, start, link.end_offset)
        for commit in log_reader.commits(scanned, txn.meta.commit):
            if bound is not None and commit.end > bound:
                return False
            apply_commit(txn, commit)
            good = commit.end
    except CorruptFrameError as exc:
        if isinstance(exc, UnreadableError) or not last or (bound is not None and good < bound):
            raise
        return False  # a commit that is being written, or a torn tail
    finally:
        file.close()
    txn.meta = txn.meta._replace(active_segment=max(txn.meta.active_segment, link.number))
    return True
