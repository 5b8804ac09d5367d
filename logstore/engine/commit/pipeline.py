"""The pipeline of a commit, in the order in which it happens: decide, append, sync, publish.

``commit_locked`` is one run: every operation of the batch is decided and applied to the uncommitted
index, all frames go out in one append, and then the commit is published. ``group_commit`` makes the
batch, of what the threads of this process want to commit.

Invariants, in crash order: (1) WAKE says that a commit is in progress before its first byte is
appended; (2) all frames go out in one append, never over a segment's end; (3) under ``always`` they
are durable before LMDB's commit, so that no reader sees an entry early; (4) LMDB's commit comes
before WAKE says that it is over; a plain commit has none (``write_back``). If the process is killed
in between, the word of a commit in progress stays set, and the next process to take LOCK checks the
tail of the log. An error or an interrupt in between goes the same way: ``resolve`` asks the tail
check whether the commit is complete in the log, and so whether it happened. A complete commit
counts: what fails later raises CommittedError.

Everything whose name ends in ``_locked`` runs with the mutex and LOCK held.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from logstore import format as fmt
from logstore.clock import monotonic_ms
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit import log_tail, write_back
from logstore.engine.runtime import disk_space, identity, reopen
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.shm.commit_words import LogWords
from logstore.errors import (
    CommittedError,
    CorruptFrameError,
    CorruptionError,
    DiskFullError,
    FileSystemError,
    UnreadableError,
)
from logstore.index import env
from logstore.index.keys import Meta
from logstore.index.txn import IndexTxn
from logstore.log import log_reader
from logstore.log.segment_writer import SegmentTooFull
from logstore.options import SYNC_RANK

# Of a tuple that is there: 2,000 instructions less than to call the class, in every commit.
_new = tuple.__new__
Op = Callable[..., Any]  # takes the write transaction, then what the request brings along
EVERYSEC, ALWAYS = SYNC_RANK["everysec"], SYNC_RANK["always"]
DONE, ROLL, AGAIN = 0, 1, 2


class Request:
    """One caller's operation on its way through a commit."""

    result: Any = None
    error: BaseException | None = None
    dead: Sequence[Any] = ()  # what the operation dead-lettered
    taken = False  # part of a batch
    done = False
    wrote = False  # it appended frames; without them it changed nothing
    at_once = False  # it waits for no thread, no process and no disk: ``NotFree``
    turn: Any = None  # a lock to wait on, if another thread leads
    grows = False  # it may add to the store: refused where the space set aside was given up

    def __init__(self, op: Op, args: tuple[Any, ...], rank: int, deadline_ns: int) -> None:
        self.op = op
        self.args = args
        self.rank = rank
        self.deadline_ns = deadline_ns  # of ``time.monotonic_ns``: until when it waits for LOCK

    def fail(self, error: BaseException) -> None:
        """Set the error, unless it has its own."""
        if self.error is None:
            self.error = error


class Batch:
    """The requests of one commit, and how far it came."""

    generation: Any = None  # of the index that it writes to
    index_txn: Any = None  # LMDB's write transaction, once something was asked of it
    buffer: Any = None  # the frames that were decided, and applied to the index
    number = 0  # of the commit; 0: nothing of it can be in the log
    start = 0
    last_frame = 0
    last_crc = 0
    appended = False
    over = False  # every request has its outcome
    refused = 0  # requests whose operation raised
    handed: Sequence[int] = ()  # numbers of waiters that this run through the pipeline offered to
    hands_out = True  # what is added goes to those who wait for it
    serves = False  # what it added was handed to readers who wait

    def __init__(self, requests: list[Request]) -> None:
        self.requests = requests
        self.rank = requests[0].rank if requests else 0  # the strictest policy asked for
        if len(requests) > 1:
            self.rank = max([request.rank for request in requests])

    def open_index(self) -> IndexTxn:
        """Begin LMDB's transaction: an ``IndexOpener``."""
        self.index_txn = index_txn = self.generation.env.begin(write=True)
        return IndexTxn(self.generation, index_txn)

    def abort_index(self, engine: Engine) -> None:
        """Take back what was written to the index, if anything was. May be repeated."""
        if self.index_txn is not None:
            buffer = self.buffer
            written = buffer is not None and buffer.end != buffer.start
            self.generation.leave(self.index_txn, engine.gate, written=written)
            self.index_txn = self.buffer = None

    def fail(self, error: BaseException, cause: BaseException | None = None) -> None:
        """No request that has no outcome of its own happened."""
        if cause is not None:
            error.__cause__ = cause
        for request in self.requests:
            request.fail(error)
        self.over = True


