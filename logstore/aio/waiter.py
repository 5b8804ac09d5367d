"""A task that waits, and its event: set by the thread that watches the store for all of them.

Invariants: an event is set in the loop it belongs to; knows nothing of what is waited for but the
buckets of its streams, or its ticket (see ``aio.wait``).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress

from logstore.engine.shm.wait_words import bucket_of
from logstore.engine.waiting.wait_queue import Ticket

WOKEN_AT_ONCE = 16  # tasks of a loop


class Waiter:
    """A task that waits: for some streams, maybe in a queue, or for its turn in a group."""

    def __init__(
        self, names: Sequence[bytes], queue: deque[Waiter] | None, ticket: Ticket | None
    ) -> None:
        self.buckets = {bucket_of(name) for name in names}
        self.ticket = ticket
        self.word = 0  # of its waiter record, when its event was set last
        self.applied = 0  # how far commits were published when it looked by itself last
        self.event = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self._queue = queue

    def wake(self) -> None:
        """Set its event, from any thread."""
        wake_all((self,))

    @property
    def behind(self) -> bool:
        """Whether another one comes first, of those that take the same; asked from any thread."""
        try:
            return self._queue is not None and self._queue[0] is not self
        except IndexError:  # nobody is in it yet
            return False

    async def wait(self, deadline: float | None, most_s: float | None) -> None:
        """Until woken, until the deadline, at most ``most_s``."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if most_s is not None:
            left = most_s if left is None else min(left, most_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self.event.wait()


def wake_all(waiters: Iterable[Waiter]) -> None:
    """Set the events of waiters, each in its loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.loop, []).append(waiter)
    running = asyncio._get_running_loop()
    for loop, its in by_loop.items():
        if loop is running:
            _set(its)
            continue
        with suppress(RuntimeError):  # it is closed: nobody waits
            loop.call_soon_threadsafe(_set, its)


def _set(waiters: list[Waiter]) -> None:
    """Some now, the rest in the next turn of the loop: thousands that look at once would let
    nobody else have a turn."""
    for waiter in waiters[:WOKEN_AT_ONCE]:
        waiter.event.set()
    if len(waiters) > WOKEN_AT_ONCE:
        asyncio.get_running_loop().call_soon(_set, waiters[WOKEN_AT_ONCE:])
