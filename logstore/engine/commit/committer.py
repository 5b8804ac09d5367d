"""Committing: an operation goes in, and its result or its error comes out, whatever interrupts it.

Invariants: whatever interrupts a thread, and wherever, the lead is handed on, LOCK is released and
every request gets its outcome (``_rescue``); calling the store from inside one of its own calls
raises, and never waits for itself. How threads share a commit is the matter of ``line``.

Interrupts are not held back: what they cut off is settled as a dead writer's commit would be, by
the tail check (``commit.pipeline.settle``). This module is never compiled: Python raises an
interrupt inside of an interpreted function, or behind a compiled one, and behind ``run`` is too
late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from logstore.engine.commit.pipeline import Batch, Op, Request, ready_locked, settle
from logstore.engine.commit.queue import Line
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.reopen import healing
from logstore.engine.shm.control_block import LogWords
from logstore.engine.shm.writer_lock import INTERRUPTS_MAX, PAUSE_S, through
from logstore.errors import CommittedError, CommittedInterrupt, ReadOnlyError, ReentryError
from logstore.options import SYNC_RANK, Sync


class Busy(threading.local):
    """One flag a thread; and since when what it does now was wanted, by ``time.monotonic_ns``."""

    now = False
    since_ns = 0  # 0: since it is called


class Committer:
    """Runs operations as commits, for all threads of this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._line = Line(engine)
        self._local = Busy()
        self._rank = SYNC_RANK[engine.options.sync]
        self._timeout_ns = int(engine.options.lock_timeout_s * 1e9)
        self.mutex = engine.mutex  # held by the leader; others take it for work under LOCK

    def run(self, op: Op, sync: Sync | None = None) -> Any:
        """Decide, apply and commit one operation; its result."""
        local = self._local
        if local.now or self._engine.options.readonly:
            self._check_call()
        rank = self._rank
        if sync is not None:
            rank = max(rank, SYNC_RANK[sync])
        began_ns = time.monotonic_ns()
        if local.since_ns and self._line.stalled:
            began_ns = local.since_ns
        request = Request(op, rank, began_ns + self._timeout_ns)
        local.now = True
        try:
            self._line.ride(request)
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
        timeout_s = engine.options.lock_timeout_s
        deadline_ns = time.monotonic_ns() + self._timeout_ns
        self._local.now = True
        try:
            while True:
                with self.mutex:
                    engine.check_open()  # closed while this waited for the mutex
                    try:
                        if engine.lock.acquired(engine.wake, timeout_s, deadline_ns):
                            with healing(engine):
                                yield ready_locked(engine)
                            return
                    finally:
                        through(lambda: engine.lock.release(engine.wake))
                time.sleep(PAUSE_S)
        finally:
            self._local.now = False

    @contextmanager
    def wanted_since(self, since_ns: int) -> Iterator[None]:
        """What this thread commits in the block was wanted since then (``time.monotonic_ns``): for
        work that stood in a queue of the caller's.

        It waits for LOCK for so much less, if those before it waited in vain, so that their
        time-outs and its own do not add up. If they did not, it stood behind work, and has all its
        time.
        """
        self._local.since_ns = since_ns
        try:
            yield
        finally:
            self._local.since_ns = 0

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

    # -- interrupts ---------------------------------------------------------------------------
    def _rescue(self, request: Request, exc: BaseException) -> None:
        """Bring an interrupted call to its end; the request has its outcome then."""
        for _ in range(INTERRUPTS_MAX):
            try:
                if self._line.leader is request:
                    self._rescue_lead(request, exc)
                elif self._rescue_waiter(request, exc):
                    self._line.lead()
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
        batch = self._line.batch
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
            with self._line.guard:
                back = [each for each in batch.requests if each is not request]
                for each in reversed(back):
                    each.taken = False
                    if each not in self._line.queue:
                        self._line.queue.appendleft(each)
                if request in self._line.queue:
                    self._line.queue.remove(request)
                request.fail(exc)
                batch = self._line.batch = Batch([request])
                batch.over = True
        self._line.hand_over(batch)

    def _rescue_waiter(self, request: Request, exc: BaseException) -> bool:
        """Withdraw, or wait for the outcome; True if this thread must lead."""
        with self._line.guard:
            if not request.taken:
                if request in self._line.queue:
                    self._line.queue.remove(request)
                request.fail(exc)
                return False
            if request.turn is None:  # interrupted right behind queueing up
                request.turn = threading.Lock()
        return not request.done and self._line.wait(request)


__all__ = ["Batch", "Committer", "Op", "Request", "ready_locked"]
