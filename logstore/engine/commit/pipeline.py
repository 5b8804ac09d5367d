"""One attempt at a commit: decide and apply, append, sync, publish; and what counts if it fails.

Invariants, in crash order: (1) WAKE says that a commit is in progress before its first byte is
appended; (2) all frames go out in one append, never over a segment's end; (3) under ``always`` they
are durable before LMDB's commit, so that no reader sees an entry early; (4) LMDB's commit comes
before WAKE says that it is over. Whoever is killed in between leaves the word set, and the next
to take the lock checks the tail. An error or an interrupt in between goes the same way: ``settle``
asks the tail check whether the commit is complete in the log, and so whether it happened. Once it
is complete it counts: what fails later raises CommittedError.

All of it runs with the mutex and LOCK held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from logstore import format as fmt
from logstore.clock import monotonic_ms
from logstore.engine.apply import write_txn
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit import log_tail
from logstore.engine.runtime import reopen
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.shm.control_block import LogWords
from logstore.errors import CommittedError, CorruptFrameError, FileSystemError
from logstore.index import env
from logstore.index.keys import Meta
from logstore.index.txn import IndexTxn
from logstore.log import reader
from logstore.log.writer import SegmentTooFull
from logstore.options import SYNC_RANK

Op = Callable[[WriteTxn], Any]
EVERYSEC, ALWAYS = SYNC_RANK["everysec"], SYNC_RANK["always"]
DONE, ROLL, AGAIN = 0, 1, 2


class Request:
    """One caller's operation on its way through a commit."""

    result: Any = None
    error: BaseException | None = None
    taken = False  # part of a batch
    done = False
    turn: Any = None  # a lock to wait on, if another thread leads

    def __init__(self, op: Op, rank: int, deadline_ns: int) -> None:
        self.op = op
        self.rank = rank
        self.deadline_ns = deadline_ns  # of ``time.monotonic_ns``: until when it waits for LOCK

    def fail(self, error: BaseException) -> None:
        """Set the error, unless it has its own."""
        if self.error is None:
            self.error = error


class Batch:
    """The requests of one commit, and how far it came."""

    txn: Any = None
    number = 0  # of the commit; 0: nothing of it can be in the log
    start = 0
    last_frame = 0
    last_crc = 0
    appended = False
    committed = False
    over = False  # every request has its outcome
    handed: Sequence[int] = ()  # slots that were offered something by the attempt at hand
    serves = False  # it added what others wait for, and handed it to them
    hands_out = True  # what is added goes to those who wait for it

    def __init__(self, requests: list[Request]) -> None:
        self.requests = requests

    def rank(self) -> int:
        """The strictest policy that is asked for."""
        requests = self.requests
        return requests[0].rank if len(requests) == 1 else max([each.rank for each in requests])

    def done(self) -> int:
        """How many of the requests happened."""
        return len([each for each in self.requests if each.error is None])

    def fail(self, error: BaseException, cause: BaseException | None = None) -> None:
        """No request that has no outcome of its own happened."""
        if cause is not None:
            error.__cause__ = cause
        for request in self.requests:
            request.fail(error)
        self.over = True


def ready_locked(engine: Engine) -> LogWords:
    """After taking LOCK: is the store sound, is the index there, did the last writer finish?"""
    engine.check_failed()
    words = engine.wake.log()
    found = engine.generation
    if found is None or found.number != words.generation:
        engine.ensure_index_locked()
        words = engine.wake.log()
    if words.in_progress:
        words = log_tail.finish_locked(engine)
    engine.look_locked(words)
    return words


def attempt(engine: Engine, batch: Batch, words: LogWords) -> int:
    """Decide all, then write; ``ROLL`` or ``AGAIN`` if it must be decided once more."""
    kept, generation = engine.cache, engine.generation
    if generation is None or generation.number != words.generation:
        generation = engine.index()
    number, start = words.commit + 1, engine.start_of_next(words)
    try:
        batch.txn = txn = generation.env.begin(write=True)
        index = IndexTxn(generation, txn)
        if kept.applied != words.applied or kept.generation != generation.number:
            kept.clear()
        if kept.meta is None:
            kept.meta = index.meta()
            if kept.meta.applied != words.applied:  # WAKE and the index differ: the log decides
                txn.abort()
                log_tail.finish_locked(engine)
                return AGAIN
        state = write_txn.begin(engine, index, kept.meta, start, number)
        batch.handed = state.handed
        kept.applied = -1  # valid again only when this commit is through
        step = _decide(engine, batch, state, words)
        if step >= 0:
            txn.abort()
            engine.wake.waits.withdraw_locked(state.handed)
            return step
        buffer = state.buffer
        assert buffer is not None
        data = buffer.encode(engine.seed, engine.wake.durable_upto)
        meta = state.meta
        state.meta = meta = Meta(
            buffer.end, number, buffer.last_start, buffer.last_crc, meta[4], meta[5], meta[6]
        )
        state.flush()  # before the append: an index that is full refuses while nothing happened
        file = engine.active_file(words.active_segment)
        rank = batch.rank()
        batch.start, batch.last_frame = start, buffer.last_start
        batch.last_crc, batch.number = buffer.last_crc, number
        engine.wake.begin(number)
        file.pwrite(data, fmt.offset_of(start))
        batch.appended = True
        _keep_promise(engine, file, rank, start, buffer.end)
        txn.commit()
        if state.next_due_ms is not None:
            engine.wake.next_due_ms = state.next_due_ms  # or the tail check does it
        engine.publish(meta)
        if state.handed:  # before the word of all streams: who saw it looks for what was given
            engine.wake.waits.given_locked(state.handed)
        engine.wake.waits.bump_locked(state.woken, state.sated)
        batch.committed = batch.over = True
    except BaseException:
        if batch.txn is not None:
            batch.txn.abort()
        raise
    kept.applied, kept.meta, kept.generation = buffer.end, state.meta, generation.number
    engine.metrics.committed(batch.done(), len(data), state.counts)
    return DONE


