"""Reads that take turns: slices of many reads, in the loop's thread, a few in each of its rounds.

A read that is not through with its first slice stands in one of two queues: those that had few
slices, and those that had many. Each slice goes to the first of them, but every fourth to the
second, if there is one; within a queue they go round. So a short read stands behind a slice or two
of the long ones, however many these are, and a long one goes on however many short ones come. A
slice that would have to wait, for the index to be opened anew or because the disk is slow, is read
in a thread, and the others go on.

Invariants: nothing of a read is held between two slices but its place and its reply so far; one
read has one slice at a time; a read whose client has gone has no second slice (the first is for
those that send a request and nothing behind it); after ``ROUND_S`` whoever else waits for the loop
has it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter

from logstore.wire.command_runner import Reading, Runner
from logstore.wire.resp.outgoing import ConnectionCut
from logstore.wire.resp.reply import Reply

ROUND_S = 0.001
FEW_SLICES = 4
LONG_EACH = 4  # every so many slices one is of a read that had many


class _Turn:
    """A read that waits for its next slice."""

    __slots__ = ("future", "gone", "reading", "runner", "slices")

    def __init__(
        self,
        runner: Runner,
        reading: Reading,
        gone: Callable[[], bool],
        future: asyncio.Future[Reply],
    ) -> None:
        self.runner, self.reading, self.gone, self.future = runner, reading, gone, future
        self.slices = 0


class ReadTurns:
    """The turns of one event loop."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._short: deque[_Turn] = deque()
        self._long: deque[_Turn] = deque()
        self._count = 0
        self._running = False

    async def read(self, runner: Runner, reading: Reading, gone: Callable[[], bool]) -> Reply:
        """Read on to the end; its reply. ``ConnectionCut`` once ``gone`` says that nobody waits."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._put(_Turn(runner, reading, gone, future))
        return await future

    def _put(self, turn: _Turn) -> None:
        (self._short if turn.slices < FEW_SLICES else self._long).append(turn)
        if not self._running:
            self._running = True
            turn.future.get_loop().call_soon(self._round, turn.future.get_loop())

    def _next(self) -> _Turn | None:
        self._count += 1
        if self._long and not (self._short and self._count % LONG_EACH):
            return self._long.popleft()
        return self._short.popleft() if self._short else None

    def _round(self, loop: asyncio.AbstractEventLoop) -> None:
        end = perf_counter() + ROUND_S
        while (turn := self._next()) is not None:
            if not turn.future.done():  # else its connection has ended
                self._slice(turn)
            if perf_counter() > end:
                break
        if self._short or self._long:
            loop.call_soon(self._round, loop)  # behind what came meanwhile
        else:
            self._running = False

    def _slice(self, turn: _Turn) -> None:
        """Read the next slice of one, here or in a thread."""
        turn.slices += 1
        reading = turn.reading
        try:
            if reading.begun and turn.gone():
                raise ConnectionCut("the client went, or the server ends")
            over = turn.runner.slice_at_once(reading)
        except Exception as exc:  # noqa: BLE001  who waits for it raises it
            turn.future.set_exception(exc)
            return
        if over:
            turn.future.set_result(reading.reply)
        elif reading.waits:
            work = partial(reading.go_on, at_once=False)
            running = turn.future.get_loop().run_in_executor(self._threads, work)
            running.add_done_callback(partial(self._read, turn))
        else:
            self._put(turn)

    def _read(self, turn: _Turn, running: asyncio.Future[bool]) -> None:
        """A thread has read a slice."""
        if turn.future.done() or running.cancelled():
            return
        error = running.exception()
        if error is not None:
            turn.future.set_exception(error)
        elif running.result():
            turn.future.set_result(turn.reading.reply)
        else:
            self._put(turn)
