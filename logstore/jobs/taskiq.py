"""taskiq over an embedded store: a broker and its result backend, without a server.

``StoreBroker("work.store")`` is a broker as any of taskiq's: its workers are ``taskiq worker``, its
tasks those of ``@broker.task``. Messages are entries of a stream with a consumer group, results
those of a second stream, kept for a while.

Invariants: a message is acked when taskiq says so, by default when its result is kept; what a
worker held whose process is gone goes to another one when that next looks, ``max_deliveries`` times
in all; then it is a dead letter. Nothing is taken from a worker that lives, but after ``min_idle``.
The store belongs to the broker: it is opened when that starts, and closed with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, TypeVar

from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, BrokerMessage, TaskiqResult
from taskiq.exceptions import ResultGetError

from logstore import aio
from logstore.aio.store import AsyncGroup, AsyncStore, AsyncStream
from logstore.api.group import Delivery
from logstore.api.worker import process_ended, process_name
from logstore.errors import UsageError
from logstore.ids import StreamID
from logstore.jobs.gone import CLAIM_IDLE, CLAIM_JOBS, LOOK_S, text
from logstore.jobs.task import DELIVERIES_MAX
from logstore.options import Length

R = TypeVar("R")
GROUP = "workers"
BATCH = 10
_numbers = count(1)


class StoreResults(AsyncResultBackend[R]):
    """Keeps what tasks returned, as JSON; made by ``StoreBroker``."""

    def __init__(self, broker: StoreBroker, keep: Length) -> None:
        self._broker = broker
        self._keep = keep

    @property
    def _stream(self) -> AsyncStream[bytes]:
        return self._broker.store.stream(f"{self._broker.queue}:results")

    async def startup(self) -> None:
        """Have the stream of results configured."""
        await self._stream.configure(max_age=self._keep, compact_by="task")

    async def set_result(self, task_id: str, result: TaskiqResult[R]) -> None:
        """Keep a result."""
        await self._stream.add({"task": task_id, "result": result.model_dump_json()})

    async def is_result_ready(self, task_id: str) -> bool:
        """Whether there is a result."""
        return await self._stream.latest(task_id) is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[R]:
        """A result, as JSON holds it; ResultGetError if there is none."""
        entry = await self._stream.latest(task_id)
        if entry is None:
            raise ResultGetError
        result: TaskiqResult[R] = TaskiqResult.model_validate_json(entry["result"])
        if not with_logs:
            result.log = None
        return result


class StoreBroker(AsyncBroker):
    """A taskiq broker over a store in a directory.

    Args:
        path: the store's directory; it is made if it is missing.
        queue: the name of the stream of messages.
        keep_results: how long results are kept, seconds, a timedelta or "1h".
        min_idle: when a message of a worker elsewhere, on another machine or in another
            container, goes to another one. (Of workers here it is seen that they are gone.)
        max_deliveries: how often a message is given to workers that end before they ack it; then
            it moves to the stream ``<queue>:dead``, from which ``store.requeue`` gives it back. A
            worker that is killed takes messages with it that it had fetched and not begun.
        options: further ones of ``logstore.aio.open``, such as ``sync``.

    A label ``delay`` of a task, in seconds, has its message come so much later.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        queue: str = "taskiq",
        *,
        keep_results: Length = timedelta(days=1),
        min_idle: Length = timedelta(hours=1),
        max_deliveries: int = DELIVERIES_MAX,
        **options: Any,
    ) -> None:
        super().__init__()
        self.path = path
        self.queue = queue
        self._min_idle = min_idle
        self._max_deliveries = max_deliveries
        self._options = options
        self._store: AsyncStore[bytes] | None = None
        self.result_backend: StoreResults[Any] = StoreResults(self, keep_results)

    @property
    def store(self) -> AsyncStore[bytes]:
        """The store. UsageError before ``startup`` and after ``shutdown``."""
        if self._store is None:
            raise UsageError("the broker is not started: await broker.startup()")
        return self._store

    async def _group(self) -> AsyncGroup[bytes]:
        return await self.store.stream(self.queue).group(GROUP)

    async def startup(self) -> None:
        """Open the store, and make the group if it is missing."""
        if self._store is None:
            self._store = await aio.open(self.path, **self._options)
        group = await self._store.stream(self.queue).group(GROUP, start="0")
        await group.configure(
            max_deliveries=self._max_deliveries,
            dead_letter=f"{self.queue}:dead",
            min_idle=self._min_idle,
        )
        await super().startup()

    async def shutdown(self) -> None:
        """Close the store."""
        await super().shutdown()
        if self._store is not None:
            store, self._store = self._store, None
            await store.close()

    async def kick(self, message: BrokerMessage) -> None:
        """Add a message, now or after its label ``delay``."""
        stream = self.store.stream(self.queue)
        fields = {"id": message.task_id, "task": message.task_name, "message": message.message}
        delay = message.labels.get("delay")
        if delay is None:
            await stream.add(fields)
        else:
            await stream.schedule(fields, after=float(delay))

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        """Messages for this worker, for ever."""
        group = await self._group()
        name, looked_at = f"{process_name()}:{next(_numbers)}", float("-inf")
        while True:
            batch: list[Delivery[bytes]] = []
            if time.monotonic() - looked_at >= LOOK_S:
                batch = await _rescued(group, name)
                looked_at = time.monotonic()
            for delivery in batch or await group.read(name, count=BATCH, timeout=LOOK_S):
                if delivery.deleted:
                    await group.ack(delivery.id)
                elif delivery.delivery_count > self._max_deliveries:  # claims ask for no limit
                    reason = f"{self._max_deliveries} workers ended before they acked it"
                    await group.nack(delivery.id, mode="fatal", error=reason)
                else:
                    ack = partial(_ack, group, delivery.id)
                    yield AckableMessage(data=delivery["message"], ack=ack)


async def _ack(group: AsyncGroup[bytes], id: StreamID) -> None:
    """A message was handled: the group is done with it, and the stream needs it no longer."""
    await group.ack_delete(id, references="acked")


async def _rescued(group: AsyncGroup[bytes], name: str) -> list[Delivery[bytes]]:
    """Take over what workers hold whose processes are gone."""
    taken: list[Delivery[bytes]] = []
    for consumer in await group.consumers():
        if consumer.pending and process_ended(text(consumer.name)):
            held = group.pending_entries(count=CLAIM_JOBS, consumer=consumer.name)
            ids = [each.id async for each in held]
            taken += await group.claim(name, *ids, min_idle=CLAIM_IDLE)
    return taken
