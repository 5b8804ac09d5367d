"""One run of ``AsyncGroup.consume``: the steps of ``api.worker``, performed in an event loop.

Invariants: handlers that are coroutine functions run in the loop, others in threads; all handlers
of a batch have ended before the next batch is read.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from logstore.api import worker
from logstore.api.group import Delivery
from logstore.api.worker import not_done

R = TypeVar("R")
T = TypeVar("T", bytes, str)


class AsyncWorker(Generic[T]):
    """One run of ``consume``: performs the steps of ``api.worker``; its handlers are awaited."""

    def __init__(
        self,
        loop: worker.WorkLoop[T],
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
        wait: Callable[..., Awaitable[list[Delivery[T]]]],
        made: Callable[[Delivery[T]], Delivery[T]],
    ) -> None:
        self._loop: worker.WorkLoop[T] = loop
        self._run = run
        self._wait: Callable[..., Awaitable[list[Delivery[T]]]] = wait
        self._made: Callable[[Delivery[T]], Delivery[T]] = made
        handler: Any = loop.work.handler
        called = getattr(type(handler), "__call__", None)  # noqa: B004  an async one
        self._awaits = any(map(inspect.iscoroutinefunction, (handler, called)))

    async def run(self) -> int:
        """The loop."""
        return await self._drive(self._loop.rounds())

    async def _drive(self, steps: Generator[worker.LoopStep, Any, R]) -> R:
        answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: R = end.value
                return result
            answer = await self._perform(step)

    async def _together(self, step: worker.HandleAll) -> list[bool]:
        """Drive what is done for each delivery, some at once; all have ended when this returns."""
        free = asyncio.Semaphore(step.most)

        async def one(delivery: Delivery[Any]) -> bool:
            async with free:
                return await self._drive(step.handle(delivery))

        tasks = [asyncio.ensure_future(one(each)) for each in step.deliveries]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _perform(self, step: worker.LoopStep) -> Any:
        if isinstance(step, worker.CallStore):
            return await self._run(step.call)
        if isinstance(step, worker.Handle):
            return await self._handle(step.delivery)
        if isinstance(step, worker.HandleAll):
            return await self._together(step)
        if isinstance(step, worker.Fetch):
            return await self._fetch(step)
        until = time.monotonic() + step.length_s
        while not self._loop.stop and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(worker.SLEEP_S, left))
        return None

    async def _fetch(self, step: worker.Fetch) -> list[Delivery[T]]:
        loop = self._loop
        try:
            return await self._wait(
                loop.consumer,
                loop.batch,
                step.until,
                loop.alive,
                asked_idle_ms=loop.asked_idle_ms,
                worker=True,
                dead=loop.limit,
                on_dead=loop.work.on_dead,
            )
        except worker.Stopped:
            return []

    async def _handle(self, delivery: Delivery[Any]) -> Exception | None:
        handler = self._loop.work.handler
        try:
            if self._awaits:
                given = handler(self._made(delivery))
            else:
                given = await asyncio.to_thread(handler, delivery)
            if inspect.isawaitable(given):
                given = await given
        except Exception as error:  # noqa: BLE001  the loop decides
            return error
        return not_done(given, "handler", "await it in the handler")
