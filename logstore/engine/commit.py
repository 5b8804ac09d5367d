"""The commit: lock, decide and apply, append, sync, publish.

Invariants, in crash order: (1) WAKE says that a commit is in progress before its first byte is
appended; (2) all frames go out in one append, never over a segment's end; (3) under ``always`` they
are durable before LMDB's commit, so that no reader sees an entry early; (4) LMDB's commit comes
before WAKE says that it is over. Whoever is killed in between leaves the word set, and the next to
take the lock checks the tail. Once the frames are complete the commit counts: what fails later
raises CommittedError.

Threads queue up; the first leads and commits for all that wait, then hands the lead to the next
waiter directly, so that one sync serves many.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from logstore import format as fmt
from logstore.clock import monotonic_ms
from logstore.engine import tail
from logstore.engine.core import Engine
from logstore.engine.state import State
from logstore.engine.wake import LogWords
from logstore.errors import CommittedError, CommittedInterrupt, Error, FileSystemError, ReentryError
from logstore.index.txn import IndexTxn
from logstore.options import SYNC_RANK, Sync

Op = Callable[[State], Any]
BATCH_MAX_REQUESTS = 256
_EVERYSEC, _ALWAYS = SYNC_RANK["everysec"], SYNC_RANK["always"]
_DONE, _ROLL, _AGAIN = 0, 1, 2


class Request:
    """One caller's operation on its way through a commit."""

    __slots__ = ("done", "error", "interrupted", "op", "rank", "result", "turn")

    def __init__(self, op: Op, rank: int) -> None:
        self.op = op
        self.rank = rank
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.interrupted = False
        self.turn: threading.Lock | None = None

    def outcome(self) -> Any:
        """The result, or the error raised."""
        if self.error is not None:
            raise self.error
        return self.result


