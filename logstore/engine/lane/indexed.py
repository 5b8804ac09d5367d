"""Commits of the lane that the index follows at once: their rows, in one transaction of LMDB.

The lane decides and lays out the frames of an add that is a node by itself, or may belong behind a
sealed node that is not full; here they are applied to the index, by the one code that applies
frames, before the lane appends them.

Invariants, in crash order: ``prepare`` writes all rows, with those that are owed, before the first
byte is appended, so that a full index refuses while nothing happened; the lane appends, syncs as
the policy says, and calls what ``prepare`` gave, which is LMDB's commit, then publishes; ``done``
lets the record cache stand there. ``take_back`` is for what was not appended: the record cache is
forgotten then, as it has what was taken back. The mutex and LOCK are held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from logstore.codec import codec
from logstore.engine.apply.streams import apply
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit import write_back
from logstore.engine.commit.pipeline import Batch
from logstore.engine.txn import nodes
from logstore.index.keys import Meta
from logstore.log import frame as frames

if TYPE_CHECKING:
    from logstore.engine.runtime.engine import Engine
    from logstore.index.keys import OpenNode, StreamRecord


class Indexed:
    """The commit that is under way, if there is one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._batch: Batch | None = None
        self._meta: Meta | None = None
        self._made: tuple[StreamRecord, OpenNode | None] | None = None

    def last_id(self, lp: bytes, ms: int, seq: int) -> tuple[int, int] | None:
        """The last ID in a node; None if it is damaged: the pipeline says so."""
        try:
            return codec().last_id(lp, ms, seq)
        except Exception:  # noqa: BLE001
            return None

    def prepare(
        self,
        framed: Sequence[tuple[int, int, bytes]],
        ends: tuple[int, int, int, int],
        raw_bytes: int,
        most_bytes: int,
    ) -> Callable[[], object] | None:
        """Write the rows of a commit, whose frames are of these kinds, at these positions; LMDB's
        commit, or None: the pipeline is to do it, and nothing happened.

        ``ends``: where it ends, its number, the position of its last frame and that one's checksum;
        ``raw_bytes``: of the entry, if the last node is a sealed one, which might open again.
        """
        engine = self._engine
        cache, generation = engine.cache, engine.generation
        if generation is None or cache.meta is None or cache.applied != framed[0][1]:
            return None
        if cache.generation != generation.number:
            return None
        try:
            if cache.must_follow:
                write_back.follow_locked(engine, engine.wake.log())
            batch = self._batch = Batch([])
            batch.generation = generation
            txn = WriteTxn(engine, None, cache.meta, framed[0][1], ends[1], batch)
            bodies = [frames.decode(kind, payload) for kind, _, payload in framed]
            if not _begins_a_node(txn, bodies[0], raw_bytes, most_bytes):
                generation.leave(batch.index_txn, engine.gate, written=False)
                self._batch = None
                return None
            cache.applied = -1  # valid again only when this commit is through
            for (_, at, payload), body in zip(framed, bodies, strict=True):
                assert body is not None
                apply(txn, at, len(payload), body)
            self._meta = txn.meta = Meta(*ends, *txn.meta[4:])
            stream = next(iter(txn.changed))
            self._made = cache.records[stream], cache.opens.get(stream)
            txn.flush()
            if generation.lost:
                self.take_back()
                return None
        except BaseException as exc:
            self.take_back()
            if not isinstance(exc, Exception):
                raise
            return None
        commit: Callable[[], object] = batch.index_txn.commit
        return commit

    def take_back(self) -> None:
        """Nothing of it happened. May be repeated."""
        batch, self._batch = self._batch, None
        if batch is not None:
            self._engine.cache.clear()
            if batch.index_txn is not None:
                batch.generation.leave(batch.index_txn, self._engine.gate, written=True)

    def done(self) -> tuple[StreamRecord, OpenNode | None]:
        """It is published: the record cache stands behind it. The stream, as it is now."""
        cache, made, meta, batch = self._engine.cache, self._made, self._meta, self._batch
        assert made is not None
        assert meta is not None
        assert batch is not None
        self._batch = None
        cache.paid()
        cache.committed(meta, batch.generation.number, set())
        cache.changed_since(meta.applied)
        return made


def _begins_a_node(txn: WriteTxn, first: Any, raw_bytes: int, most_bytes: int) -> bool:
    """Whether the entry begins a node, for what the lane cannot know: the name is of no other
    stream, and no sealed node opens again, or is above it."""
    if isinstance(first, frames.Create):
        if txn.holder(first.name) is not None:
            return False
        txn.index.confirm_absent(first.name)
        return True
    if raw_bytes < 0:
        _ = txn.index  # from here on what is owed is written, too
        return True
    tail = txn.index.last_node(first.stream)
    if tail is None:
        return True
    above = tail[0] >= (first.master_ms, first.master_seq)
    return not above and nodes.is_full(tail[1], raw_bytes, most_bytes)
