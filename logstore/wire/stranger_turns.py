"""Work for clients that are not logged in, in small pieces: the others are served in between.

Whoever has work for such a client asks for a turn; each round of the event loop gives a few turns,
in the order they were asked for. A round that took long, with all that it set off, is followed by a
pause of the same length: of the loop's time those clients have at most half, however many they are.

Invariants: a turn that was asked for comes, unless the loop ends; none comes at once, so asking
never calls back. Knows no connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

log = logging.getLogger("logstore.server")
ROUND_TURNS = 4
ROUND_S = 0.001  # no further turn in a round that took so long
PAUSE_MIN_S = 0.0005  # shorter rounds follow each other at once
PAUSE_MAX_S = 0.05


class Turns:
    """The turns of one event loop."""

    def __init__(self) -> None:
        self._queue: deque[Callable[[], object]] = deque()
        self._running = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def ask(self, work: Callable[[], object]) -> None:
        """Call ``work`` when its turn comes."""
        self._queue.append(work)
        if not self._running:
            self._running = True
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._round)

    async def wait(self) -> None:
        """Until the caller's turn comes."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def give() -> None:
            if not turn.done():
                turn.set_result(None)

        self.ask(give)
        await turn

    def _round(self) -> None:
        assert self._loop is not None
        begun = time.perf_counter()
        for _ in range(min(ROUND_TURNS, len(self._queue))):
            try:
                self._queue.popleft()()
            except Exception:  # one client's turn must not end those of the others
                log.exception("a turn failed")
            if time.perf_counter() - begun > ROUND_S:
                break
        # Behind the tasks that the turns have woken, so that their time is counted, too.
        self._loop.call_soon(self._pause, begun)

    def _pause(self, begun: float) -> None:
        assert self._loop is not None
        took_s = time.perf_counter() - begun
        if not self._queue:
            self._running = False
        elif took_s < PAUSE_MIN_S:
            self._loop.call_soon(self._round)
        else:
            self._loop.call_later(min(took_s, PAUSE_MAX_S), self._round)