def ready_locked(engine: Engine, *, careful: bool = False) -> LogWords:
    """After taking LOCK: is the store sound, is the index there, did the last writer finish, and
    does the log end where WAKE says?

    That is looked at before others' commits could have been written over: whenever WAKE says less
    than this process knows, and else every millisecond, or always if it is ``careful``.
    """
    if engine.wake.failed_at:
        engine.check_failed()
    lane = engine.lane
    if lane is not None:  # from here on the record cache has what it held
        lane.give_back()
    words = engine.wake.log()
    generation = engine.generation
    if generation is None or generation.number != words.generation or generation.lost:
        engine.ensure_index_locked()
        words = engine.wake.log()
    now_ns = time.monotonic_ns()
    if words.in_progress:
        words = log_tail.finish_locked(engine)
    elif (
        careful
        or now_ns - engine.end_looked_ns >= log_tail.END_LOOK_NS
        or words.applied < engine.cache.applied
    ):
        words = log_tail.look_locked(engine, words, careful=careful)
        engine.end_looked_ns = now_ns
    # Now and then: StoreGoneError if the commit would go to files without a name.
    if now_ns - engine.looked_ns >= identity.LOOK_NS:
        identity.check_active_locked(engine, words.active_segment)
    return words


def commit_locked(engine: Engine, batch: Batch, words: LogWords) -> int:
    """Decide all, then write; ``ROLL`` or ``AGAIN`` if it must be decided once more."""
    # No local variable for WAKE: an error keeps this frame, and so it mapped behind a close.
    cache, generation = engine.cache, engine.generation
    if generation is None or generation.number != words.generation:
        generation = engine.index()
    batch.generation = generation
    try:
        if (begun := _begin(engine, batch, words)) is None:
            return AGAIN
        if engine.wake.full:  # perhaps only now, for the index to follow
            _refuse_growth(engine, batch)
        txn, buffer, number, start = begun, begun.buffer, begun.buffer.number, begun.buffer.start
        offset = fmt.offset_of(start)
        step = _decide(engine, batch, txn, words)
        size = offset + buffer.end - start  # of the segment; one commit alone may be larger
        if step < 0 and size > engine.limits.segment_bytes and offset > fmt.SEGMENT_HEAD_BYTES:
            step = ROLL
        if step >= 0:
            batch.abort_index(engine)
            engine.wake.waits.withdraw_locked(txn.handed)
            return step
        if generation.lost:  # what was decided may rest on it
            raise CorruptionError(env.LOST_PAGES)
        data = buffer.encode(engine.seed, engine.wake.durable_upto)
        meta = txn.meta = _new(
            Meta, (buffer.end, number, buffer.last_start, buffer.last_crc, *txn.meta[4:])
        )
        plain = txn.is_plain() and write_back.may_lag(engine, buffer.end)
        if not plain:
            txn.flush()  # before the append: a full index refuses while nothing happened
        batch.start, batch.number, batch.last_frame, batch.last_crc = (
            start,
            number,
            buffer.last_start,
            buffer.last_crc,
        )
        file = engine.active
        if file is None or engine.active_number != words.active_segment:
            file = engine.active_file(words.active_segment)
        engine.wake.begin(number)
        file.pwrite(data, offset)
        batch.appended = True
        _keep_promise(engine, file, batch.rank, start, buffer.end)
        if not plain:
            batch.index_txn.commit()
        _publish(engine, txn, meta, engine.wake.indexed_upto if plain else buffer.end)
        batch.over = True
    except BaseException:
        batch.abort_index(engine)
        raise
    if plain:
        txn.owe()
    else:
        cache.paid()
    cache.committed(meta, generation.number, txn.changed)
    engine.metrics.committed(len(batch.requests) - batch.refused, len(data), txn.counts)
    return DONE


def _begin(engine: Engine, batch: Batch, words: LogWords) -> WriteTxn | None:
    """A transaction on what is published; None if the index had to follow before that is known."""
    cache, index = engine.cache, None
    if cache.applied != words.applied or cache.generation != words.generation:
        write_back.catch_up_locked(engine, words)
    if cache.meta is None and engine.wake.indexed_upto < words.applied:
        write_back.follow_locked(engine, words)
    if cache.meta is None:
        index = batch.open_index()
        cache.meta = index.meta()
        if cache.meta.applied != words.applied:  # the index lags, or differs: the log decides
            batch.abort_index(engine)
            log_tail.follow_locked(engine, words)
            return None
    elif cache.must_follow or write_back.is_due(engine, words):
        write_back.follow_locked(engine, words)
    start = fmt.start_of_next(words.applied, words.active_segment)
    txn = WriteTxn(engine, index, cache.meta, start, words.commit + 1, batch)
    batch.handed, batch.buffer = txn.handed, txn.buffer
    cache.applied = -1  # valid again only when this commit is through
    return txn


def _refuse_growth(engine: Engine, batch: Batch) -> None:
    """On a full disk refuse commits that only add: the space set aside is for commits that give
    space back, and for what the log has already."""
    for request in batch.requests:
        if request.grows:
            try:
                disk_space.check(engine)
            except DiskFullError as exc:
                request.fail(exc)