def _decide(engine: Engine, batch: Batch, state: WriteTxn, words: LogWords) -> int:
    """Run the operations; -1 if their frames are to be written, else what to do instead."""
    buffer = state.buffer
    assert buffer is not None
    for request in batch.requests:
        if request.error is not None:
            continue
        mark = buffer.mark()
        try:
            request.result = request.op(state)
        except SegmentTooFull:
            return ROLL
        except Exception as exc:  # noqa: BLE001  the caller of this request gets it, the others go on
            request.error = env.typed(exc)
            if buffer.mark() != mark:
                state.kept.clear()
                return AGAIN  # it failed halfway: the rest is decided once more without it
    if buffer.end == buffer.start:
        batch.over = True
        state.kept.applied = words.applied
        state.kept.generation = words.generation
        return DONE
    if state.grown and batch.hands_out and (step := _hand_out(engine, batch, state)) >= 0:
        return step
    start, limit = fmt.offset_of(buffer.start), engine.limits.segment_bytes
    if fmt.offset_of(buffer.end) > limit and start > fmt.SEGMENT_HEAD_BYTES:
        return ROLL
    return -1


def _hand_out(engine: Engine, batch: Batch, state: WriteTxn) -> int:
    """Serve those who wait for what is added; -1, or what to do instead."""
    try:
        hand_out = engine.hand_out
        if hand_out is not None:
            hand_out(state, engine.wake.waits)
        batch.serves = bool(state.handed)
    except SegmentTooFull:
        return ROLL
    except Exception:  # noqa: BLE001  who waits for it meets the same, and raises: no add does
        log.warning("what was added could not be handed to those who wait for it", exc_info=True)
        batch.hands_out = False
        state.kept.clear()
        return AGAIN
    return -1


def _keep_promise(engine: Engine, file: Any, rank: int, start: int, end: int) -> None:
    wake = engine.wake
    if rank >= ALWAYS:
        engine.sync_file(file, start)
        wake.raise_durable(end)
        wake.oldest_unsynced_ms = 0
    elif rank >= EVERYSEC and not wake.oldest_unsynced_ms:
        wake.oldest_unsynced_ms = monotonic_ms()


def settle(engine: Engine, batch: Batch, exc: BaseException) -> None:
    """Something failed, or an interrupt came: the tail check says what counts. May be repeated.

    Requests of an interrupted batch that did not happen are left without outcome: their callers
    were not interrupted, and they are tried again.
    """
    exc = env.typed(exc)
    if batch.txn is not None:
        batch.txn.abort()
    engine.cache.clear()
    if batch.over:
        return
    if not batch.number:
        engine.wake.waits.withdraw_locked(batch.handed)
        if isinstance(exc, Exception):
            reopen.revive(engine)
            batch.fail(exc)
        return
    if engine.wake.failed_at:
        # Not published: a reader must not see what may be lost. Every later commit is refused.
        batch.fail(CommittedError(
            f"the commit is in the log, but making it durable failed: {exc}; nothing more is "
            "acknowledged until every process has closed the store and it was opened again"
        ), exc)  # fmt: skip
        return
    try:
        if isinstance(exc, FileSystemError) and not batch.appended:
            # The append was cut short, so its bytes never were a complete commit.
            number, offset = fmt.position_parts(batch.start)
            engine.active_file(number).truncate(offset)
        if engine.wake.log().in_progress:
            log_tail.finish_locked(engine)
        batch.committed = _in_log(engine, batch)
    except Exception as second:  # noqa: BLE001  LMDB's too: the commit's fate is not known
        batch.fail(CommittedError(
            f"the commit may be in the log, and the index could not follow: {env.typed(second)}; "
            "do not repeat the call before the store was opened again"
        ), exc)  # fmt: skip
        return
    if batch.committed:
        batch.over = True
    elif isinstance(exc, Exception):
        batch.fail(exc)
    else:
        batch.number = 0  # it did not happen


def _in_log(engine: Engine, batch: Batch) -> bool:
    """Whether the commit stands in the log, told by the checksum of its last frame."""
    if engine.wake.log().commit < batch.number:
        return False
    number, offset = fmt.position_parts(batch.last_frame)
    file = engine.active_file(number)
    try:
        found = reader.read_frame(file, engine.seed, number, offset, file.size_bytes())
    except CorruptFrameError:
        return False
    return (found.crc, found.commit) == (batch.last_crc, batch.number)


__all__ = [
    "AGAIN", "ALWAYS", "DONE", "EVERYSEC", "ROLL", "Batch", "Op", "Request", "attempt",
    "ready_locked", "settle",
]  # fmt: skip
