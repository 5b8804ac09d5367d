"""The index lags behind plain commits, and follows.

A *plain commit* only added entries to small open nodes that the record cache has, or, in the
compiled lane, began a stream with a small open node, sealed an open node and began the next one,
deleted an entry of a node that keeps others, or delivered new entries of a group that it has, or
acked, gave back or claimed what is pending in it: its frames are of these kinds, in the active
segment, and it wrote nothing to the index. It does not touch LMDB. What it changed stays in the
record cache, as owed to the index (``RecordCache.owe``). The next commit that is not plain writes
what is owed in its own LMDB transaction, which begins before its append. The next one of any kind,
if the index is as far behind as it may be, and whoever holds LOCK for other work than a commit,
lets the index follow first (``follow_locked``). Where it cannot, that one is refused while nothing
of it happened, and what was published before stays published.

A compiled lane asks for the same two bounds itself, calls ``follow_locked`` before it decides, and
``RecordCache.owe`` behind its append; or ``RecordCache.clear``, if it does not give its state back:
the index follows from the log then.

Names, sealed nodes, tombstones and rows of groups are owed by the lane alone. The pipeline lets the
index follow before it decides, if any are, or if others changed groups that the cache has not: so
whatever it asks is there.

Invariants: what the index lacks of the published log are new streams of names that it has not, each
with its open node, appends to open nodes, open nodes that were sealed with those that follow them,
tombstones with the records behind them, and deliveries, acks and claims of groups that it has, and
that consumers were seen, all in the active segment, of at most ``INDEX_LAG_MAX_COMMITS`` commits
and ``INDEX_LAG_MAX_BYTES``; what is owed is all of that, if the cache stands where WAKE does;
``indexed_upto`` in WAKE is never above what LMDB has committed. Nothing here syncs: what is
published keeps the promise that it had.
"""

from __future__ import annotations

from logstore import format as fmt
from logstore.engine.apply.streams import apply_commit, place_node
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit import log_tail
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.record_cache import RecordCache
from logstore.engine.shm.commit_words import LogWords
from logstore.engine.snapshots.published_tail import OF_GROUPS
from logstore.engine.txn.view import TxnView
from logstore.errors import CorruptFrameError
from logstore.format import Kind
from logstore.index.txn import IndexTxn
from logstore.log import log_reader

INDEX_LAG_MAX_COMMITS: int = 256  # 0: every commit writes its rows
INDEX_LAG_MAX_BYTES = 64 * 1024


def is_due(engine: Engine, words: LogWords) -> bool:
    """Whether the index is as far behind as it may be. The cache stands where the log does."""
    owed = engine.cache.owed_commits
    return owed > 0 and (
        owed >= INDEX_LAG_MAX_COMMITS
        or words.applied - engine.wake.indexed_upto >= INDEX_LAG_MAX_BYTES
    )


def may_lag(engine: Engine, end: int) -> bool:
    """Whether the index may stay behind one more commit, a plain one that ends at this position."""
    if engine.cache.owed_commits >= INDEX_LAG_MAX_COMMITS:
        return False
    # Positions of two segments are further apart: the first commit of a segment is never owed.
    return end - engine.wake.indexed_upto <= INDEX_LAG_MAX_BYTES


def follow_locked(engine: Engine, words: LogWords) -> LogWords:
    """The index has all that is published when this returns; no commit is in progress. Where the
    log stands then.

    From memory, if the cache stands where the log does, else from the log.
    """
    cache = engine.cache
    if engine.wake.indexed_upto >= words.applied:
        if cache.must_follow:
            cache.paid_by_another()
        return words
    generation = engine.index()
    stands = cache.applied == words.applied and cache.generation == generation.number
    if not stands or cache.skipped:
        log_tail.follow_locked(engine, words)
        return engine.wake.log()
    assert cache.meta is not None
    try:
        with generation.env.begin(write=True) as index_txn:
            index = IndexTxn(generation, index_txn)
            _write_owed(cache, TxnView(engine, index, cache.meta, words.applied, words.commit))
    except Exception:  # noqa: BLE001  from the log then, which makes room and raises what stays
        log_tail.follow_locked(engine, words)
        return engine.wake.log()
    engine.wake.indexed_upto = words.applied
    cache.paid()
    return words


def _write_owed(cache: RecordCache, view: TxnView) -> None:
    """Write all that the cache owes. Nodes stand before what was deleted of them, and names before
    records, as when the frames are applied one by one."""
    if cache.groups.owed:
        cache.groups.write_owed(view.index.groups)
    for node in cache.owed_nodes:
        place_node(view, *node)
    view.index.mark_nodes(cache.owed_tombstones)
    view.take_owed()
    view.flush()


def catch_up_locked(engine: Engine, words: LogWords) -> None:
    """Bring the record cache to where the log stands, if only plain commits of others were added
    since, to streams that it has; else it is forgotten.

    Two processes that add in turn need LMDB no more often than one that adds alone.
    """
    cache = engine.cache
    meta, at = cache.meta, cache.applied
    if (
        meta is None
        or at < 0
        or cache.generation != words.generation
        or not 0 < words.applied - at <= INDEX_LAG_MAX_BYTES
        or INDEX_LAG_MAX_COMMITS == 0
    ):
        cache.clear()
        return
    indexed = engine.wake.indexed_upto
    cache.changed = None
    cache.applied = -1  # valid again only when all of it is in
    if indexed >= at:
        cache.paid_by_another()
    number, offset = fmt.position_parts(at)
    txn = WriteTxn(engine, None, meta, at, meta.commit)
    try:
        file, end_offset = engine.active_file(number), fmt.offset_of(words.applied)
        scanned = log_reader.scan(file, engine.seed, number, offset, end_offset)
        for commit in log_reader.commits(scanned, meta.commit):
            streams = _grown(cache, commit)
            if streams is None:
                break
            behind = commit.end > indexed
            if any(frame.kind in OF_GROUPS for frame in commit.frames):
                appends = [frame for frame in commit.frames if frame.kind == Kind.APPEND]
                cache.groups.clear()
                cache.skipped = cache.skipped or behind
                apply_commit(txn, commit, appends)
            else:
                apply_commit(txn, commit)
            if behind:
                cache.owe(streams, streams)
    except CorruptFrameError:
        pass  # whoever reads it for the index says what it is
    if txn.meta.applied != words.applied:
        cache.clear()
        return
    cache.applied, cache.meta = words.applied, txn.meta


def _grown(cache: RecordCache, commit: log_reader.Commit) -> set[int] | None:
    """The streams that a commit that may be plain added to; None if it is not plain, or the cache
    has not all of them."""
    streams: set[int] = set()
    for found in commit.frames:
        if found.kind in OF_GROUPS:
            continue
        if found.kind != Kind.APPEND:
            return None
        stream = fmt.APPEND_BODY.unpack_from(found.payload)[0]
        node = cache.opens.get(stream)
        if node is None or node.runs or stream not in cache.records:
            return None
        streams.add(stream)
    return streams
