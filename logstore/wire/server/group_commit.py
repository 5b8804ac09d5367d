"""Group commit across connections: what clients want to change is collected, and committed once.

Whoever has changes to make hands them in; in the next turn of the event loop all that were handed
in run as one commit, in the order in which they came, but plain adds beside the pipeline, each by
itself, as long as that can be. Small ones run in the loop's own thread, if nobody else commits just
then, since a thread costs more than the commit; all others run in a thread, and what comes
meanwhile is the next commit.

Invariants: a client is told of a change only when its commit is complete, and as durable as the
policy says; one commit of a store is under way at a time, so that changes of one client, handed in
one after the other, are made in that order; every one that is handed in is told, once, unless its
client went before it was taken, or the server ends; the loop never waits for LOCK, another thread
or a sync. Of what waits for LOCK, each waits as long as if it had come alone, and no longer.
Knows no connection.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias

from logstore.engine.commit.committer import NotFree
from logstore.ids import StreamID
from logstore.wire.resp.outgoing import Owed
from logstore.wire.resp.reply import Failure, Reply
from logstore.wire.runner import SLOW_PAUSE_S, SLOW_S, Outcome, Runner, light_rows, plain_fields
from logstore.wire.steps import Step
from logstore.wire.together import Run

SHARED_MAX_STEPS = 1000  # of one commit, unless one client alone has more
LIGHT_ROWS = 256  # that are added in the loop's thread: about a millisecond
SLOW_PAUSES = 4.0  # times as long as it took, if that is less
TOGETHER_NS = 100_000_000  # who came later than that behind the first waits for LOCK by itself
Told: TypeAlias = Callable[[Outcome], object]


class HandedIn:
    """One client's steps, until they are told."""

    __slots__ = ("over", "rows", "run", "since_ns", "told")

    def __init__(self, steps: Sequence[Step], owed: Owed, told: Told) -> None:
        self.run = Run(steps, owed)
        self.told = told
        self.since_ns = time.monotonic_ns()
        self.over = False  # the client went: nothing of it is begun, and nobody is told
        self.rows = 0  # that it adds, if it does nothing else
        for step in steps:
            rows = light_rows(step)
            if not rows:
                self.rows = LIGHT_ROWS + 1
                break
            self.rows += rows


