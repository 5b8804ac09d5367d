"""Committing: threads queue up, one leads, commits for all that wait, and hands the lead on.

Invariants: the lead belongs to one request at a time and is handed on directly, so that one sync
serves many; whatever interrupts a thread, and wherever, the lead is handed on, LOCK is released
and every request gets its outcome (``_rescue``); a waiter looks at its flags again from time to
time, so that a wake-up lost to an interrupt costs it some milliseconds and no more; calling the
store from inside one of its own calls raises, and never waits for itself.

Interrupts are not held back: what they cut off is settled as a dead writer's commit would be, by
the tail check (``attempt.settle``).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from logstore.engine.attempt import (
    ALWAYS,
    DONE,
    ROLL,
    Batch,
    Op,
    Request,
    attempt,
    ready_locked,
    settle,
)
from logstore.engine.busy import Busy
from logstore.engine.core import Engine
from logstore.engine.lock import INTERRUPTS_MAX, through
from logstore.engine.revival import healing
from logstore.engine.wake import LogWords
from logstore.errors import CommittedError, CommittedInterrupt, ReadOnlyError, ReentryError
from logstore.options import SYNC_RANK, Sync

BATCH_MAX_REQUESTS = 256
WAIT_SLICE_S = 0.1
GATHER_S = 0.0005


class Committer:
    """Runs operations as commits, for all threads of this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._guard = threading.Lock()
        self._queue: deque[Request] = deque()
        self._leader: Request | None = None
        self._batch: Batch | None = None
        self._expected = 0  # how many may want to share the next sync
        self._local = Busy()
        self._rank = SYNC_RANK[engine.options.sync]
        self.mutex = engine.mutex  # held by the leader; others take it for work under LOCK

    def run(self, op: Op, sync: Sync | None = None) -> Any:
        """Decide, apply and commit one operation; its result."""
        local = self._local
        if local.now or self._engine.options.readonly:
            self._check_call()
        rank = self._rank
        if sync is not None:
            rank = max(rank, SYNC_RANK[sync])
        request = Request(op, rank)
        local.now = True
        try:
            if self._enter(request) or self._wait(request):
                self._lead()
        except BaseException as exc:  # an interrupt: nothing may stay taken, nobody wait for ever
            # Another interrupt may fall on the entry of the call; no loop here, its jump back is
            # a place for one, too.
            try:
                self._rescue(request, exc)
            except KeyboardInterrupt:
                try:
                    self._rescue(request, exc)
                except KeyboardInterrupt:
                    self._rescue(request, exc)
        finally:
            local.now = False
        # Without a call: an interrupt here would hide what happened.
        if request.error is not None:
            raise request.error
        return request.result

    @contextmanager
    def locked(self) -> Iterator[LogWords]:
        """The mutex and LOCK, the tail checked: for work that must not meet a commit."""
        self._check_call()
        engine = self._engine
        self._local.now = True
        try:
            with self.mutex:
                try:
                    engine.lock.acquire(engine.wake, engine.options.lock_timeout_s)
                    with healing(engine):
                        yield ready_locked(engine)
                finally:
                    through(lambda: engine.lock.release(engine.wake))
        finally:
            self._local.now = False

    @property
    def busy(self) -> bool:
        """Whether this thread is inside a call of this store."""
        return self._local.now

    def _check_call(self) -> None:
        if self.busy:
            raise ReentryError(
                "the store was called from inside one of its own calls (a signal handler or a "
                "finaliser): do this work outside"
            )
        if self._engine.options.readonly:
            raise ReadOnlyError("the store was opened with readonly=True: open it for writing")

    # -- the queue ----------------------------------------------------------------------------
    def _enter(self, request: Request) -> bool:
        """Queue up; True if this thread leads."""
        with self._guard:
            if self._leader is None:  # then nobody waits
                self._leader = request
                if self._expected > 1 and request.rank >= ALWAYS:
                    self._queue.append(request)
                else:
                    self._batch = Batch([request])
                    request.taken = True
                return True
            self._queue.append(request)
            request.turn = threading.Lock()
            request.turn.acquire()
            return False

    def _wait(self, request: Request) -> bool:
        """Wait until the request is done (False), or until this thread must lead (True)."""
        while True:
            request.turn.acquire(timeout=WAIT_SLICE_S)
            if request.done:
                return False
            if self._leader is request:
                return True

    def _lead(self) -> None:
        batch = self._batch
        if batch is None:
            self._gather()
            with self._guard:
                batch = self._batch = Batch(list(islice(self._queue, BATCH_MAX_REQUESTS)))
                for request in batch.requests:
                    request.taken = True
                    self._queue.popleft()
        self._commit(batch)
        self._hand_over(batch)

    def _gather(self) -> None:
        """Under ``always``, let those whose commit just ended queue up again and share the sync.

        Without it the first of them would sync for itself alone, while the others wait. Who does
        not come back is not waited for again.
        """
        deadline = 0.0
        while len(self._queue) < self._expected and self._queue[0].rank >= ALWAYS:
            now = time.perf_counter()
            deadline = deadline or now + GATHER_S
            if now > deadline:
                break
            time.sleep(0)  # lets go of the interpreter

    def _hand_over(self, batch: Batch) -> None:
        """Mark the batch done and let the next waiter lead. May be repeated."""
        with self._guard:
            following = self._queue[0] if self._queue else None
            for request in batch.requests:
                request.done = True
            self._expected = min(len(self._queue) + len(batch.requests), BATCH_MAX_REQUESTS)
            self._batch = None
            self._leader = following
        if following is None and len(batch.requests) == 1:
            return  # it is this thread's own
        woken = batch.requests if following is None else [*batch.requests, following]
        for request in woken:
            if request.turn is not None and request.turn.locked():
                request.turn.release()

    def _commit(self, batch: Batch) -> None:
        engine = self._engine
        with self.mutex:
            try:
                if engine.closed:
                    engine.check_open()
                engine.lock.acquire(engine.wake, engine.options.lock_timeout_s)
                words = ready_locked(engine)
                while (step := attempt(engine, batch, words)) != DONE:
                    if step == ROLL:
                        engine.roll_locked(words)
                        engine.metrics.count("rolls")
                    words = engine.wake.log()
            except BaseException as exc:
                cause = exc
                through(lambda: settle(engine, batch, cause))
                if not isinstance(exc, Exception):
                    raise
            finally:
                through(lambda: engine.lock.release(engine.wake))

    # -- interrupts ---------------------------------------------------------------------------
    def _rescue(self, request: Request, exc: BaseException) -> None:
        """Bring an interrupted call to its end; the request has its outcome then."""
        for _ in range(INTERRUPTS_MAX):
            try:
                if self._leader is request:
                    self._rescue_lead(request, exc)
                elif self._rescue_waiter(request, exc):
                    self._lead()
                break
            except KeyboardInterrupt:
                continue  # once more: every step can be repeated
        if isinstance(exc, KeyboardInterrupt) and request.error is not None:
            if not isinstance(request.error, CommittedError):
                request.error = exc  # refused and interrupted: nothing happened
        elif request.done and request.error is None:
            if isinstance(exc, KeyboardInterrupt):
                request.error = CommittedInterrupt("interrupted; the commit counts")
            elif not isinstance(exc, Exception):
                request.error = exc
            else:
                request.error = CommittedError(
                    f"the commit counts, do not repeat it; then: {exc!r}"
                )
            request.error.__cause__ = None if request.error is exc else exc

    def _rescue_lead(self, request: Request, exc: BaseException) -> None:
        batch = self._batch
        if batch is None:
            batch = Batch([])
        engine = self._engine
        with self.mutex:
            try:
                if batch.number and not batch.over:  # interrupted again while it was settled
                    engine.lock.acquire(engine.wake, engine.options.lock_timeout_s)
                    settle(engine, batch, exc)
            finally:
                if not engine.closed:
                    engine.lock.release(engine.wake)
        if not batch.over:
            # Nothing of it happened. Who was not interrupted goes back to the head of the queue.
            with self._guard:
                back = [each for each in batch.requests if each is not request]
                for each in reversed(back):
                    each.taken = False
                    if each not in self._queue:
                        self._queue.appendleft(each)
                if request in self._queue:
                    self._queue.remove(request)
                request.fail(exc)
                batch = self._batch = Batch([request])
                batch.over = True
        self._hand_over(batch)

    def _rescue_waiter(self, request: Request, exc: BaseException) -> bool:
        """Withdraw, or wait for the outcome; True if this thread must lead."""
        with self._guard:
            if not request.taken:
                if request in self._queue:
                    self._queue.remove(request)
                request.fail(exc)
                return False
            if request.turn is None:  # interrupted right behind queueing up
                request.turn = threading.Lock()
        return not request.done and self._wait(request)


__all__ = ["Batch", "Committer", "Op", "Request", "ready_locked"]
