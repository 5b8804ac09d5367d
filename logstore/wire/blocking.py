"""Reads that block until there is something, in a thread of the embedded client or in a task.

``XREADGROUP`` of new entries of one stream waits in the queue of its group, with the readers of all
processes (``engine.waiting``). Every other read is tried again when one of its streams changes. A
thread and a task differ in how they sleep (``in_thread``, ``in_task``).

Invariants: the time-out counts from the beginning of the read; nothing is held between two tries. A
client that went, or was unblocked, gives its place in the queue back. What it was handed in that
moment is pending with its consumer, as with the peers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from logstore.aio.wait import Tasks, Waiter, wait_for
from logstore.api.opening import opened_of
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups.deliver import Delivered
from logstore.engine.waiting.stream_wait import wait_streams
from logstore.engine.waiting.wait_session import GroupRead, read_group
from logstore.errors import ClosedError, Error
from logstore.wire.resp.outgoing import ConnectionCut
from logstore.wire.resp.reply import UNBLOCKED, Failed, Failure, Reply, failure_of
from logstore.wire.session import Session
from logstore.wire.steps import Block, QueuedRead, ReadStep
from logstore.wire.store_reader import StoreReader

log = logging.getLogger("logstore.server")
SMALL_ENTRIES, SMALL_BYTES = 16, 64 * 1024  # a reply so small is made in the event loop


class Unblocked(Exception):  # noqa: N818
    """The wait ended without entries: CLIENT UNBLOCK, the client went, or may read no longer."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply


class Blocked:
    """One such read, until it is answered."""

    def __init__(self, session: Session, step: Block) -> None:
        self.step = step
        timeout_ms = step.timeout_ms
        self.deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._pause_s: float | None = None  # since the last try: when to look again at the latest
        self._runner = session.database.runner
        self._output = session.output
        self._reader = StoreReader(session.database.store, session.output)
        self._session = session
        self._unblocks: list[bool] = []
        self.waited = False  # it was tried, and may be ended from now on
        self._refused: Reply = None
        self._ready: tuple[list[Delivered], Reply] | None = None  # what was read, and its reply

    # -- how it sleeps ------------------------------------------------------------------------
    def in_thread(self, deadline: float | None) -> list[Reply] | None:
        """Wait in this thread: the reply, as a list; None if ``deadline`` (of ``time.monotonic``),
        at which the client stops listening for a while, came before its own.
        """
        ends = [bound for bound in (self.deadline, deadline) if bound is not None]
        end = min(ends, default=None)
        self._begin(bool)
        try:
            replies = self._group_thread(end) if self.step.group else self._streams_thread(end)
        except Unblocked as unblocked:
            return [self._answered(unblocked.reply)]
        finally:
            self._end()
        if replies is None and (self.deadline is None or time.monotonic() < self.deadline):
            return None
        return [self._answered(self.step.empty if replies is None else replies[0])]

    def _group_thread(self, end: float | None) -> list[Reply] | None:
        try:
            entries = read_group(self._group_read(), end, self._alive, self._owner)
            return [self._replied(entries)] if entries else None
        except Unblocked:
            raise
        except Exception as exc:  # noqa: BLE001
            return [_failed(exc)]

    def _streams_thread(self, end: float | None) -> list[Reply] | None:
        engine = opened_of(self._session.database.store).engine()
        return wait_streams(
            engine, self.step.keys, self._attempt, end, self._alive, lambda: self._pause_s
        )

    async def in_task(
        self,
        tasks: Tasks,
        slice_s: float,
        read: Callable[[ReadStep], Awaitable[Reply]] | None = None,
    ) -> Reply:
        """Wait as a task: the reply; ``Unblocked`` with the one that ends it otherwise.

        Args:
            tasks: of the loop; its threads run what commits.
            slice_s: how long to sleep at most, should nobody wake it.
            read: runs a look, in turns with others; None: the threads of ``tasks`` do.
        """
        try:
            if self.step.group:
                return self._answered(await self._group_task(tasks, slice_s))
            return self._answered(await self._streams_task(tasks, slice_s, read))
        except ClosedError as exc:
            return self._answered(failure_of(exc))
        except Unblocked as unblocked:
            self._answered(unblocked.reply)
            raise
        finally:
            self._end()

    def _answered(self, reply: Reply) -> Reply:
        """The reply, which its request is told of."""
        request = self.step.attempt.request
        if request is not None:
            request.ended()
            if type(reply) is Failure:
                request.failed()
        return reply

    async def _group_task(self, tasks: Tasks, slice_s: float) -> Reply:
        try:
            entries = await tasks.read(
                self._group_read(),
                self._owner,
                self.deadline,
                alive=self._alive,
                begun=self._begun,
                most_s=slice_s,
            )
            if not entries:
                return self.step.empty
            if self._made(entries) is not None or _is_small(entries):
                return self._replied(entries)
            made: Reply = await tasks.run(lambda: self._replied(entries))
            return made
        except (Unblocked, ConnectionCut, ConnectionError):
            raise
        except Exception as exc:  # noqa: BLE001
            return _failed(exc)

    async def _streams_task(
        self,
        tasks: Tasks,
        slice_s: float,
        read: Callable[[ReadStep], Awaitable[Reply]] | None,
    ) -> Reply:
        def pause_s() -> float:
            return slice_s if self._pause_s is None else min(slice_s, self._pause_s)

        look = self.step.attempt
        in_turns = read is not None and isinstance(look, ReadStep)

        def attempt() -> Awaitable[list[Reply] | None]:
            if read is not None and isinstance(look, ReadStep):
                return self._attempt_in_turns(partial(read, look))
            return tasks.run(self._attempt)

        # Where it begins ("$") is settled before anybody knows that it waits.
        if in_turns and (found := await attempt()) is not None:
            return found[0]
        replies = await wait_for(
            tasks.watcher,
            self.step.keys,
            attempt,
            self.deadline,
            pause_s=pause_s,
            alive=self._unblocked,
            begun=lambda waiter: self._begin(waiter.wake),
        )
        return self.step.empty if replies is None else replies[0]

    # -- what it reads ------------------------------------------------------------------------
    def _attempt(self) -> list[Reply] | None:
        """Try once: the reply, as a list; None if there is nothing, and the client is there."""
        step = self.step
        self._output.size = 0
        if step.worth is None or step.worth(self._reader):
            if self.waited:
                self._check_rights()
            replies = self._runner.run([step.attempt], self._output)
            if replies[0] is not step.empty:
                return replies
        self._waits()
        pause_ms = None if step.pause_ms is None else step.pause_ms(self._reader)
        self._pause_s = None if pause_ms is None else pause_ms / 1000
        return None

    async def _attempt_in_turns(self, read: Callable[[], Awaitable[Reply]]) -> list[Reply] | None:
        """The same of a read that commits nothing."""
        self._output.size = 0
        if self.waited:
            self._check_rights()
        reply = await read()
        if reply is not self.step.empty:
            return [reply]
        self._waits()
        return None

    def _waits(self) -> None:
        """There is nothing yet. Who went before it began is not waited for."""
        self.waited = True
        self._check()

    @property
    def _group(self) -> QueuedRead:
        assert self.step.group is not None
        return self.step.group

    @property
    def _owner(self) -> tuple[object, bytes]:
        """What keeps a place in the queue over time-outs, for as long as the client is there."""
        session = self._session
        session.kept_in.add(opened_of(session.database.store).engine().wake.waits.saved)
        return session, self._group.consumer

    def _group_read(self) -> GroupRead:
        read, opened = self._group, opened_of(self._session.database.store)
        shared = opened.live()
        return GroupRead(
            shared.engine,
            shared.committer,
            read.stream,
            read.group,
            read.consumer,
            self._once,
            opened.commit_telling,
            read.limit,
            read.asked_idle_ms,
            read.noack,
            capped=True,  # also by what the client may owe
            measured=read.measured,
        )

    def _once(self, txn: WriteTxn, takes_new: bool = True) -> list[Delivered]:
        """The read, inside of its commit: a reply that is too large undoes it."""
        if self.waited:
            self._check_rights()
        begun_ns = time.perf_counter_ns()
        try:
            entries = self._group.once(txn, takes_new)
        finally:
            if self.step.attempt.request is not None:
                self.step.attempt.request.took(begun_ns)
        if entries:
            self._output.size = 0
            self._ready = entries, self._output.made(self._group.reply(entries))
        return entries

    def _made(self, entries: list[Delivered]) -> Reply:
        """The reply, if it was made when these were read; None: another handed them to it."""
        return self._ready[1] if self._ready is not None and self._ready[0] is entries else None

    def _replied(self, entries: list[Delivered]) -> Reply:
        """The reply that tells of these."""
        made = self._made(entries)
        if made is None:  # another commit handed them to it: they are pending, whatever comes
            self._check_rights()
            self._output.size = 0
            made = self._output.made(self._group.reply(entries))
        return made

    # -- what ends it -------------------------------------------------------------------------
    def _begin(self, wake: Callable[[], object]) -> None:
        """From now on CLIENT UNBLOCK may end it; it calls ``wake`` then."""

        def unblock(with_error: bool) -> None:
            self._unblocks.append(with_error)
            wake()

        self._session.unblock, self._session.look_again = unblock, wake

    def _begun(self, waiter: Waiter) -> None:
        self.waited = True
        self._begin(waiter.wake)

    def _end(self) -> None:
        self._session.unblock = self._session.look_again = None

    def _check(self) -> None:
        """``Unblocked`` once it was; who went before it began has one try, as with the peers."""
        if self._unblocks or (self.waited and self._session.gone):
            raise Unblocked(Failure(UNBLOCKED) if any(self._unblocks[:1]) else self.step.empty)

    async def _unblocked(self) -> None:
        """Asked in the loop whenever it was woken: threads may all be waiting for LOCK."""
        self._check()

    def _check_rights(self) -> None:
        """``Unblocked`` with the refusal, if the user lost the right meanwhile."""
        if self._refused is None and self.step.refusal is not None:
            self._refused = self.step.refusal()  # which notes it, so only once
        if self._refused is not None:
            raise Unblocked(self._refused)

    def _alive(self) -> None:
        """Asked when it begins to wait, whenever it was woken, and by a thread once a slice."""
        opened_of(self._session.database.store).engine()
        self.waited = True  # it had its first try
        self._check()
        if self.step.group:
            self._check_rights()


def _failed(exc: Exception) -> Reply:
    """The reply of a read of a group that failed."""
    if not isinstance(exc, Error | Failed):
        log.error("a command failed", exc_info=exc)
    return failure_of(exc)


def _is_small(entries: list[Delivered]) -> bool:
    if len(entries) > SMALL_ENTRIES:
        return False
    return sum(len(item) for entry in entries for item in entry.items or ()) <= SMALL_BYTES