class Committer:
    """Runs operations as commits, for all threads of this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._guard = threading.Lock()
        self._queue: deque[Request] = deque()
        self._leading = False
        self._local = threading.local()
        self.mutex = threading.Lock()  # held by the leader; others take it for work under LOCK

    def run(self, op: Op, sync: Sync | None = None) -> Any:
        """Decide, apply and commit one operation; its result."""
        if getattr(self._local, "busy", False):
            raise ReentryError(
                "the store was called from inside one of its own calls (a signal handler or a "
                "finaliser): do this work outside"
            )
        rank = SYNC_RANK[self._engine.options.sync]
        if sync is not None:
            rank = max(rank, SYNC_RANK[sync])
        request = Request(op, rank)
        self._local.busy = True
        try:
            if self._enter(request) or self._wait(request):
                self._lead()
        finally:
            self._local.busy = False
        if request.interrupted and request.error is None:
            request.error = CommittedInterrupt("interrupted; the commit counts")
        return request.outcome()

    def _enter(self, request: Request) -> bool:
        """Queue up; True if this thread leads."""
        with self._guard:
            self._queue.append(request)
            if not self._leading:
                self._leading = True
                return True
            request.turn = threading.Lock()
            request.turn.acquire()
            return False

    def _wait(self, request: Request) -> bool:
        """Wait until the request is done (False), or until this thread must lead (True)."""
        assert request.turn is not None
        while True:
            try:
                request.turn.acquire()
            except KeyboardInterrupt:
                with self._guard:
                    if request in self._queue and request is not self._queue[0]:
                        self._queue.remove(request)
                        raise
                request.interrupted = True  # it is being committed: wait for the outcome
            else:
                return not request.done

    def _lead(self) -> None:
        with self._guard:
            count = min(len(self._queue), BATCH_MAX_REQUESTS)
            batch = [self._queue.popleft() for _ in range(count)]
        back: list[Request] = []
        try:
            with self.mutex:
                self._commit(batch)
        except Exception as exc:  # the lock was not to be had, the store is failed, ..
            _fail(batch, exc)
        except BaseException as exc:  # an interrupt of this thread before anything was written
            back = [request for request in batch[1:] if request.error is None]
            batch = [request for request in batch if request not in back]
            _fail(batch, exc)
        finally:
            self._hand_over(batch, back)

    def _hand_over(self, batch: list[Request], back: list[Request]) -> None:
        """Mark the batch done and let the next waiter lead."""
        with self._guard:
            self._queue.extendleft(reversed(back))
            following = self._queue[0] if self._queue else None
            self._leading = following is not None
        for request in batch:
            request.done = True
            if request.turn is not None:
                request.turn.release()
        if following is not None and following.turn is not None:
            following.turn.release()

    def _commit(self, batch: list[Request]) -> None:
        engine = self._engine
        try:
            engine.lock.acquire(engine.wake, engine.options.lock_timeout_s)
            words = ready_locked(engine)
            while (step := self._attempt(batch, words)) != _DONE:
                if step == _ROLL:
                    words = engine.roll_locked(words)
                    engine.metrics.rolls += 1
        finally:
            if engine.lock.held:
                engine.lock.release(engine.wake)

    def _attempt(self, batch: list[Request], words: LogWords) -> int:
        """Decide all, then write; ``_ROLL`` or ``_AGAIN`` if it must be decided once more."""
        engine, kept = self._engine, self._engine.kept
        generation = engine.index()
        number, start = words.commit + 1, engine.start_of_next(words)
        txn = generation.env.begin(write=True)
        index = IndexTxn(generation, txn)
        try:
            if kept.applied != words.applied or kept.meta is None:
                kept.clear()
                kept.meta = index.meta()
            state = engine.new_state(index, kept.meta, start, number)
            kept.applied = -1  # valid again only when this commit is through
            if not _decide(batch, state):
                txn.abort()
                return _AGAIN
            buffer = state.buffer
            assert buffer is not None
            if not len(buffer):
                txn.abort()
                kept.applied = words.applied
                return _DONE
            limit = engine.limits.segment_bytes
            if (
                buffer.end & fmt.OFFSET_MAX > limit
                and start & fmt.OFFSET_MAX > fmt.SEGMENT_HEAD_BYTES
            ):
                txn.abort()
                return _ROLL
            data = buffer.encode(engine.seed, engine.wake.durable_upto)
            state.meta = state.meta._replace(
                applied=buffer.end, commit=number, last_frame=buffer.last_start,
                last_crc=buffer.last_crc,
            )  # fmt: skip
            state.flush()  # before the append: an index that is full refuses while nothing happened
        except BaseException:
            txn.abort()
            raise
        rank = max(request.rank for request in batch)
        engine.wake.begin(number)
        try:
            self._write(data, start, buffer.end, rank)
            txn.commit()
            engine.publish(state.meta)
        except BaseException as exc:
            txn.abort()
            self._after_failure(batch, start, exc)
            return _DONE
        kept.applied, kept.meta = buffer.end, state.meta
        engine.metrics.commits += 1
        engine.metrics.operations += len(batch)
        engine.metrics.commit_bytes += len(data)
        return _DONE

    def _write(self, data: bytes, start: int, end: int, rank: int) -> None:
        engine = self._engine
        number, offset = fmt.position_parts(start)
        file = engine.active_file(number)
        file.pwrite(data, offset)
        if rank >= _ALWAYS:
            engine.sync_file(file, start)
            engine.wake.raise_durable(end)
            engine.wake.oldest_unsynced_ms = 0
        elif rank >= _EVERYSEC and not engine.wake.oldest_unsynced_ms:
            engine.wake.oldest_unsynced_ms = monotonic_ms()

    def _after_failure(self, batch: list[Request], start: int, exc: BaseException) -> None:
        """Something failed behind the start of the append: the tail check says what counts."""
        engine = self._engine
        engine.kept.clear()
        if engine.wake.failed_at:
            # Not published: a reader must not see what may be lost. Every later commit is refused.
            _fail(batch, CommittedError(
                f"the commit is in the log, but making it durable failed: {exc}; nothing more is "
                "acknowledged until 'logstore recover' was run"
            ), exc)  # fmt: skip
            return
        number = engine.wake.log().in_progress
        try:
            if isinstance(exc, FileSystemError):
                # The append was cut short, so its bytes never were a complete commit.
                engine.active_file(start >> 32).truncate(start & fmt.OFFSET_MAX)
            words = tail.finish_locked(engine)
        except Error as second:
            _fail(batch, CommittedError(
                f"the commit may be in the log, and the index could not follow: {second}; "
                "do not repeat the call before the store was opened again"
            ), exc)  # fmt: skip
            return
        if words.commit < number:
            _fail(batch, exc)  # nothing of it was complete: it did not happen
        elif isinstance(exc, KeyboardInterrupt):
            _fail(batch, CommittedInterrupt("interrupted; the commit counts"), exc)
        elif not isinstance(exc, Exception):
            _fail(batch, exc)


def _fail(batch: list[Request], error: BaseException, cause: BaseException | None = None) -> None:
    if cause is not None:
        error.__cause__ = cause
    for request in batch:
        if request.error is None:
            request.error = error


def _decide(batch: list[Request], state: State) -> bool:
    """Run the operations; False if one failed halfway and the rest must be decided again."""
    buffer = state.buffer
    assert buffer is not None
    for request in batch:
        if request.error is not None:
            continue
        mark = buffer.mark()
        try:
            request.result = request.op(state)
        except Exception as exc:  # the caller of this request gets it, the others go on
            request.error = exc
            if buffer.mark() != mark:
                state.kept.clear()
                return False
    return True


def ready_locked(engine: Engine) -> LogWords:
    """After taking LOCK: is the store sound, did the last writer finish, is the index there?"""
    engine.check_failed()
    words = engine.wake.log()
    if words.in_progress:
        engine.kept.clear()
        words = tail.finish_locked(engine)
    return words


__all__ = ["Committer", "Op", "Request", "ready_locked"]
