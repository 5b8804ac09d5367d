"""Plain adds that are committed to the log and to WAKE alone, so that the index lags behind.

``Lagging`` decides with the store's own code, on a cache of its own, and throws LMDB's transaction
away: what is in the log and published then is what a plain commit leaves there.
"""

from __future__ import annotations

from typing import Any

from logstore import format as fmt
from logstore.api.store import Store
from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import ready_locked
from logstore.engine.commit.log_tail import finish_locked
from logstore.engine.runtime.record_cache import RecordCache
from logstore.engine.shm.commit_words import LogWords
from logstore.engine.streams.add import AUTO, Add, add
from logstore.format import Kind
from logstore.ids import StreamID
from logstore.index.keys import Meta
from logstore.index.txn import IndexTxn
from tests.support.inside import committer_of, engine_of


class NotPlain(Exception):  # noqa: N818  (control flow of a test)
    """The commit would be more than append frames."""


class Lagging:
    """A writer whose commits the index does not have; with ``plain=False`` also such that it must
    have."""

    def __init__(self, store: Store[Any], *, plain: bool = True) -> None:
        self._plain = plain
        self._store, self._engine = store, engine_of(store)
        self._mutex = committer_of(store).mutex
        self._cache = RecordCache()

    def add(
        self,
        name: bytes,
        *rows: dict[bytes, bytes],
        at: StreamID | None = None,
        ttl_ms: int | None = None,
    ) -> StreamID:
        """Add these in one commit, which must be plain; the ID of the last."""
        engine = self._engine
        with self._mutex:
            engine.lock.acquire(engine.wake, 10)
            before, engine.cache = engine.cache, self._cache
            try:
                return self._add(name, rows, at, ttl_ms)
            except BaseException:
                self._cache.clear()
                raise
            finally:
                engine.cache = before
                engine.lock.release(engine.wake)

    def add_anyhow(self, name: bytes, row: dict[bytes, bytes], at: StreamID) -> None:
        """Add one entry, as the store does it if that is no plain add: the index follows then."""
        try:
            self.add(name, row, at=at)
        except NotPlain:
            self._store.stream(name).add(row, id=at)

    def _add(
        self,
        name: bytes,
        rows: tuple[dict[bytes, bytes], ...],
        at: StreamID | None,
        ttl_ms: int | None,
    ) -> StreamID:
        engine, cache = self._engine, self._cache
        words = ready_locked(engine)
        generation = engine.index()
        with generation.env.begin(write=True) as lmdb_txn:
            meta = IndexTxn(generation, lmdb_txn).meta()
            lmdb_txn.abort()
        if cache.applied != words.applied:
            if meta.applied != words.applied:
                words = finish_locked(engine)
            cache.clear()
        with generation.env.begin(write=True) as lmdb_txn:
            index = IndexTxn(generation, lmdb_txn)
            meta = cache.meta or index.meta()
            start = fmt.start_of_next(words.applied, words.active_segment)
            txn = WriteTxn(engine, index, meta, start, words.commit + 1)
            for row in rows:
                request = Add(name, codec().rows([row]), 0, 1, at or AUTO, ttl_ms=ttl_ms)
                added = add(txn, request)
                assert added is not None
            buffer = txn.buffer
            data = buffer.encode(engine.seed, engine.wake.durable_upto)
            lmdb_txn.abort()
            if self._plain and {kind for kind, _ in buffer._payloads} != {Kind.APPEND}:
                raise NotPlain
        engine.wake.begin(txn.buffer.number)
        engine.active_file(words.active_segment).pwrite(data, fmt.offset_of(start))
        meta = Meta(buffer.end, buffer.number, buffer.last_start, buffer.last_crc, *txn.meta[4:])
        engine.wake.set_log(LogWords(*meta[:5], generation.number, 0))
        engine.wake.waits.bump_locked(txn.woken, set())
        cache.applied, cache.meta, cache.generation = buffer.end, meta, generation.number
        record = txn.record_by_name(name)
        assert record is not None
        return record.last


def follow(store: Store[Any]) -> None:
    """The index takes in what it lacks; nothing is appended."""
    engine = engine_of(store)
    with committer_of(store).mutex:
        engine.lock.acquire(engine.wake, 10)
        try:
            finish_locked(engine)
        finally:
            engine.lock.release(engine.wake)


def commits_behind(store: Store[Any]) -> int:
    """How many commits the index lacks."""
    engine = engine_of(store)
    generation = engine.index()
    with generation.env.begin() as txn:
        return engine.wake.log().commit - IndexTxn(generation, txn).meta().commit
