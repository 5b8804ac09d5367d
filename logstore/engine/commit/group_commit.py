"""Group commit: requests of all threads queue up, one leads and commits for all, and hands on.

A thread that commits puts a request into the queue. The first becomes the leader and commits for
all that queued up by the time it holds LOCK; then it hands the lead on. What a commit does is
in ``pipeline``.

Invariants: one request leads at a time, and the lead is handed on directly, so that one sync serves
many; requests are taken into a batch only when LOCK is held, so that each waits for LOCK as long as
its caller wants and no longer, and one that gives up leaves the others where they are; a waiting
thread looks at its flags again from time to time, so that a wake-up lost to an interrupt costs some
milliseconds and no more; a request that may not wait (``at_once``) waits for no thread, no process
and no disk. What an interrupt cuts off here, ``committer`` brings to its end: it may fall anywhere.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import islice

from logstore.engine.commit import log_tail
from logstore.engine.commit.pipeline import (
    ALWAYS,
    DONE,
    ROLL,
    Batch,
    Request,
    commit_locked,
    ready_locked,
    resolve,
)
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm import futex
from logstore.engine.shm.writer_lock import PAUSE_S, StillHeld, through
from logstore.errors import LockTimeoutError

BATCH_MAX_REQUESTS = 256
WAIT_SLICE_S = 0.1
GATHER_S = 0.0005


class NotFree(Exception):  # noqa: N818  (what is so, not a mistake)
    """A request that may not wait would have to; nothing of it happened."""


class CommitQueue:
    """Requests of all threads of this process, and whose turn it is to lead."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.guard = threading.Lock()
        self.queue: deque[Request] = deque()
        self.leader: Request | None = None
        self.batch: Batch | None = None
        self.expected = 0  # how many requests may want to share the next sync
        self.stalled = False  # the last request that waited for LOCK waited in vain

    def submit(self, request: Request) -> None:
        """Queue up, and see the request through as the leader or in another's batch."""
        if request.at_once:
            self._submit_at_once(request)
        elif self._enter(request) or self.wait(request):
            self.lead()

    def _submit_at_once(self, request: Request) -> None:
        """Commit if nobody leads and the mutex and LOCK are free; else its error is ``NotFree``.

        The mutex is taken before the lead: who has the lead first could wait here for who has the
        mutex, and that one for the lead.
        """
        engine = self._engine
        if not engine.mutex.acquire(blocking=False):
            request.fail(NotFree())
            return
        try:
            with self.guard:
                leads = self.leader is None and request.rank < ALWAYS
                if leads:
                    self.leader = request
                    self.batch = Batch([request])
                    request.taken = True
            if not leads:
                request.fail(NotFree())
            elif self._is_free():
                batch = self._commit()  # it takes both once more, and gives LOCK back
                assert batch is not None
                self.hand_on(batch)
                if batch.serves:
                    futex.let_run()
            else:
                request.fail(NotFree())
                assert self.batch is not None
                self.hand_on(self.batch)
        finally:
            engine.mutex.release()

    def _is_free(self) -> bool:
        """Whether LOCK could be had, and the index is there: making it takes long."""
        engine = self._engine
        generation = engine.generation
        if engine.closed or generation is None or engine.wake.in_progress:
            return False
        if engine.lock.owes_a_turn:
            return False
        if generation.number != engine.wake.generation():
            return False
        return engine.lock.file.try_lock(exclusive=True)

    def _enter(self, request: Request) -> bool:
        """Queue up; True if this thread leads."""
        with self.guard:
            if self.leader is None:  # then nobody waits
                self.leader = request
                if self.expected > 1 and request.rank >= ALWAYS:
                    self.queue.append(request)
                else:
                    self.batch = Batch([request])
                    request.taken = True
                return True
            self.queue.append(request)
            request.turn = threading.Lock()
            request.turn.acquire()
            return False

    def wait(self, request: Request) -> bool:
        """Wait until the request is done (False), or until this thread must lead (True)."""
        while True:
            request.turn.acquire(timeout=WAIT_SLICE_S)
            if request.done:
                return False
            if self.leader is request:
                return True
            if time.monotonic_ns() >= request.deadline_ns:
                self._give_up(request)

    def _give_up(self, request: Request) -> None:
        """Leave the queue if another process keeps LOCK; a commit of this one comes to its end."""
        engine = self._engine
        with self.guard:
            if engine.lock.held or request.taken or request.done or self.leader is request:
                return
            self.queue.remove(request)
            self.stalled = True
            request.fail(engine.lock.timeout(engine.wake, engine.options.lock_timeout_s))
            request.done = True

    def lead(self) -> None:
        """Commit for all that wait, and hand the lead on."""
        if self.batch is None:
            self._gather()
        batch = self._commit()
        while batch is None:
            time.sleep(PAUSE_S)  # others of this process may have the mutex
            batch = self._commit()
        self.hand_on(batch)
        if batch.serves:
            futex.let_run()  # else readers that were woken wait until this thread's slice is over

    def _commit(self) -> Batch | None:
        """Commit for all that wait; None if another process still has LOCK."""
        engine, leader = self._engine, self.leader
        assert leader is not None
        batch: Batch | None = None
        with engine.mutex:
            try:
                if engine.closed:
                    engine.check_open()
                engine.lock.acquire(engine.wake, engine.options.lock_timeout_s, leader.deadline_ns)
                self.stalled = False
                batch = self.batch  # only the leader changes it
                if batch is None:
                    batch = self._take(BATCH_MAX_REQUESTS)
                words = ready_locked(engine)
                while (step := commit_locked(engine, batch, words)) != DONE:
                    if step == ROLL:
                        if leader.at_once:  # it syncs the segment
                            raise NotFree
                        log_tail.roll_locked(engine, words)
                        engine.metrics.count("rolls")
                    words = engine.wake.log()
            except StillHeld:
                return None
            except BaseException as exc:
                if batch is None:
                    if not isinstance(exc, Exception):
                        raise
                    batch = self.batch
                    if batch is None:
                        batch = self._take(1)  # it is the leader's time that is over
                    self.stalled = isinstance(exc, LockTimeoutError)
                through(resolve, engine, batch, exc)
                if not isinstance(exc, Exception):
                    raise
            finally:
                through(engine.lock.release, engine.wake)
        return batch

    def _take(self, most: int) -> Batch:
        """The batch of the requests that wait, the leader's first."""
        with self.guard:
            batch = self.batch = Batch(list(islice(self.queue, most)))
            for request in batch.requests:
                request.taken = True
                self.queue.popleft()
        return batch

    def _gather(self) -> None:
        """Under ``always``, let threads whose commit just ended queue up again and share a sync.

        Without it the first of them would sync for itself alone, while the others wait. A thread
        that does not come back is not waited for again.
        """
        deadline = 0.0
        while len(self.queue) < self.expected and self.queue[0].rank >= ALWAYS:
            now = time.perf_counter()
            deadline = deadline or now + GATHER_S
            if now > deadline:
                break
            time.sleep(0)  # lets go of the interpreter

    def hand_on(self, batch: Batch) -> None:
        """Mark the batch done and let the next request lead. May be repeated."""
        with self.guard:
            following = self.queue[0] if self.queue else None
            for request in batch.requests:
                request.done = True
            self.expected = min(len(self.queue) + len(batch.requests), BATCH_MAX_REQUESTS)
            self.batch = None
            self.leader = following
        if following is None and len(batch.requests) == 1:
            return  # it is this thread's own
        woken = batch.requests if following is None else [*batch.requests, following]
        for request in woken:
            if request.turn is not None and request.turn.locked():
                request.turn.release()
