"""The store for asyncio: ``async with logstore.aio.open(path) as store``.

The names are those of the plain faces, with the same arguments; calls are awaited and run in a few
threads of the store's own. Who waits for entries holds no thread: see ``aiowait``.

Invariants: an AsyncStore belongs to the event loop that opened it. Tasks that wait for a group take
tickets, as threads and other processes do, and all of them are served first come, first served; a
time-out keeps the place for the same task. A read with ``timeout=0`` is out of turn.

A task that is cancelled loses nothing: what it would have read stays in the stream, and what a
group delivered to it in that moment is pending with its consumer, and comes by ``backlog`` (with
``noack`` nothing is pending, and such entries are gone). A write that was cancelled may have
happened. ``Delivery.ack`` and ``nack`` are plain calls, which may wait for a disk: in a task
await ``group.ack(delivery.id)``, or use ``tx.ack(delivery)``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

from logstore import reading
from logstore.aiostream import AsyncStream
from logstore.aiowait import Watcher, closed, wait_for
from logstore.deadletters import OnDead
from logstore.entry import Entry
from logstore.ids import IDLike, StreamID
from logstore.info import PinInfo, StoreInfo
from logstore.options import Sync
from logstore.store import Store, open_store
from logstore.transaction import Transaction

P = ParamSpec("P")
R = TypeVar("R")
Name = str | bytes
Timeout = float | timedelta | None
THREADS = 4


class open:  # noqa: N801
    """Open a store, as ``logstore.open`` with its options: ``async with`` it, or await it."""

    def __init__(self, path: Name | os.PathLike[str], **options: Any) -> None:
        self._open = partial(open_store, os.fsdecode(path), **options)
        self._store: AsyncStore | None = None

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self._opened().__await__()

    async def _opened(self) -> AsyncStore:
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            return AsyncStore(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)
            raise

    async def __aenter__(self) -> AsyncStore:
        self._store = await self
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._store is not None:
            await self._store.close()


def _close_opened(opening: asyncio.Future[Store[Any]]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


class AsyncStore:
    """One open store, for the tasks of one event loop; made by :func:`logstore.aio.open`."""

    def __init__(self, store: Store[Any]) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="logstore-aio")
        self._watcher = Watcher(store._engine)
        self._readers: WeakSet[asyncio.Task[Any]] = WeakSet()  # see ``aioturn``
        self._closed = False

    async def _run(self, work: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        if self._closed:
            raise closed()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(work, *args, **named))

    async def close(self) -> None:
        """Give the store back; who waits is told by ClosedError."""
        if self._closed:
            return
        self._closed = True
        self._watcher.close()

        def end() -> None:
            self._watcher.join()
            self._store.close()

        ending = asyncio.get_running_loop().run_in_executor(self._threads, end)
        self._threads.shutdown(wait=False)
        await asyncio.shield(ending)

    def __repr__(self) -> str:
        return f"<Async{repr(self._store)[1:]}"

    def stream(self, name: Name) -> AsyncStream:
        """A handle of a stream; nothing is created before the first add."""
        return AsyncStream(self, self._store.stream(name))

    async def streams(self) -> list[Any]:
        """Names of all streams, sorted."""
        return await self._run(self._store.streams)

    async def create(self, name: Name, *, sync: Sync | None = None) -> bool:
        """Make an empty stream; False if there is one already."""
        return await self._run(self._store.create, name, sync=sync)

    async def drop(self, name: Name, *, sync: Sync | None = None) -> bool:
        """Remove a stream with all its entries; False if there is none."""
        return await self._run(self._store.drop, name, sync=sync)

    async def rename(self, old: Name, new: Name, **options: Any) -> bool:
        """Call a stream otherwise, as ``Store.rename``."""
        return await self._run(self._store.rename, old, new, **options)

    async def copy(self, source: Name, target: Name, **options: Any) -> bool:
        """Copy a stream with its groups, as ``Store.copy``."""
        return await self._run(self._store.copy, source, target, **options)

    async def sync(self) -> None:
        """Make everything that was acknowledged durable before it returns."""
        await self._run(self._store.sync)

    def metrics(self) -> dict[str, int | float]:
        """Counters of this process, as ``Store.metrics``; a plain call, which waits for nothing but
        a look at the files of pins.
        """
        return self._store.metrics()

    async def info(self) -> StoreInfo:
        """What the store holds and where it stands."""
        return await self._run(self._store.info)

    async def pins(self) -> list[PinInfo]:
        """As ``Store.pins``."""
        return await self._run(self._store.pins)

    async def release_pins(self, *ids: str) -> int:
        """As ``Store.release_pins``."""
        return await self._run(self._store.release_pins, *ids)

    def on_dead_letter(self, callback: OnDead[Any]) -> OnDead[Any]:
        """As ``Store.on_dead_letter``: a plain function, called in a thread."""
        return self._store.on_dead_letter(callback)

    def transaction(self, *, sync: Sync | None = None) -> AsyncTransaction:
        """Operations on any streams, all or nothing: ``async with store.transaction() as tx``.

        ``tx`` is the plain object: it only collects, and the commit runs in a thread.
        """
        return AsyncTransaction(self, self._store.transaction(sync=sync))

    async def read(
        self, after: Mapping[str, IDLike] | Mapping[bytes, IDLike], *, count: int | None = None,
        max_count: int | None = None, max_bytes: int | None = None, timeout: Timeout = 0,
    ) -> dict[Any, list[Entry[Any]]]:  # fmt: skip
        """Entries above an ID of each stream, as ``Store.read``; {} if none came in time."""
        store, deadline = self._store, reading.deadline_of(timeout)
        read = partial(store.read, count=count, max_count=max_count, max_bytes=max_bytes)
        if timeout == 0 or not isinstance(after, Mapping) or not after:
            return await self._run(read, after, timeout=timeout)

        def first() -> tuple[dict[Any, StreamID], dict[Any, list[Entry[Any]]]]:
            starts: dict[Any, StreamID] = {}
            for name, given in after.items():
                starts[name] = reading._start(store.stream(name), given)
            return starts, read(after)

        starts, found = await self._run(first)
        if found:
            return found
        names = [store.stream(name)._name for name in starts]

        async def attempt() -> dict[Any, list[Entry[Any]]]:
            return await self._run(read, starts)

        return await wait_for(self._watcher, names, attempt, deadline) or {}


class AsyncTransaction:
    """``async with`` around a transaction; commits unless the block raises."""

    def __init__(self, store: AsyncStore, tx: Transaction[Any]) -> None:
        self._store = store
        self._tx = tx

    async def __aenter__(self) -> Transaction[Any]:
        return self._tx

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if kind is not None:
            self._tx.__exit__(kind, error, trace)
        elif not self._tx._over:
            await self._store._run(self._tx.commit)
