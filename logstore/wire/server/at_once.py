"""Requests of one connection that need no wait, answered in the loop.

Most requests are short: waking a task or a thread for each costs more than the request. So while
the task of a connection waits, its bytes are looked at here. A step that needs no store, the first
slice of a read, and a change that can be a commit beside the pipeline are done and answered at
once. Other changes are handed in for the shared commit and answered when it is through. Anything
else, and a read that needs more slices, wakes the task, which gets what was read and not run.

Invariants: requests of a connection are run by the task or here, never by both. They are run and
answered in their order; nothing is looked at behind a request that is not answered yet, and what
comes meanwhile stays with the reader. A client has the loop for about ``TURN_S``, whatever it
sends, then the others have it. A client that does not read its replies is left to the task, which
waits until it does. Knows a socket by its transport only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from time import perf_counter
from typing import TypeAlias

from logstore.codec import codec
from logstore.ids import StreamID
from logstore.wire.command_runner import NOT_RUN, NotRun, Outcome, is_shared
from logstore.wire.resp.outgoing import RUN_BYTES, OutputBytes
from logstore.wire.resp.reply import NO_REPLY, Reply, encode
from logstore.wire.server.admission import Admitted
from logstore.wire.server.held_adds import GroupCommit, HandedIn, HeldAdd
from logstore.wire.session import Batches
from logstore.wire.steps import CommandStep

PIECE_MAX_BYTES = 64 * 1024  # more at once is for the task, which takes it in pieces
TURN_S = 0.002  # that one client has before the others
Runs: TypeAlias = Iterator[Sequence[CommandStep]]


class AtOnce:
    """What one connection asks, as far as it needs no wait."""

    def __init__(
        self,
        place: Admitted,
        batches: Batches,
        transport: asyncio.WriteTransport,
        commits: Mapping[int, GroupCommit],
        output: OutputBytes,
    ) -> None:
        self._place = place
        self._others_ask = place.others_ask  # who is not logged in waits longer then
        self._session = place.session
        self._batches = batches
        self._transport = transport
        self._commits = commits  # by the numbers of databases
        self._output = output
        self._idle: asyncio.Future[Runs | None] | None = None  # the task waits
        self._amid = False  # what came is not answered yet: a commit is to tell, or others have it
        self._behind = False  # something came meanwhile, which the reader has
        self._handed: HandedIn | None = None
        self._out: list[bytes] = []  # replies that are not sent yet
        self._out_bytes = 0
        self._told_ids = codec().resp_ids
        self.check: Callable[[], object] = bool  # raises what ends the connection

    async def until_others(self) -> Runs | None:
        """Answer until the task is needed: the runs of requests that it has to go on with; None:
        the reader has something.

        Raises what ends the connection.
        """
        self._idle = asyncio.get_running_loop().create_future()
        self._behind = False
        try:
            return await self._idle
        finally:
            self._idle = None
            self._amid = False
            if self._handed is not None:  # cancelled
                self._handed.over = True
                self._handed = None

    def took(self, data: bytes) -> bool:
        """Whether bytes that came are seen to here; else they are the reader's."""
        idle = self._idle
        if idle is None or self._amid or idle.done():
            self._behind = True
            return False
        if len(data) > PIECE_MAX_BYTES or self._place.stranger or not self._session.authenticated:
            idle.set_result(None)
            return False
        batches, words = self._batches, None
        self._others_ask()
        try:
            if batches.is_short(data):
                add = batches.only_add(data)
                if add is not None and self._added(idle, data, *add):
                    return True
                words = batches.only(data)
            self._run(idle, words, data)
        except Exception as exc:  # noqa: BLE001  the task raises it
            idle.set_exception(exc)
        return True

    def wake(self) -> None:
        """Wake the task, as nothing comes any more; what came before is answered first."""
        self._behind = True
        if self._idle is not None and not self._amid and not self._idle.done():
            self._idle.set_result(None)

    def _run(
        self, idle: asyncio.Future[Runs | None], words: list[bytes] | None, data: bytes
    ) -> None:
        """Run what came: one request, if there are words of it, or all that these bytes end."""
        if words is None:
            self._go_on(idle, self._batches.feed(data))
        else:
            self._only(idle, self._session.step(words))

    # -- plain adds ---------------------------------------------------------------------------
    def _added(
        self,
        idle: asyncio.Future[Runs | None],
        data: bytes,
        key: bytes,
        fields: dict[bytes, bytes],
    ) -> bool:
        """Whether a plain add is committed, and answered, or is committed with those of other
        clients soon; if not, nothing has happened."""
        commits = self._commits[self._session.database.number]
        if commits.come_by_turns(self):
            self._amid = True
            commits.hold(HeldAdd(key, fields, partial(self._told_add, idle, data)))
            return True
        added = commits.alone(lambda opened: opened.add_plain(key, fields) or None)
        if added is NOT_RUN:
            return False
        self._tell_add(added, commits.took_ns)
        if self._transport.get_write_buffer_size():
            idle.set_result(iter(()))
        return True

    def _told_add(
        self, idle: asyncio.Future[Runs | None], data: bytes, added: Reply | NotRun
    ) -> None:
        """Answer an add that was held; run it another way if nothing of it has happened."""
        if idle.done():  # the server ends, or the connection does
            return
        self._amid = False
        try:
            if added is NOT_RUN:
                self._run(idle, self._batches.only(data), data)
            else:
                self._tell_add(added, self._commits[self._session.database.number].took_ns)
                self._rest(idle)
        except Exception as exc:  # noqa: BLE001  the task raises it; others wait for outcomes
            idle.set_exception(exc)

    def _tell_add(self, added: Reply | NotRun, took_ns: int) -> None:
        """Answer an add: its ID, or what failed it."""
        session = self._session
        session.last_command = "xadd"
        counts = session.service.counts
        counts.count(1)
        if type(added) is StreamID:
            adds = counts.adds
            adds.calls += 1
            adds.ns += took_ns
            reply = self._told_ids(*added, 1)
        else:
            assert not isinstance(added, NotRun)
            counts.called("xadd", 1, took_ns, 1)
            counts.note((added,))
            reply = encode(added, session.protocol)
        self._write(reply)

    def _only(self, idle: asyncio.Future[Runs | None], step: CommandStep) -> None:
        """Run one request, behind which nothing came."""
        output, session = self._output, self._session
        session.service.counts.count(1)
        output.begin(session.protocol)
        number, _, runner = session.database
        reply = runner.at_once(step, output, self._commits[number].alone)
        if reply is NOT_RUN:
            self._leave(idle, iter(()), (step,))
            return
        self._answer((reply,))
        self._rest(idle)

    # -- one request after the other ----------------------------------------------------------
    def _go_on(self, idle: asyncio.Future[Runs | None], runs: Runs) -> None:
        """Run what comes next, for as long as it is this client's turn."""
        self._amid = False
        output, session = self._output, self._session
        output.begin(session.protocol)
        number, _, runner = session.database
        alone = self._commits[number].alone
        end = perf_counter() + TURN_S
        for steps in runs:
            for at, step in enumerate(steps):
                reply = runner.at_once(step, output, alone)
                if reply is NOT_RUN:
                    self._leave(idle, runs, steps[at:])
                    return
                self._answer((reply,))
                if self._out_bytes >= RUN_BYTES or perf_counter() > end:
                    self._pause(idle, chain((steps[at + 1 :],), runs))
                    return
        self.check()
        self._rest(idle)

    def _rest(self, idle: asyncio.Future[Runs | None]) -> None:
        """All that came is answered: wait for more, unless that is the task's."""
        self._send()
        if self._transport.get_write_buffer_size() or self._behind or self._session.closing:
            idle.set_result(iter(()))

    def _leave(
        self, idle: asyncio.Future[Runs | None], runs: Runs, steps: Sequence[CommandStep]
    ) -> None:
        """Hand in the changes that come next; what else there is is the task's."""
        self._send()
        count = next((at for at, step in enumerate(steps) if not is_shared(step)), len(steps))
        if not count or self._transport.get_write_buffer_size():
            idle.set_result(chain((steps,), runs))
            return
        handed, behind = steps[:count], steps[count:]
        if behind:
            runs = chain((behind,), runs)
        on_outcome = partial(self._take_outcome, idle, runs, handed)
        self._amid = True
        commits = self._commits[self._session.database.number]
        self._handed = commits.hand_in(handed, self._output, on_outcome)

    def _pause(self, idle: asyncio.Future[Runs | None], runs: Runs) -> None:
        """Go on when the others had their turn, and the client has read what it was sent."""
        self._send()
        if self._transport.get_write_buffer_size():
            idle.set_result(runs)
            return
        self._amid = True
        idle.get_loop().call_soon(self._resume, idle, runs)

    def _resume(self, idle: asyncio.Future[Runs | None], runs: Runs) -> None:
        if idle.done():  # the server ends, or the connection does
            return
        try:
            self._go_on(idle, runs)
        except Exception as exc:  # noqa: BLE001  the task raises it
            idle.set_exception(exc)

    def _take_outcome(
        self,
        idle: asyncio.Future[Runs | None],
        runs: Runs,
        steps: Sequence[CommandStep],
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
                self._answer(outcome)
            if count < len(steps):
                runs = chain((steps[count:],), runs)
            if self._out_bytes >= RUN_BYTES:
                self._pause(idle, runs)
            else:
                self._go_on(idle, runs)
        except Exception as exc:  # noqa: BLE001  the task raises it; others wait for outcomes
            idle.set_exception(exc)

    # -- replies ------------------------------------------------------------------------------
    def _answer(self, replies: Sequence[Reply]) -> None:
        """Keep what is sent of these replies."""
        session, output = self._session, self._output
        counts, protocol = session.service.counts, session.protocol
        counts.note(replies)
        if output.failed:
            counts.note(output.failed)
            output.failed = []
        if session.replies != "ON":
            replies = session.sent([*replies])
        for reply in replies:
            if reply is not NO_REPLY:
                data = encode(reply, protocol)
                self._out.append(data)
                self._out_bytes += len(data)

    def _send(self) -> None:
        """Send what is kept."""
        out = self._out
        if out:
            self._write(out[0] if len(out) == 1 else b"".join(out))
            self._out, self._out_bytes = [], 0

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)
