"""The store for asyncio: ``async with logstore.aio.open(path) as store``.

The names are those of the plain faces, with the same arguments; calls are awaited and run in a few
threads of the store's own. What is an attribute there and must look into the store is awaited as a
method here: ``await stream.last()``; ``len(x)`` is ``await x.len()``, ``y in x`` is
``await x.contains(y)``, and what is iterated there is iterated with ``async for``. A task that
waits for entries holds no thread: see ``aio.wait``.

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
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, overload
from weakref import WeakSet

from logstore.aio.pages import pages
from logstore.aio.store_care import AsyncStoreCare
from logstore.aio.stream import AsyncStream
from logstore.aio.tasks import Tasks
from logstore.aio.wait import Watcher, closed, wait_for
from logstore.api import arguments
from logstore.api import read as reading
from logstore.api.entry import Entry
from logstore.api.open_store import open_store
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.api.times import When
from logstore.api.transaction import Transaction
from logstore.clock import Clock
from logstore.engine.waiting.wait import over
from logstore.ids import IDLike
from logstore.options import COMPACT_RATE_BYTES_S, Sync

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from logstore.api.matching import Matching, Where
    from logstore.api.values import ValueCodec

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bytes, str)
THREADS = 4


class open(Generic[T]):  # noqa: N801
    """Open a store, as ``logstore.open`` with its options: ``async with`` it, or await it."""

    @overload
    def __init__(
        self: open[bytes],
        path: str | os.PathLike[str],
        *,
        sync: Sync = ...,
        encoding: None = ...,
        readonly: bool = ...,
        create: bool = ...,
        lock_timeout: float | timedelta = ...,
        background: bool = ...,
        clock: Clock | None = ...,
        node_max_bytes: int | None = ...,
        node_max_entries: int | None = ...,
        segment_bytes: int | None = ...,
        compact_rate: float | None = ...,
        low_space_bytes: int | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: open[str],
        path: str | os.PathLike[str],
        *,
        sync: Sync = ...,
        encoding: str,
        readonly: bool = ...,
        create: bool = ...,
        lock_timeout: float | timedelta = ...,
        background: bool = ...,
        clock: Clock | None = ...,
        node_max_bytes: int | None = ...,
        node_max_entries: int | None = ...,
        segment_bytes: int | None = ...,
        compact_rate: float | None = ...,
        low_space_bytes: int | None = ...,
    ) -> None: ...
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sync: Sync = "everysec",
        encoding: str | None = None,
        readonly: bool = False,
        create: bool | Literal["auto"] = True,
        lock_timeout: float | timedelta = 10.0,
        background: bool = True,
        clock: Clock | None = None,
        node_max_bytes: int | None = None,
        node_max_entries: int | None = None,
        segment_bytes: int | None = None,
        compact_rate: float | None = COMPACT_RATE_BYTES_S,
        low_space_bytes: int | None = None,
    ) -> None:
        opener: Callable[..., Store[Any]] = open_store
        self._open: Callable[[], Store[T]] = partial(
            opener,
            path,
            sync=sync,
            encoding=encoding,
            readonly=readonly,
            create=create,
            lock_timeout=lock_timeout,
            background=background,
            clock=clock,
            node_max_bytes=node_max_bytes,
            node_max_entries=node_max_entries,
            segment_bytes=segment_bytes,
            compact_rate=compact_rate,
            low_space_bytes=low_space_bytes,
        )
        self._store: AsyncStore[T] | None = None

    def __await__(self) -> Generator[Any, None, AsyncStore[T]]:
        return self._opened().__await__()

    async def _opened(self) -> AsyncStore[T]:
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            return AsyncStore(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)
            raise

    async def __aenter__(self) -> AsyncStore[T]:
        self._store = await self
        return self._store

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._store is not None:
            await self._store.close()


def _close_opened(opening: asyncio.Future[Store[T]]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


class AsyncStore(AsyncStoreCare[T]):
    """One open store, for the tasks of one event loop; made by :func:`logstore.aio.open`.

    The arguments are those of :class:`logstore.Store`, and so are results and errors.
    """

    def __init__(self, store: Store[T]) -> None:
        self._store: Store[T] = store
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="logstore-aio")
        self._watcher = Watcher(store._engine)
        self._tasks = Tasks(self._watcher, self._run)
        self._readers: WeakSet[asyncio.Task[Any]] = WeakSet()  # see ``_reader``
        self._closed = False

    async def _run(self, work: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        if self._closed:
            raise closed()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(work, *args, **named))

    def _reader(self) -> int:
        """The identity of the task at hand, whose places in queues are given back when it is done:
        many tasks that come to a time-out once and end would hold all there are.
        """
        task = asyncio.current_task()
        if task is not None and task not in self._readers:
            places = self._watcher.engine().wake.waits.saved
            self._readers.add(task)
            task.add_done_callback(lambda done: places.forget(id(done)))
        return id(task)

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

    @property
    def path(self) -> Path:
        """The store's directory."""
        return self._store.path

    @property
    def encoding(self) -> str | None:
        """The encoding of text; None: names and fields are bytes."""
        return self._store.encoding

    # -- streams ------------------------------------------------------------------------------
    @overload
    def stream(self, name: str | bytes, *, codec: None = None) -> AsyncStream[T]: ...
    @overload
    def stream(self, name: str | bytes, *, codec: str | ValueCodec) -> AsyncStream[Any]: ...
    def stream(
        self, name: str | bytes, *, codec: str | ValueCodec | None = None
    ) -> AsyncStream[T] | AsyncStream[Any]:
        """A handle of a stream, as ``Store.stream``; nothing is created before the first add."""
        if codec is None:
            return AsyncStream(self, self._store.stream(name))
        return AsyncStream(self, self._store.stream(name, codec=codec))

    def __getitem__(self, name: str | bytes) -> AsyncStream[T]:
        return self.stream(name)

    async def contains(self, name: str | bytes) -> bool:
        """Look for a stream.

        Args:
            name: the stream's name.

        Returns:
            Whether there is such a stream.
        """
        return await self._run(self._store.__contains__, name)

    async def len(self) -> int:
        """How many streams there are."""
        return await self._run(self._store.__len__)

    async def __aiter__(self) -> AsyncIterator[T]:
        for name in await self.streams():
            yield name

    async def streams(self) -> list[T]:
        """Names of all streams, sorted."""
        return await self._run(self._store.streams)

    async def create(self, name: str | bytes, *, sync: Sync | None = None) -> bool:
        """Make an empty stream; False if there is one already."""
        return await self._run(self._store.create, name, sync=sync)

    async def drop(self, name: str | bytes, *, sync: Sync | None = None) -> bool:
        """Remove a stream with all its entries; False if there is none."""
        return await self._run(self._store.drop, name, sync=sync)

    async def rename(
        self, old: str | bytes, new: str | bytes, *, replace: bool = True, sync: Sync | None = None
    ) -> bool:
        """Call a stream otherwise, as ``Store.rename``."""
        return await self._run(self._store.rename, old, new, replace=replace, sync=sync)

    async def copy(
        self,
        source: str | bytes,
        target: str | bytes,
        *,
        replace: bool = False,
        sync: Sync | None = None,
    ) -> bool:
        """Copy a stream with its groups, as ``Store.copy``."""
        return await self._run(self._store.copy, source, target, replace=replace, sync=sync)

    async def restore(
        self, name: str | bytes, payload: bytes, *, replace: bool = False, sync: Sync | None = None
    ) -> AsyncStream[T]:
        """A stream of a DUMP payload, as ``Store.restore``."""
        made = await self._run(self._store.restore, name, payload, replace=replace, sync=sync)
        return AsyncStream(self, made)

    async def read(
        self,
        after: Mapping[str, IDLike] | Mapping[bytes, IDLike],
        *,
        count: int | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        timeout: float | timedelta | None = 0,
        block: None = None,
    ) -> dict[T, list[Entry[T]]]:
        """Entries above an ID of each stream, as ``Store.read``; {} if none came in time."""
        arguments.refuse_block(block)
        limits = arguments.limits(count, max_count, max_bytes)
        deadline = arguments.deadline_of(timeout)

        def begin() -> tuple[reading.ReadMany[T], dict[T, list[Entry[T]]]]:
            begun = reading.ReadMany(opened_of(self._store), after, limits)
            return begun, begun.look()

        read, found = await self._run(begin)
        if found or over(deadline):
            return found
        names = read.names(deadline)
        return await wait_for(self._watcher, names, partial(self._run, read.look), deadline) or {}

    def follow(
        self,
        after: Mapping[str, IDLike] | Mapping[bytes, IDLike] | Iterable[str | bytes],
        *,
        since: When | None = None,
        where: Where | None = None,
        timeout: float | timedelta | None = None,
        count: int | None = None,
    ) -> AsyncIterator[tuple[T, Entry[T]]]:
        """Entries of several streams and all that come, as ``Store.follow``.

        What "$" and ``since`` stand for is settled when the iteration begins.
        """
        arguments.check_count(count, "count")
        arguments.deadline_of(timeout)
        from logstore.api.matching import matching

        found = matching(where, opened_of(self._store).encoding)
        return self._follow(after, since, timeout, count or reading.FOLLOW_COUNT, found)

    async def _follow(
        self,
        after: Mapping[str, IDLike] | Mapping[bytes, IDLike] | Iterable[str | bytes],
        since: When | None,
        timeout: float | timedelta | None,
        count: int,
        where: Matching | None = None,
    ) -> AsyncIterator[tuple[T, Entry[T]]]:
        opened = opened_of(self._store)

        def begin() -> reading.Following[T]:
            return reading.Following(opened, reading.starts(opened, after, since), count, where)

        following = await self._run(begin)
        while True:
            deadline = arguments.deadline_of(timeout)
            found = await self._run(following.look)
            if not found and not over(deadline):
                look = partial(self._run, following.look)
                found = await wait_for(self._watcher, following.names, look, deadline) or []
            if not found:
                return
            for each in found:
                yield each

    async def merge(
        self,
        streams: str | bytes | Sequence[str | bytes] | None = None,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        since: When | None = None,
        until: When | None = None,
        count: int | None = None,
        reverse: bool = False,
    ) -> AsyncIterator[tuple[T, Entry[T]]]:
        """Entries of several streams in the order of their IDs, as ``Store.merge``."""
        found = partial(
            self._store.merge,
            streams,
            start,
            end,
            since=since,
            until=until,
            count=count,
            reverse=reverse,
        )
        async for each in pages(self._run, await self._run(found)):
            yield each

    async def scan(
        self,
        streams: str | bytes | Sequence[str | bytes] | None = None,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        columns: Sequence[str] | Mapping[str, pa.DataType | None] | None = None,
        schema: pa.Schema | Mapping[str, pa.DataType | None] | str | None = None,
        where: Sequence[tuple[str, str, Any]] | pc.Expression | None = None,
        merge: bool = False,
        batch_rows: int = 65536,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Entries of several streams as Arrow record batches, as ``Store.scan``: ``async for``."""
        scanned = partial(
            self._store.scan,
            streams,
            start,
            end,
            columns=columns,
            schema=schema,
            where=where,
            merge=merge,
            batch_rows=batch_rows,
        )
        async for batch in pages(self._run, iter(await self._run(scanned)), 1):
            yield batch

    def transaction(self, *, sync: Sync | None = None) -> AsyncTransaction[T]:
        """Operations on any streams, all or nothing: ``async with store.transaction() as tx``.

        ``tx`` is the plain object: it only collects, and the commit runs in a thread.
        """
        return AsyncTransaction(self, self._store.transaction(sync=sync))


class AsyncTransaction(Generic[T]):
    """``async with`` around a transaction; commits unless the block raises."""

    def __init__(self, store: AsyncStore[T], tx: Transaction[T]) -> None:
        self._store: AsyncStore[T] = store
        self._tx: Transaction[T] = tx

    async def __aenter__(self) -> Transaction[T]:
        return self._tx

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._tx.__exit__(kind, error, trace)
        elif not self._tx._steps.over:
            await self._store._run(self._tx.commit)