def _decide(engine: Engine, batch: Batch, txn: WriteTxn, words: LogWords) -> int:
    """Run the operations; -1 if their frames are to be written, else what to do instead.

    An operation reads what the transaction sees, and each frame that it appends is applied at once,
    so that the next operation of the batch sees it. An operation that refuses has appended nothing.
    """
    buffer = txn.buffer
    for request in batch.requests:
        if request.error is not None:
            continue
        before, dead = buffer.end, len(txn.dead_lettered)
        try:
            request.result = request.op(txn, *request.args)
            request.dead = txn.dead_lettered[dead:]
            request.wrote = buffer.end != before
        except SegmentTooFull:
            return ROLL
        except Exception as exc:  # noqa: BLE001  the caller of this request gets it, the others go on
            request.error = env.typed(exc)
            batch.refused += 1
            if buffer.end != before:
                txn.cache.clear()
                return AGAIN  # it failed halfway: the rest is decided once more without it
    if buffer.end == buffer.start:
        batch.over = True
        txn.cache.applied = words.applied
        txn.cache.generation = words.generation
        return DONE
    hand_out = engine.hand_out
    if batch.hands_out and hand_out is not None and _awaited(engine, txn):
        try:
            hand_out(txn, engine.wake.waits)
            batch.serves = bool(txn.handed)
        except SegmentTooFull:
            return ROLL
        except Exception:  # noqa: BLE001  the reader meets the same error itself, and raises it
            log.warning("what was added could not be handed to waiting readers", exc_info=True)
            batch.hands_out = False
            txn.cache.clear()
            return AGAIN
    return -1


def _awaited(engine: Engine, txn: WriteTxn) -> bool:
    """Whether somebody may wait for a group of a stream that this commit adds to."""
    waits, records = engine.wake.waits, txn.cache.records
    for number in txn.grown:
        record = records.get(number)
        if record is not None and waits.awaited(record.name):
            return True
    return False


def _keep_promise(engine: Engine, file: Any, rank: int, start: int, end: int) -> None:
    wake = engine.wake
    if rank >= ALWAYS:
        engine.sync_file(file, start)
        wake.raise_durable(end)
        wake.oldest_unsynced_ms = 0
    elif rank >= EVERYSEC and not wake.oldest_unsynced_ms:
        wake.oldest_unsynced_ms = monotonic_ms()


def _publish(engine: Engine, txn: WriteTxn, meta: Meta, indexed_upto: int) -> None:
    """Tell all processes where the log stands now, and the index, and what came."""
    wake = engine.wake
    if txn.next_due_ms is not None:
        wake.next_due_ms = txn.next_due_ms  # or the tail check does it
    wake.publish(meta, indexed_upto)
    waits = wake.waits
    if txn.handed:  # before the word of all streams: who saw it looks for what was given
        waits.given_locked(txn.handed)
    waits.bump_locked(txn.woken, txn.drained)


def resolve(engine: Engine, batch: Batch, exc: BaseException) -> None:
    """Something failed, or an interrupt came: the tail check says what counts. May be repeated.

    Requests of an interrupted batch that did not happen are left without outcome: their callers
    were not interrupted, and they are tried again.
    """
    exc = env.typed(exc)
    batch.abort_index(engine)
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
        error = CommittedError(
            f"the commit is in the log, but making it durable failed: {exc}; nothing more is "
            "acknowledged until every process has closed the store and it was opened again"
        )
        batch.fail(error, exc)
        return
    try:
        if isinstance(exc, FileSystemError) and not batch.appended:
            # The append was cut short, so its bytes never were a complete commit.
            number, offset = fmt.position_parts(batch.start)
            engine.active_file(number).truncate(offset)
            engine.wake.begin(0)  # the log ends where it is published, whatever the index has
        if engine.wake.in_progress:
            log_tail.finish_locked(engine)
        committed = _in_log(engine, batch)
    except Exception as second:  # noqa: BLE001  LMDB's too: the commit's fate is not known
        error = CommittedError(
            f"the commit may be in the log, and the index could not follow: {env.typed(second)}; "
            "do not repeat the call before the store was opened again"
        )
        batch.fail(error, exc)
        return
    if committed:
        batch.over = True
    elif isinstance(exc, Exception):
        batch.fail(exc)
    else:
        batch.number = 0  # it did not happen


def _in_log(engine: Engine, batch: Batch) -> bool:
    """Whether the commit stands in the log, by the checksum of its last frame."""
    if engine.wake.log().commit < batch.number:
        return False
    number, offset = fmt.position_parts(batch.last_frame)
    file = engine.active_file(number)
    try:
        frame = log_reader.read_frame(file, engine.seed, number, offset, file.size_bytes())
    except UnreadableError:
        raise  # it may stand there
    except CorruptFrameError:
        return False
    return (frame.crc, frame.commit) == (batch.last_crc, batch.number)
