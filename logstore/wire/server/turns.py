"""Work for clients that are not logged in, in small pieces: the others are served in between.

Whoever has work for such a client asks for a turn; each round of the event loop gives a few turns,
in the order they were asked for. A round that took long, with all that it set off, is followed by a
pause: three times as long while others are busy, so that those clients have a quarter of the loop's
time at most, however many they are; as long as itself while nobody else asks for anything.

``Watch`` tells which of their sockets can be read, a few at a time and in a turn: of a thousand
that send something, or go, in the same moment the loop itself hears nothing.

Invariants: a turn that was asked for comes, unless the loop ends; none comes at once, so asking
never calls back; a socket is told once, and then not before it is watched again. Knows no
connection.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

log = logging.getLogger("logstore.server")
ROUND_TURNS = 4
ROUND_S = 0.001  # no further turn in a round that took so long
PAUSE_MIN_S = 0.001  # less is added up: the loop's timers are no finer
PAUSE_MAX_S = 0.05
COUNTED_MAX_S = 0.004  # of a round: others' work falls into it, too
PAUSES = 3.0  # as long as the rounds before it, while others are busy
PAUSES_ALONE = 1.0
BUSY_S = 0.1  # others are, for so long after they asked for something


class Turns:
    """The turns of one event loop."""

    def __init__(self) -> None:
        self._queue: deque[Callable[[], object]] = deque()
        self._running = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked_s = float("-inf")  # when others asked for something
        self._owed_s = 0.0  # of pauses

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

    def others_ask(self) -> None:
        """Somebody who is logged in asks for something now."""
        self._asked_s = time.perf_counter()

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
        now = time.perf_counter()
        took_s = min(now - begun, COUNTED_MAX_S)
        self._owed_s += took_s * (PAUSES if now < self._asked_s + BUSY_S else PAUSES_ALONE)
        pause_s = min(self._owed_s, PAUSE_MAX_S)
        if pause_s >= PAUSE_MIN_S:
            self._owed_s = 0.0
            self._loop.call_later(pause_s, self._round)  # also of an empty queue: who asks next
        elif self._queue:  # stands behind what is owed
            self._loop.call_soon(self._round)
        else:
            self._running = False


class Watch:
    """Sockets of one event loop that are watched for a first byte, or their end."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._poll = select.epoll()
        self._reported: dict[int, tuple[socket.socket, Callable[[], object]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, of: socket.socket, ready: Callable[[], object]) -> None:
        """Call ``ready`` in a turn, once, when there is something to read."""
        number = of.fileno()
        if number < 0 or self._poll.closed:
            return
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._poll.fileno(), self._look_soon)
        known = self._reported.get(number)
        self._reported[number] = of, ready
        events = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT
        # The number may have been that of a socket which is closed: the system forgot it then.
        if known is not None and known[0] is of:
            self._poll.modify(number, events)
        else:
            self._poll.register(number, events)

    def forget(self, of: socket.socket) -> None:
        """Watch it no more; call it before it is closed."""
        number = of.fileno()
        if number in self._reported and self._reported[number][0] is of:
            del self._reported[number]
            with suppress(OSError):
                self._poll.unregister(number)

    def close(self) -> None:
        """Watch nothing more."""
        if self._loop is not None:
            self._loop.remove_reader(self._poll.fileno())
        self._poll.close()
        self._reported.clear()

    def _look_soon(self) -> None:
        assert self._loop is not None
        self._loop.remove_reader(self._poll.fileno())
        self._turns.ask(self._look)

    def _look(self) -> None:
        assert self._loop is not None
        if self._poll.closed:
            return
        ready = self._poll.poll(0, ROUND_TURNS)
        for number, _ in ready:
            known = self._reported.get(number)
            if known is not None:
                self._turns.ask(known[1])
        if ready:
            self._turns.ask(self._look)
        else:
            self._loop.add_reader(self._poll.fileno(), self._look_soon)
