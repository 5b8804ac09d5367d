"""The line in which threads wait for a commit: one leads, commits for all, and hands the lead on.

Invariants: the lead belongs to one request at a time and is handed on directly, so that one sync
serves many; who queued up is taken into a batch only when LOCK is held, so that each waits for LOCK
as long as it wants to and no longer: one that gives up leaves the others where they are; a waiter
looks at its flags again from time to time, so that a wake-up lost to an interrupt costs it some
milliseconds and no more. What an interrupt cut off here, ``commit`` brings to its end: it may fall
anywhere, and when this is compiled, behind a call of this only.
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
    attempt,
    ready_locked,
    settle,
)
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm import futex
from logstore.engine.shm.writer_lock import PAUSE_S, StillHeld, through
from logstore.errors import LockTimeoutError

BATCH_MAX_REQUESTS = 256
WAIT_SLICE_S = 0.1
GATHER_S = 0.0005
LONG_NS = 2_000_000  # more than readers need for what they were handed


class Line:
    """Requests of all threads of this process, and whose turn it is."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.guard = threading.Lock()
        self.queue: deque[Request] = deque()
        self.leader: Request | None = None
        self.batch: Batch | None = None
        self._keeps_until_ns = 0  # the processor
        self._expected = 0  # how many may want to share the next sync
        self.stalled = False  # who waited for LOCK last waited in vain

    def ride(self, request: Request) -> None:
        """Queue up, and see the request through as a leader or in another's batch."""
        if self.enter(request) or self.wait(request):
            self.lead()

    def enter(self, request: Request) -> bool:
        """Queue up; True if this thread leads."""
        with self.guard:
            if self.leader is None:  # then nobody waits
                self.leader = request
                if self._expected > 1 and request.rank >= ALWAYS:
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
        """Leave the queue if it is another process that keeps LOCK; who works here will be done."""
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
        self.hand_over(batch)
        if batch.serves:
            self._let_run()

    def _take(self, most: int) -> Batch:
        """The batch of those who wait, the leader's request first."""
        with self.guard:
            batch = self.batch = Batch(list(islice(self.queue, most)))
            for request in batch.requests:
                request.taken = True
                self.queue.popleft()
        return batch

    def _let_run(self) -> None:
        """Let those run who were handed what was added: with every processor busy, the kernel puts
        one that was woken behind who runs, for a slice of some milliseconds.

        If others took the processor for as long, it is not offered again for a while.
        """
        now_ns = time.monotonic_ns()
        if now_ns >= self._keeps_until_ns:
            futex.let_run()
            took_ns = time.monotonic_ns() - now_ns
            if took_ns > LONG_NS:
                self._keeps_until_ns = now_ns + 2 * took_ns

    def _gather(self) -> None:
        """Under ``always``, let those whose commit just ended queue up again and share the sync.

        Without it the first of them would sync for itself alone, while the others wait. Who does
        not come back is not waited for again.
        """
        deadline = 0.0
        while len(self.queue) < self._expected and self.queue[0].rank >= ALWAYS:
            now = time.perf_counter()
            deadline = deadline or now + GATHER_S
            if now > deadline:
                break
            time.sleep(0)  # lets go of the interpreter

    def hand_over(self, batch: Batch) -> None:
        """Mark the batch done and let the next waiter lead. May be repeated."""
        with self.guard:
            following = self.queue[0] if self.queue else None
            for request in batch.requests:
                request.done = True
            self._expected = min(len(self.queue) + len(batch.requests), BATCH_MAX_REQUESTS)
            self.batch = None
            self.leader = following
        if following is None and len(batch.requests) == 1:
            return  # it is this thread's own
        woken = batch.requests if following is None else [*batch.requests, following]
        for request in woken:
            if request.turn is not None and request.turn.locked():
                request.turn.release()

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
                batch = self.batch  # only who leads changes it
                if batch is None:
                    batch = self._take(BATCH_MAX_REQUESTS)
                words = ready_locked(engine)
                while (step := attempt(engine, batch, words)) != DONE:
                    if step == ROLL:
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
                cause, failed = exc, batch
                through(lambda: settle(engine, failed, cause))
                if not isinstance(exc, Exception):
                    raise
            finally:
                through(lambda: engine.lock.release(engine.wake))
        return batch
