"""Tasks that wait for a group, each in an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from logstore import aio
from logstore.aio.store import THREADS, AsyncGroup
from logstore.api.store import Store
from logstore.engine.waiting.wait_session import WaitSession
from tests.support.inside import engine_of
from tests.support.waits import eventually_async
from tests.waiting import crowd
from tests.waiting.crowd import SOON_S

Work = Callable[[aio.AsyncStore, Store[Any]], Awaitable[None]]


def go(path: Path, work: Work) -> None:
    """Run it with an open store, in a loop of its own."""

    async def main() -> None:
        async with aio.open(path / "store", sync="os", background=False) as store:
            crowd.group_of(store._store)
            async with asyncio.timeout(crowd.LONG_S):
                await work(store, store._store)

    asyncio.run(main())


async def steps_end(store: aio.AsyncStore) -> None:
    """Wait until no step runs that was begun before: one of a task that was cancelled goes on, and
    what it reads then is in its consumer's backlog, where nobody waits for it.
    """
    together = threading.Barrier(THREADS)
    await asyncio.gather(*(store._run(together.wait) for _ in range(THREADS)))


async def group(store: aio.AsyncStore) -> AsyncGroup:
    """The group that all wait for."""
    return await store.stream("work").group("g", "0")


async def task(store: aio.AsyncStore, who: str, **options: Any) -> asyncio.Task[Any]:
    """A task that reads once; it stands in the queue."""
    plain = store._store
    before = len(crowd.queue(plain))
    made = asyncio.create_task(
        (await group(store)).read(who, **{"count": 1, "timeout": crowd.LONG_S, **options})
    )
    await eventually_async(lambda: len(crowd.queue(plain)) > before)
    return made


def used(store: Store[Any]) -> list[int]:
    """The numbers of the waiter records that are not free, but for those that readers of this
    process keep for their next call.
    """
    waits = engine_of(store).wake.waits
    bare = {place.number for place in waits.saved._bare.values()}
    return [number for number in crowd.used(store) if number not in bare]


class Held:
    """Steps of one kind that are held up, before or after they are done."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, *, after: bool = False) -> None:
        self.reached, self.goes_on = threading.Event(), threading.Event()
        done = getattr(WaitSession, name)

        def held(session: Any, *args: Any) -> Any:
            found = done(session, *args) if after else None
            if found or not after:
                self.reached.set()
                self.goes_on.wait(SOON_S)
            return found if after else done(session, *args)

        patch.setattr(WaitSession, name, held)
