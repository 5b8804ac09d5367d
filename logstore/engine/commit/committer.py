"""Committing: an operation goes in, and its result or its error comes out, whatever interrupts it.

Invariants: whatever interrupts a thread, and wherever, the lead is handed on, LOCK is released and
every request gets its outcome (``_rescue``); a call of the store from inside one of its own calls
raises, and never waits for itself. How threads share a commit is in
``group_commit``.

Interrupts are not held back: a commit that one cuts off is resolved as a dead writer's would be, by
the tail check (``pipeline.resolve``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from logstore.engine.commit import write_back
from logstore.engine.commit.group_commit import CommitQueue, NotFree
from logstore.engine.commit.pipeline import Batch, Op, Request, ready_locked, resolve
from logstore.engine.runtime import disk_space
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.reopen import healing
from logstore.engine.shm.commit_words import LogWords
from logstore.engine.shm.writer_lock import INTERRUPTS_MAX, PAUSE_S, through
from logstore.errors import (
    CommittedError,
    CommittedInterrupt,
    DiskFullError,
    LockTimeoutError,
    ReadOnlyError,
)
from logstore.options import SYNC_RANK, Sync


class ThreadUse(threading.local):
    """What one thread does in the store.

    The flags are set and cleared by plain stores of an attribute, which no interrupt can fall into.
    """

    now = False  # it is inside a call
    since_ns = 0  # since when that was wanted (``time.monotonic_ns``); 0: since it was called


class Committer:
    """Runs operations as commits, for all threads of this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.queue = CommitQueue(engine)
        self._local = engine.calls = ThreadUse()
        self._rank = SYNC_RANK[engine.options.sync]
        self._timeout_ns = int(engine.options.lock_timeout_s * 1e9)
        self.mutex = engine.mutex  # held by the leader; others take it for work under LOCK

    def run(
        self,
        op: Op,
        sync: Sync | None = None,
        args: tuple[Any, ...] = (),
        dead: list[Any] | None = None,
        *,
        grows: bool = False,
        at_once: bool = False,
    ) -> Any:
        """Decide, apply and commit one operation; its result.

        ``op`` is called under LOCK with the write transaction and ``args``; more than once, if the
        commit must be decided again. It raises what ``op`` raises, and then nothing happened;
        LockTimeoutError; CommittedError, if it happened and something failed later. ``dead`` takes
        what the operation dead-lettered, once it is committed. ``grows``: it may add to the store,
        and is refused where the index took what was set aside on a full disk, to follow. With
        ``at_once`` it does not wait:
        ``NotFree``, and nothing happened, if another thread or process commits, or if the disk
        would have to be waited for (``always``, a new segment).
        """
        local, lane = self._local, self._engine.lane
        if local.now or (lane is not None and lane.locked) or self._engine.options.readonly:
            self._check_call()
        rank = self._rank
        if sync is not None:
            rank = max(rank, SYNC_RANK[sync])
        began_ns = time.monotonic_ns()
        if local.since_ns and self.queue.stalled:
            began_ns = local.since_ns
        request = Request(op, args, rank, began_ns + self._timeout_ns)
        if grows:
            request.grows = True
        if at_once:
            request.at_once = True
        local.now = True
        try:
            self.queue.submit(request)
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
        error = request.error
        if error is not None:
            try:
                raise error
            finally:
                # Its frames refer to the request: they would live until a garbage collection, and
                # with them the index that was valid then, mapped and on the disk.
                request.error = error = None
        if dead is not None:
            dead += request.dead
        return request.result

    def free(self, op: Op, sync: Sync | None = None, dead: list[Any] | None = None) -> Any:
        """``run`` for what gives space back: on a full disk once more, in the space set aside."""
        try:
            return self.run(op, sync, dead=dead)
        except DiskFullError:
            if not disk_space.release(self._engine):
                raise
            return self.run(op, sync, dead=dead)

    def leave_sealed(self) -> None:
        """Close the segment that was active if others went on to a new one: compaction may have
        removed it, and its bytes stay on the disk as long as it is open.
        """
        engine = self._engine
        if engine.active is not None and engine.active_number != engine.wake.log().active_segment:
            with self.locked(follow=False) as words:
                left = engine.leave_sealed_locked(words.active_segment)
            if left is not None:  # the last user of a file that was removed waits for its blocks
                left.close()

    @contextmanager
    def locked(self, *, follow: bool = True) -> Iterator[LogWords]:
        """The mutex and LOCK, the tail checked: for work that must not meet a commit.

        The index has all that is published then; but without ``follow`` it may lag behind it, for
        who neither reads the index nor copies it, and must not fail where that cannot be written.
        """
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
                                words = ready_locked(engine, careful=True)
                                if follow:
                                    words = write_back.follow_locked(engine, words)
                                yield words
                            return
                    finally:
                        through(engine.lock.release, engine.wake)
                time.sleep(PAUSE_S)
        finally:
            self._local.now = False

    @contextmanager
    def wanted_since(self, since_ns: int) -> Iterator[None]:
        """What this thread commits in the block was wanted since then (``time.monotonic_ns``): for
        work that stood in a queue of the caller's.

        If the requests before it waited for LOCK in vain, it waits for so much less, so that their
        time-outs and its own do not add up. If they did not, it stood behind work, and has all its
        time.
        """
        self._local.since_ns = since_ns
        try:
            yield
        finally:
            self._local.since_ns = 0

    @property
    def calls(self) -> ThreadUse:
        """What the thread that looks does in this store: for a lane beside this."""
        return self._local

    @property
    def busy(self) -> bool:
        """Whether this thread is inside a call of this store, also one beside the pipeline."""
        return self._engine.is_inside()

    def _check_call(self) -> None:
        self._engine.refuse_inside()
        if self._engine.options.readonly:
            raise ReadOnlyError("the store was opened with readonly=True: open it for writing")

    # -- interrupts ---------------------------------------------------------------------------
    def _rescue(self, request: Request, exc: BaseException) -> None:
        """Bring an interrupted call to its end; the request has its outcome then."""
        failed = False
        for _ in range(INTERRUPTS_MAX):
            try:
                if self.queue.leader is request:
                    self._rescue_leader(request, exc)
                elif self._rescue_waiter(request, exc):
                    self.queue.lead()
                break
            except KeyboardInterrupt:
                continue  # once more: every step can be repeated
            except Exception:
                if failed:  # the disk, or another process, does not let it end
                    raise
                failed = True  # else its error would hide a commit that counts, and the lead stay
        if isinstance(exc, KeyboardInterrupt) and request.error is not None:
            if not isinstance(request.error, CommittedError):
                request.error = exc  # refused and interrupted: nothing happened
        elif request.done and request.error is None:
            request.error = _behind(request, exc)

    def _rescue_leader(self, request: Request, exc: BaseException) -> None:
        batch = self.queue.batch
        if batch is None:
            batch = Batch([])
        engine = self._engine
        with self.mutex:
            try:
                if batch.number and not batch.over:  # interrupted again while it was resolved
                    engine.lock.acquire(engine.wake, engine.options.lock_timeout_s)
                    resolve(engine, batch, exc)
            except LockTimeoutError as second:
                doubt = CommittedError(
                    f"the commit may be in the log, which could not be looked at: {second}; do not "
                    "repeat the call before the store was opened again"
                )
                batch.fail(doubt, exc)
            finally:
                if not engine.closed:
                    engine.lock.release(engine.wake)
        if not batch.over:
            # Nothing of it happened. Requests that were not interrupted are the next again.
            with self.queue.guard:
                others = [other for other in batch.requests if other is not request]
                for other in reversed(others):
                    other.taken = False
                    if other not in self.queue.queue:
                        self.queue.queue.appendleft(other)
                if request in self.queue.queue:
                    self.queue.queue.remove(request)
                request.fail(exc)
                batch = self.queue.batch = Batch([request])
                batch.over = True
        self.queue.hand_on(batch)

    def _rescue_waiter(self, request: Request, exc: BaseException) -> bool:
        """Withdraw, or wait for the outcome; True if this thread must lead."""
        with self.queue.guard:
            # It may have got the lead since it was looked whether it has: who then only withdraws
            # takes the lead along, and all others wait until their time is over.
            leads = self.queue.leader is request
            if not leads and not request.taken:
                if request in self.queue.queue:
                    self.queue.queue.remove(request)
                request.fail(exc)
                return False
            if request.turn is None:  # interrupted right behind queueing up
                request.turn = threading.Lock()
        if leads:
            self._rescue_leader(request, exc)
            return False
        return not request.done and self.queue.wait(request)


def _behind(request: Request, exc: BaseException) -> BaseException:
    """The error of a request that is done, and then this came: does it count?"""
    counts: BaseException
    if isinstance(exc, KeyboardInterrupt):
        counts = CommittedInterrupt("interrupted; the commit counts")
    elif not isinstance(exc, Exception) or not request.wrote:
        return exc  # there is nothing of it that could count
    else:
        counts = CommittedError(f"the commit counts, do not repeat it; then: {exc!r}")
    counts.__cause__ = exc
    return counts


__all__ = ["Batch", "Committer", "NotFree", "Op", "Request", "ready_locked"]
