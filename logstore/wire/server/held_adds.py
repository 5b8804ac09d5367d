"""Group commit across connections: changes of clients are collected, and committed once.

A change has two ways to its commit. *Alone*: a plain change is committed beside the pipeline, where
it stands, if no other change stands before it; plain adds of clients that take turns are held until
the loop's turn ends, and share one commit. *Together*: other changes are handed in, and run as one
commit in the next turn of the event loop, in the order in which they came. Small ones run in the
loop's thread, if no other commit is under way, since a thread costs more than the commit. Large
ones, by rows or bytes, and those of unknown size run in a thread; what comes meanwhile is the next
commit.

Invariants: a client gets the outcome of a change only when its commit is complete, and as durable
as the policy says. A store has one commit under way at a time, so that changes of one client are
made in the order in which they were handed in. Each one that is handed in gets one outcome, unless
its client went before the commit took it, or the server ends. The loop never waits for LOCK,
another thread or a sync. A change that waits for LOCK waits as long as if it had come alone.
Knows no connection.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from logstore.engine.commit.committer import NotFree
from logstore.ids import StreamID
from logstore.wire.command_runner import (
    NOT_RUN,
    NotRun,
    Outcome,
    Runner,
    Slowness,
    cost_of,
)
from logstore.wire.resp.outgoing import Output
from logstore.wire.resp.reply import Reply
from logstore.wire.steps import Beside, CommandStep
from logstore.wire.together import ClientSteps

if TYPE_CHECKING:
    from logstore.api.opening import OpenStore

SHARED_MAX_STEPS = 1000  # of one commit, unless one client alone has more
LIGHT_COST = 256  # rows that are written in the loop's thread: about a millisecond
HELD_MAX_ADDS = 64  # that go to the lane at once: no more may
TOGETHER_NS = 100_000_000  # who came later than that behind the first waits for LOCK by itself
OnOutcome: TypeAlias = Callable[[Outcome], object]


class HandedIn:
    """One client's steps, until it knows their outcome."""

    __slots__ = ("cost", "on_outcome", "over", "run", "since_ns")

    def __init__(self, steps: Sequence[CommandStep], output: Output, on_outcome: OnOutcome) -> None:
        self.run = ClientSteps(steps, output)
        self.on_outcome = on_outcome
        self.since_ns = time.monotonic_ns()
        self.over = False  # the client went: nothing of it is begun, and nobody is called
        self.cost = 0  # of all steps
        for step in steps:
            cost = cost_of(step)
            if not cost:
                self.cost = LIGHT_COST + 1
                break
            self.cost += cost


class HeldAdd(NamedTuple):
    """One client's plain add. Its outcome: its ID, the error, or that it was not run."""

    key: bytes
    fields: dict[bytes, bytes]
    on_outcome: Callable[[Reply | NotRun], object]


class GroupCommit:
    """The shared commits of one store, for the clients of an event loop."""

    def __init__(self, runner: Runner, threads: ThreadPoolExecutor) -> None:
        self._runner = runner
        self._threads = threads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[HandedIn] = deque()
        self._expected = False  # a turn is about to come, or a thread commits
        self._slow = Slowness()  # of commits in the loop's thread
        self._held: list[HeldAdd] = []
        self._added_last = 0  # whose plain add came last: an identity
        self.took_ns = 0  # the commit beside the pipeline that was made last, each add of it

    async def run(self, steps: Sequence[CommandStep], output: Output) -> list[Reply]:
        """Hand in, and wait: the replies of the first of the steps, perhaps of none.

        Raises what ends the client's connection.
        """
        future: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        handed = self.hand_in(steps, output, partial(_settle, future))
        try:
            return await future
        finally:
            handed.over = True

    def hand_in(
        self, steps: Sequence[CommandStep], output: Output, on_outcome: OnOutcome
    ) -> HandedIn:
        """Commit the steps with those of others; ``on_outcome`` is called in the loop."""
        handed = HandedIn(steps, output, on_outcome)
        self._waiting.append(handed)
        self._expect()
        return handed

    def alone(self, work: Beside) -> Reply | NotRun:
        """What a commit beside the pipeline gives, made now; ``NOT_RUN``, and nothing happened:
        others stand before it, or it has to wait, and is to be handed in."""
        if self._expected or (self._slow.ever and self._slow.now):
            return NOT_RUN
        begun_ns = time.perf_counter_ns()
        done = self._runner.beside(work)
        self.took_ns = self._slow.note(begun_ns)
        return done

    def come_by_turns(self, client: object) -> bool:
        """Note whose plain add comes now; whether the one before was another client's, so that this
        one is to be held for those of others."""
        before, self._added_last = self._added_last, id(client)
        return before not in (self._added_last, 0)

    def hold(self, add: HeldAdd) -> None:
        """Commit a plain add with others that come in this turn of the loop."""
        if not self._held:
            asyncio.get_running_loop().call_soon(self._add_held)
        self._held.append(add)

    def _add_held(self) -> None:
        """Commit what is held, and tell each: what is not plain has to be handed in."""
        held, self._held = self._held, []
        for at in range(0, len(held), HELD_MAX_ADDS):
            some, ids = held[at : at + HELD_MAX_ADDS], list[StreamID | None]()
            entries = [(add.key, add.fields, None) for add in some]
            failed = self.alone(partial(_add_each, entries, ids))
            self.took_ns //= len(some)
            for place, add in enumerate(some):
                id = ids[place] if place < len(ids) else NOT_RUN
                add.on_outcome(failed if id is None else id)

    def close(self) -> None:
        """Begin nothing more."""
        self._waiting.clear()
        self._held.clear()

    def _expect(self) -> None:
        if not self._expected:
            self._expected = True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Commit what was handed in, here or in a thread."""
        taken: Sequence[HandedIn] = self._take()
        if not self._slow.now and sum(handed.cost for handed in taken) <= LIGHT_COST:
            begun_ns = time.perf_counter_ns()
            taken = self._here(taken)
            self._slow.note(begun_ns)
        if taken:
            self._in_thread(taken)
        else:
            self._go_on()

    def _here(self, taken: Sequence[HandedIn]) -> Sequence[HandedIn]:
        """Commit in the loop's thread, and tell; all of them, of which nothing happened, if what is
        wanted is not free."""
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
        """Give out the outcome; a client that handed in more meanwhile may have its turn then."""
        self._expected = False
        if self._waiting:
            self._expect()

    def _tell(self, taken: Sequence[HandedIn], outcomes: Sequence[Outcome]) -> None:
        """Tell each."""
        for handed, outcome in zip(taken, outcomes, strict=True):
            if not handed.over:
                handed.on_outcome(outcome)


def _add_each(entries: list[Any], ids: list[StreamID | None], opened: OpenStore[bytes]) -> None:
    opened.add_each_plain(entries, ids)


def _settle(future: asyncio.Future[list[Reply]], outcome: Outcome) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
