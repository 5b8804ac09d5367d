"""Plain adds of one connection, from their bytes to their replies, without waking its task.

Most of what a server is asked is one add after another, and a task that is woken for each costs
more than the request. So while a connection's task waits for requests, what comes is looked at
here: one short plain add is committed and answered at once, if that can be beside the pipeline;
other plain adds are handed in for the next shared commit, and answered when it is told; at anything
else the task is woken, with what was read and not run yet.

Invariants: either the task runs requests of the connection, or this does, never both; requests are
run, and answered, in the order in which they came, and nothing is looked at behind what is not
answered yet; what comes meanwhile stays with the reader; a client that does not read its replies
is left to the task, which waits until it does. Knows no socket but by its transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TypeAlias

from logstore.codec import codec
from logstore.ids import StreamID
from logstore.wire.resp.outgoing import OwedBytes
from logstore.wire.resp.reply import Reply, encode
from logstore.wire.runner import NotRun, Outcome, light_rows
from logstore.wire.server.admission import Place
from logstore.wire.server.group_commit import GroupCommit, HandedIn
from logstore.wire.session import Batches
from logstore.wire.steps import Step

PIECE_MAX_BYTES = 64 * 1024  # more at once is for the task, which takes it in pieces
Runs: TypeAlias = Iterator[Sequence[Step]]


class QuickAdds:
    """The plain adds of one connection."""

    def __init__(
        self,
        place: Place,
        batches: Batches,
        transport: asyncio.WriteTransport,
        commits: Callable[[], GroupCommit],
        owe: Callable[[], OwedBytes],
    ) -> None:
        self._place = place
        self._session = place.session
        self._batches = batches
        self._transport = transport
        self._commits = commits
        self._owe = owe
        self._idle: asyncio.Future[Runs | None] | None = None  # the task waits
        self._handed: HandedIn | None = None  # a commit is to tell
        self._told_ids = codec().resp_ids
        self.check: Callable[[], object] = bool  # raises what ends the connection
        self.unread: Callable[[], bool] = bool  # the reader has something for the task

    async def until_others(self) -> Runs | None:
        """Answer plain adds until the task is needed: the runs of requests that it has to go on
        with; None: the reader has something.

        Raises what ends the connection.
        """
        self._idle = asyncio.get_running_loop().create_future()
        try:
            return await self._idle
        finally:
            self._idle = None
            if self._handed is not None:  # cancelled
                self._handed.over = True
                self._handed = None

    def took(self, data: bytes) -> bool:
        """Whether bytes that came are seen to here; else they are the reader's."""
        idle = self._idle
        if idle is None or self._handed is not None or idle.done():
            return False
        if len(data) > PIECE_MAX_BYTES or self._place.stranger or not self._session.authenticated:
            idle.set_result(None)
            return False
        try:
            only = self._batches.only_add(data)
            if only is None or not self._added(idle, *only):
                self._place.busy()
                self._begin(idle, self._batches.feed(data))
        except Exception as exc:  # noqa: BLE001  the task raises it
            idle.set_exception(exc)
        return True

    def _added(
        self, idle: asyncio.Future[Runs | None], key: bytes, fields: dict[bytes, bytes]
    ) -> bool:
        """Whether a plain add is committed, and answered, at once; if not, nothing has happened."""
        session = self._session
        added = self._commits().plain_add(key, fields)
        if added is None:
            return False
        self._place.asks()
        session.last_command = "xadd"
        counts = session.service.counts
        counts.count(1)
        if type(added) is StreamID:
            reply = self._told_ids(*added, 1)
        else:
            counts.note([added])
            reply = encode(added, session.protocol)
        transport = self._transport
        if not transport.is_closing():
            transport.write(reply)
            if transport.get_write_buffer_size():
                idle.set_result(iter(()))
        return True

    def wake(self) -> None:
        """Wake the task, as nothing comes any more; what a commit is to tell comes first."""
        if self._idle is not None and self._handed is None and not self._idle.done():
            self._idle.set_result(None)

    def _begin(self, idle: asyncio.Future[Runs | None], runs: Runs) -> None:
        """Answer the first of what came, if it is light; go on with the rest. One alone, so that a
        client has the loop for no longer, whatever it sends."""
        steps = next(runs, None)
        if steps is not None and len(steps) == 1:
            owed = self._owe()
            reply = self._session.database.runner.light(steps[0], owed)
            if not isinstance(reply, NotRun):
                self._answer([reply], owed)
                if self._transport.get_write_buffer_size():
                    idle.set_result(runs)
                    return
                steps = next(runs, None)
        self._next(idle, runs, steps)

    def _go_on(self, idle: asyncio.Future[Runs | None], runs: Runs) -> None:
        """Run what comes next, if it is plain adds; let the task do it otherwise."""
        self._next(idle, runs, next(runs, None))

    def _next(
        self, idle: asyncio.Future[Runs | None], runs: Runs, steps: Sequence[Step] | None
    ) -> None:
        if steps is None:
            self.check()
            self._place.ready()
            if self._session.closing or self.unread():
                idle.set_result(iter(()))
        elif all(map(light_rows, steps)):
            owed, commits = self._owe(), self._commits()
            told = partial(self._told, idle, runs, steps, owed)
            outcome = commits.one_now(steps, owed)
            if outcome is None:
                self._handed = commits.hand_in(steps, owed, told)
            else:
                told(outcome)
        else:
            idle.set_result(chain((steps,), runs))

    def _told(
        self,
        idle: asyncio.Future[Runs | None],
        runs: Runs,
        steps: Sequence[Step],
        owed: OwedBytes,
        outcome: Outcome,
    ) -> None:
        """The commit is complete: answer, and go on."""
        self._handed = None
        if idle.done():  # the server ends, or the connection does
            return
        try:
            if isinstance(outcome, Exception):
                raise outcome
            count = len(outcome)
            if count:
                self._answer(outcome, owed)
            if count < len(steps):
                idle.set_result(chain((steps[count:],), runs))
            elif self._transport.get_write_buffer_size():
                idle.set_result(runs)
            else:
                self._go_on(idle, runs)
        except Exception as exc:  # noqa: BLE001  the task raises it; the others are still to be told
            idle.set_exception(exc)

    def _answer(self, replies: list[Reply], owed: OwedBytes) -> None:
        session = self._session
        counts, protocol = session.service.counts, session.protocol
        counts.note(replies)
        if owed.failed:
            counts.note(owed.failed)
        sent = [encode(reply, protocol) for reply in session.sent(replies)]
        if sent and not self._transport.is_closing():
            self._transport.write(sent[0] if len(sent) == 1 else b"".join(sent))