class GroupCommit:
    """The shared commits of one store, for the clients of an event loop."""

    def __init__(self, runner: Runner, threads: ThreadPoolExecutor) -> None:
        self._runner = runner
        self._threads = threads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[HandedIn] = deque()
        self._expected = False  # a turn is about to come, or a thread commits
        self._threads_until = 0.0  # the loop commits nothing itself before then
        self._beside = False  # the add before went beside the pipeline

    async def run(self, steps: Sequence[Step], owed: Owed) -> list[Reply]:
        """Hand in, and wait: the replies of the first of the steps, perhaps of none.

        Raises what ends the client's connection.
        """
        future: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        handed = self.hand_in(steps, owed, partial(_settle, future))
        try:
            return await future
        finally:
            handed.over = True

    def hand_in(self, steps: Sequence[Step], owed: Owed, told: Told) -> HandedIn:
        """Commit the steps with those of others; ``told``, in the loop, of what became of them."""
        handed = HandedIn(steps, owed, told)
        self._waiting.append(handed)
        self._expect()
        return handed

    def plain_add(self, key: bytes, fields: dict[bytes, bytes]) -> StreamID | Failure | None:
        """Commit a plain add now, and by itself; its ID, or what failed it. None, and nothing
        happened: others stand before it, or it has to wait, and is to be handed in."""
        if self._expected:
            return None
        begun = time.monotonic()
        if begun < self._threads_until:
            return None
        added = self._runner.plain_add(key, fields)
        self._note_slow(begun)
        if added is not None:
            self._beside = True
        return added

    def one_now(self, steps: Sequence[Step], owed: Owed) -> Outcome | None:
        """Commit one light step now, and by itself, behind adds that went beside the pipeline: a
        node is full, or the index follows. Those behind it, of other clients, go on as before; if
        it were handed in, they would have to be, too. None, and nothing happened: hand it in."""
        begun = time.monotonic()
        if self._expected or not self._beside or begun < self._threads_until:
            return None
        if len(steps) > 1 or light_rows(steps[0]) != 1:
            return None
        self._beside = False  # the next one that is refused in a row shares its commit
        try:
            outcome = self._runner.share([Run(steps, owed)], at_once=True)[0]
        except NotFree:
            return None
        self._note_slow(begun)
        return outcome

    def _note_slow(self, begun: float) -> None:
        """If the loop has committed for long, those behind it go to a thread for a while."""
        ended = time.monotonic()
        if ended - begun > SLOW_S:
            self._threads_until = ended + min(SLOW_PAUSE_S, SLOW_PAUSES * (ended - begun))

    def close(self) -> None:
        """Begin nothing more."""
        self._waiting.clear()

    def _expect(self) -> None:
        if not self._expected:
            self._expected = True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Commit what was handed in, here or in a thread."""
        taken: Sequence[HandedIn] = self._take()
        begun = time.monotonic()
        if begun >= self._threads_until and sum(handed.rows for handed in taken) <= LIGHT_ROWS:
            taken = self._here(taken)
            self._note_slow(begun)
        if taken:
            self._in_thread(taken)
        else:
            self._go_on()

    def _here(self, taken: Sequence[HandedIn]) -> Sequence[HandedIn]:
        """Commit in the loop's thread, and tell; the rest, of which nothing happened, if what is
        wanted is not free. Plain adds are commits of their own as long as they go beside the
        pipeline, where each costs less than its part of a shared one."""
        alone = 0
        for handed in taken:
            plain = plain_fields(handed.run.steps)
            added = None if plain is None else self._runner.plain_add(*plain)
            if added is None:
                break
            alone += 1
            self._tell([handed], [[bytes(added) if isinstance(added, StreamID) else added]])
        taken = taken[alone:]
        if not taken:
            return taken
        try:
            outcomes = self._runner.share([handed.run for handed in taken], at_once=True)
        except NotFree:
            return taken
        self._tell(taken, outcomes)
        return ()

    def _in_thread(self, taken: Sequence[HandedIn]) -> None:
        """Commit in a thread; what comes meanwhile is the next commit."""
        assert self._loop is not None
        runs = [handed.run for handed in taken]
        work = partial(self._runner.since, taken[0].since_ns, self._runner.share, runs)
        running = self._loop.run_in_executor(self._threads, work)
        running.add_done_callback(partial(self._ran, taken))

    def _take(self) -> list[HandedIn]:
        """Those whose turn it is: in their order, as many as one commit is to have."""
        waiting, taken, steps = self._waiting, list[HandedIn](), 0
        while waiting:
            handed = waiting[0]
            if not handed.over:
                steps += len(handed.run.steps)
                if taken and (
                    steps > SHARED_MAX_STEPS or handed.since_ns > taken[0].since_ns + TOGETHER_NS
                ):
                    break
                taken.append(handed)
            waiting.popleft()
        return taken

    def _ran(self, taken: Sequence[HandedIn], running: asyncio.Future[list[Outcome]]) -> None:
        """A thread has committed."""
        if running.cancelled():  # the server ends
            return
        error = running.exception()
        if error is None:
            self._tell(taken, running.result())
        else:
            ends = error if isinstance(error, Exception) else RuntimeError(repr(error))
            self._tell(taken, [ends] * len(taken))
        self._go_on()

    def _go_on(self) -> None:
        """The commit is told, also to who handed in more meanwhile: now that may have its turn."""
        self._expected = False
        if self._waiting:
            self._expect()

    def _tell(self, taken: Sequence[HandedIn], outcomes: Sequence[Outcome]) -> None:
        """Tell each."""
        for handed, outcome in zip(taken, outcomes, strict=True):
            if not handed.over:
                handed.told(outcome)


def _settle(future: asyncio.Future[list[Reply]], outcome: Outcome) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
