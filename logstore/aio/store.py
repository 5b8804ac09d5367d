"""The store for asyncio: ``async with logstore.aio.open(path) as store``.

Names and arguments are those of the plain classes; calls are awaited and run in a few threads of
the store's own. An attribute there that looks into the store is a method here that is awaited:
``await stream.last()``; ``len(x)`` is ``await x.len()``, ``y in x`` is
``await x.contains(y)``, and what is iterated there is iterated with ``async for``. A task that
waits for entries holds no thread: see ``aio.wait``.

Invariants: an AsyncStore belongs to the event loop that opened it. Tasks that wait for a group take
tickets, as threads and other processes do, and all of them are served first come, first served; a
time-out keeps the place for the same task. A read with ``timeout=0`` is out of turn.

A task that is cancelled loses nothing: what it would have read stays in the stream, and what a
group delivered to it in that moment is pending with its consumer, and comes by ``backlog`` (with
``noack`` nothing is pending, and such entries are gone). A write that was cancelled may have
happened.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from weakref import WeakSet

from logstore.aio.awaited import (
    Feed,
    declared_by,
    of_group,
    of_store,
    of_stream,
    pages,
    pages_of_group,
    pages_of_stream,
)
from logstore.aio.wait import Tasks, Watcher, closed, wait_for
from logstore.aio.worker import AsyncWorker
from logstore.api import arguments, worker
from logstore.api import entry_reads as reading
from logstore.api.arguments import AddOptions, RowOptions
from logstore.api.entry import Entry, IDRuns
from logstore.api.group import (
    Autoclaimed,
    ConsumeOptions,
    DeletedDelivery,
    Delivery,
    Group,
    as_now,
    deliveries_of,
    reading_of,
)
from logstore.api.opening import OpenStore, opened_of
from logstore.api.scheduling import ScheduleKey, ScheduleOptions
from logstore.api.store import OpenOptions, Store, open_store
from logstore.api.stream import Stream
from logstore.api.transaction import Transaction
from logstore.api.worker import check_callable
from logstore.codec import Row
from logstore.engine.waiting.stream_wait import over
from logstore.ids import IDLike, StreamID, When
from logstore.options import GroupSettings, Length, NackMode, StreamSettings, Sync

if TYPE_CHECKING:
    import pyarrow as pa

    from logstore.api.entry_reads import MatchingOf, Where
    from logstore.api.group import OnDead
    from logstore.api.values import ValueCodec
    from logstore.engine.groups.ack import Fence
    from logstore.schema.stream_schema import Schema

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bytes, str)
THREADS = 4
STOP_S = 0.5  # at least so often a worker looks whether it is to stop: nobody wakes it for that


class AsyncDelivery(Delivery[T]):
    """A :class:`logstore.Delivery` of an AsyncGroup, which is its ``group``."""

    __slots__ = ("_plain", "_run")

    def __init__(self, group: AsyncGroup[T], plain: Delivery[T]) -> None:
        self.id, self._flat, self._encoding = plain.id, plain._flat, plain._encoding
        self.deleted, self.delivery_count, self.idle = (
            plain.deleted,
            plain.delivery_count,
            plain.idle,
        )
        self._consumer, self._delivered_ms = plain._consumer, plain._delivered_ms
        self.group: AsyncGroup[T] = group  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
        self._plain: Delivery[T] = plain
        self._run = group._run

    def __reduce__(self) -> Any:
        return _as_it_is, (self._plain,)  # pickled or copied it is the plain one

    @property
    def consumer(self) -> T:
        """The consumer it was handed to, as bytes or in the store's encoding."""
        return self._plain.consumer

    @property
    def _settled(self) -> bool:
        return self._plain._settled

    @_settled.setter
    def _settled(self, settled: bool) -> None:
        self._plain._settled = settled

    async def ack(self) -> bool:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Done, as ``Delivery.ack``."""
        done: bool = await self._run(self._plain.ack)
        return done

    async def nack(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        mode: NackMode = "fail",
        *,
        delay: Length | None = None,
        error: str = "",
    ) -> bool:
        """Not done, as ``Delivery.nack``."""
        done: bool = await self._run(lambda: self._plain.nack(mode, delay=delay, error=error))
        return done

    def _fenced(self) -> tuple[bytes, tuple[Any, ...]]:
        return self._plain._fenced()

    def _fence(self) -> Fence:
        return self._plain._fence()


def _as_it_is(plain: Delivery[T]) -> Delivery[T]:
    return plain


class AsyncDeletedDelivery(  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
    AsyncDelivery[T], DeletedDelivery[T]
):
    """A delivery of an entry that was deleted while it was pending."""

    __slots__ = ()


class AsyncAutoclaimed(Autoclaimed[T]):
    """What ``AsyncGroup.autoclaim`` gave; ``entries`` are of :class:`AsyncDelivery`."""

    __slots__ = ()

    entries: list[AsyncDelivery[T]]  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]


class AsyncGroup(Generic[T]):
    """One consumer group; the arguments are those of :class:`logstore.Group`."""

    def __init__(self, store: AsyncStore[T], group: Group[T]) -> None:
        self._store: AsyncStore[T] = store
        self._group: Group[T] = group
        self._run = store._run

    def __repr__(self) -> str:
        return f"<Async{repr(self._group)[1:]}"

    @property
    def name(self) -> T:
        """The group's name, as bytes or in the store's encoding."""
        return self._group.name

    @property
    def _opened(self) -> OpenStore[T]:
        return self._group._opened

    @property
    def stream(self) -> AsyncStream[T]:
        """The stream, an :class:`logstore.aio.AsyncStream`."""
        return AsyncStream(self._store, cast(Stream[T], self._group.stream))

    # -- the group itself -----------------------------------------------------------------------
    create = of_group(Group[T].create)
    set_id = of_group(Group[T].set_id)
    destroy = of_group(Group[T].destroy)
    exists = of_group(Group[T].exists)
    add_consumer = of_group(Group[T].add_consumer)
    remove_consumer = of_group(Group[T].remove_consumer)
    configure = of_group(Group[T].configure)

    # -- reading --------------------------------------------------------------------------------
    @declared_by(Group.read)
    async def read(self, consumer: str | bytes, **options: Any) -> list[AsyncDelivery[T]]:
        ask = arguments.group_read(consumer, self._store.encoding, **options)
        if ask.deadline == 0:
            read = partial(self._group._read, ask.consumer, ask.limit, 0.0, **ask.options())
            return self._delivered(await self._run(read))
        found = await self._wait(ask.consumer, ask.limit, ask.deadline, **ask.options())
        return self._delivered(found)

    def _delivered(self, found: Sequence[Delivery[T]]) -> list[AsyncDelivery[T]]:
        """The same deliveries, of this class."""
        return [self._made(each) for each in found]

    def _made(self, plain: Delivery[T]) -> AsyncDelivery[T]:
        return (AsyncDeletedDelivery if plain.deleted else AsyncDelivery)(self, plain)

    async def _wait(
        self,
        who: bytes,
        limit: int,
        deadline: float | None,
        alive: Callable[[], object] | None = None,
        **options: Any,
    ) -> list[Delivery[T]]:
        """Read, or wait in the queue of the group; options as of ``Group._waiting``."""
        group = self._group
        wait = group._waiting(who, limit, **options)
        owner, values = (self._store._reader(), who), reading_of(group)
        found = await self._store._tasks.read(
            wait,
            owner,
            deadline,
            alive=alive or group._opened.engine,
            most_s=STOP_S if options.get("worker") else None,
        )
        return as_now(group, values, deliveries_of(group, who, values, found))

    @declared_by(Group.backlog)
    async def backlog(
        self, *asked: Any, **options: Any
    ) -> list[AsyncDelivery[T] | AsyncDeletedDelivery[T]]:
        found = await self._run(self._group.backlog, *asked, **options)
        return list[Any](self._delivered(found))

    # -- done, or not ---------------------------------------------------------------------------
    ack = of_group(Group[T].ack)
    nack = of_group(Group[T].nack)
    ack_delete = of_group(Group[T].ack_delete)

    # -- taking over ----------------------------------------------------------------------------
    @declared_by(Group.claim)
    async def claim(self, *asked: Any, **options: Any) -> list[AsyncDelivery[T]]:
        return self._delivered(await self._run(self._group.claim, *asked, **options))

    @declared_by(Group.autoclaim)
    async def autoclaim(self, *asked: Any, **options: Any) -> AsyncAutoclaimed[T]:
        taken = await self._run(self._group.autoclaim, *asked, **options)
        entries: list[Any] = self._delivered(taken.entries)
        return AsyncAutoclaimed(taken.cursor, entries, taken.deleted)

    reassign = of_group(Group[T].reassign)

    # -- what it tells --------------------------------------------------------------------------
    pending = of_group(Group[T].pending)
    pending_entries = pages_of_group(Group[T].pending_entries)
    info = of_group(Group[T].info)
    consumers = of_group(Group[T].consumers)

    async def settings(self) -> GroupSettings[T]:
        """What is set with ``configure``; GroupNotFoundError if there is no group."""
        return await self._run(lambda: self._group.settings)

    # -- working --------------------------------------------------------------------------------
    async def consume(
        self,
        consumer: str | bytes,
        handler: Callable[[AsyncDelivery[T]], object] | Callable[[Delivery[T]], object],
        **options: Unpack[ConsumeOptions],
    ) -> int:
        """Hand entries to ``handler``, as ``Group.consume``, until stopped; how many it handled.

        A coroutine function runs in the event loop and gets an ``AsyncDelivery``; another one runs
        in a thread and gets a ``Delivery``. What it returns is awaited, if it can be. At most
        ``concurrency`` of them run at once, over the entries of one batch, which is at least as
        large; the next batch is read when all of it were handled. ``stop`` is an ``asyncio.Event``
        or a ``threading.Event``; SIGTERM is left to the caller. If the task is cancelled, what it
        had begun or fetched stays pending, in the consumer's backlog. ``on_dead`` is a plain
        function, called in a thread.
        """
        arguments.check_names(options, ConsumeOptions, "consume")
        check_callable(handler, "handler")
        loop = worker.WorkLoop(self._group, consumer, worker.Work(handler, **options))
        return await AsyncWorker(loop, self._run, self._wait, self._made).run()


class AsyncStream(Generic[T]):
    """One stream of an AsyncStore; the arguments are those of :class:`logstore.Stream`."""

    def __init__(self, store: AsyncStore[T], stream: Stream[T]) -> None:
        self._store: AsyncStore[T] = store
        self._stream: Stream[T] = stream
        self._run = store._run

    def __repr__(self) -> str:
        return f"<Async{repr(self._stream)[1:]}"

    @property
    def name(self) -> T:
        """The name, as bytes or in the store's encoding."""
        return self._stream.name

    # -- adding -------------------------------------------------------------------------------
    @overload
    async def add(
        self,
        fields: Row,
        id: IDLike = "*",
        *,
        create: Literal[True] = True,
        **options: Unpack[AddOptions],
    ) -> StreamID: ...
    @overload
    async def add(
        self, fields: Row, id: IDLike = "*", *, create: bool, **options: Unpack[AddOptions]
    ) -> StreamID | None: ...
    async def add(
        self, fields: Row, id: IDLike = "*", *, create: bool = True, **options: Unpack[AddOptions]
    ) -> StreamID | None:
        """Add one entry, as ``Stream.add``; its ID."""
        add = partial(self._stream.add, fields, id, create=create)
        return await self._run(lambda: add(**options))

    async def add_many(
        self,
        rows: Iterable[Row | tuple[IDLike, Row]] | AsyncIterable[Row | tuple[IDLike, Row]],
        *,
        batch: int = 1000,
        create: bool = True,
        **options: Unpack[RowOptions],
    ) -> IDRuns:
        """Add rows, as ``Stream.add_many``: of an iterable, which runs in a thread, or of an async
        one, which runs in the event loop and holds no thread while it waits."""
        arguments.check_names(options, RowOptions, "add_many")
        if not isinstance(rows, AsyncIterable):
            add = partial(self._stream.add_many, rows, batch=batch, create=create)
            return await self._run(lambda: add(**options))
        given, feed = IDRuns(), Feed()
        steps = self._stream._adding(given, feed, batch, create, options)
        async for row in rows:
            feed.rows.append(row)
            if len(feed.rows) >= batch and not await self._run(next, steps, False):
                return given
        if feed.rows:
            await self._run(next, steps, False)
        return given

    add_arrow = of_stream(Stream[T].add_arrow)
    # -- reading ------------------------------------------------------------------------------
    get = of_stream(Stream[T].get)

    async def contains(self, id: IDLike) -> bool:
        """Look for an entry.

        Args:
            id: the entry's ID.

        Returns:
            Whether there is an entry with this ID.
        """
        return await self._run(self._stream.__contains__, id)

    async def len(self) -> int:
        """How many entries there are."""
        return await self._run(self._stream.__len__)

    range = pages_of_stream(Stream[T].range)

    def __aiter__(self) -> AsyncIterator[Entry[T]]:
        return self.range()

    @declared_by(Stream.read)
    async def read(self, after: IDLike | None = None, **limits: Any) -> list[Entry[T]]:
        if after is None:
            after = reading.behind_all(limits.get("timeout", 0))
        found = await self._store.read({self._stream._name: after}, **limits)
        return self._stream._viewed(next(iter(found.values()), []))

    @declared_by(Stream.follow)
    def follow(
        self,
        after: IDLike = "$",
        *,
        since: When | None = None,
        where: Where | None = None,
        timeout: Length | None = None,
        count: int | None = None,
    ) -> AsyncIterator[Entry[T]]:
        # What "$" stands for is settled when the iteration begins, a moment at the call.
        arguments.check_count(count, "count")
        arguments.deadline_of(timeout)
        after = reading.beginning(opened_of(self._stream), after, since)
        found = self._stream._matching_anew(where)
        return self._follow(after, timeout, count or reading.FOLLOW_COUNT, found)

    async def _follow(
        self, after: IDLike, timeout: Length | None, count: int, where: MatchingOf | None
    ) -> AsyncIterator[Entry[T]]:
        begin = {self._stream._name: after}
        async for _, entry in self._store._follow(begin, None, timeout, count, where):
            yield self._stream._viewed([entry])[0]

    latest = of_stream(Stream[T].latest)

    async def first(self) -> Entry[T] | None:
        """The entry with the smallest ID, or None."""
        return await self._run(lambda: self._stream.first)

    async def last(self) -> Entry[T] | None:
        """The entry with the largest ID, or None."""
        return await self._run(lambda: self._stream.last)

    async def last_id(self) -> StreamID:
        """The last ID ever given; it survives deletes. 0-0 before the first add."""
        return await self._run(lambda: self._stream.last_id)

    count = of_stream(Stream[T].count)
    describe = of_stream(Stream[T].describe)

    @declared_by(Stream.scan)
    async def scan(self, *interval: Any, **options: Any) -> AsyncIterator[pa.RecordBatch]:
        batches = await self._run(self._stream.scan, *interval, **options)
        async for batch in pages(self._run, iter(batches), 1):
            yield batch

    # -- deleting -----------------------------------------------------------------------------
    delete = of_stream(Stream[T].delete)
    delete_each = of_stream(Stream[T].delete_each)
    delete_range = of_stream(Stream[T].delete_range)
    trim = of_stream(Stream[T].trim)
    set_id = of_stream(Stream[T].set_id)
    # -- settings and what it tells -----------------------------------------------------------
    configure = of_stream(Stream[T].configure)

    async def settings(self) -> StreamSettings:
        """What is set with ``configure``."""
        return await self._run(lambda: self._stream.settings)

    async def schema(self) -> Schema | None:
        """The schema that was set with ``configure``; None if there is none, or no stream."""
        return await self._run(lambda: self._stream.schema)

    info = of_stream(Stream[T].info)
    info_full = of_stream(Stream[T].info_full)
    dump = of_stream(Stream[T].dump)
    groups = of_stream(Stream[T].groups)

    # -- scheduling and expiring --------------------------------------------------------------
    @overload
    async def schedule(
        self, fields: Row, *, create: Literal[True] = True, **options: Unpack[ScheduleOptions]
    ) -> ScheduleKey: ...
    @overload
    async def schedule(
        self, fields: Row, *, create: bool, **options: Unpack[ScheduleOptions]
    ) -> ScheduleKey | None: ...
    async def schedule(
        self, fields: Row, *, create: bool = True, **options: Unpack[ScheduleOptions]
    ) -> ScheduleKey | None:
        """Keep an entry until its time, as ``Stream.schedule``; its key."""
        schedule = partial(self._stream.schedule, fields, create=create)
        return await self._run(lambda: schedule(**options))

    cancel = of_stream(Stream[T].cancel)
    scheduled = pages_of_stream(Stream[T].scheduled)
    expire = of_stream(Stream[T].expire)
    persist = of_stream(Stream[T].persist)

    async def expires_at(self) -> datetime | None:
        """When the stream expires, as ``Stream.expires_at``."""
        return await self._run(lambda: self._stream.expires_at)

    async def expires_in(self) -> timedelta | None:
        """How long it is until the stream expires, as ``Stream.expires_in``."""
        return await self._run(lambda: self._stream.expires_in)

    # -- consumer groups ----------------------------------------------------------------------
    async def group(
        self, name: str | bytes, start: IDLike | None = None, *, entries_read: int | None = None
    ) -> AsyncGroup[T]:
        """A handle of a consumer group; with ``start`` it is made if it is missing."""
        made = await self._run(self._stream.group, name, start, entries_read=entries_read)
        return AsyncGroup(self._store, made)


class AsyncStore(Generic[T]):
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
        """Give the store back; a task that waits gets ClosedError."""
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

    streams = of_store(Store[T].streams)
    create = of_store(Store[T].create)
    drop = of_store(Store[T].drop)
    rename = of_store(Store[T].rename)
    copy = of_store(Store[T].copy)

    async def restore(
        self, name: str | bytes, payload: bytes, *, replace: bool = False, sync: Sync | None = None
    ) -> AsyncStream[T]:
        """A stream of a DUMP payload, as ``Store.restore``."""
        made = await self._run(self._store.restore, name, payload, replace=replace, sync=sync)
        return AsyncStream(self, made)

    @declared_by(Store.read)
    async def read(
        self,
        after: Mapping[Any, IDLike],
        *,
        count: int | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        timeout: Length | None = 0,
    ) -> dict[T, list[Entry[T]]]:
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

    @declared_by(Store.follow)
    def follow(
        self,
        after: Mapping[Any, IDLike] | Iterable[str | bytes],
        *,
        since: When | None = None,
        where: Where | None = None,
        timeout: Length | None = None,
        count: int | None = None,
    ) -> AsyncIterator[tuple[T, Entry[T]]]:
        # What "$" and ``since`` stand for is settled when the iteration begins.
        arguments.check_count(count, "count")
        arguments.deadline_of(timeout)
        found = self._store._matching(where)
        return self._follow(after, since, timeout, count or reading.FOLLOW_COUNT, found)

    async def _follow(
        self,
        after: Mapping[str, IDLike] | Mapping[bytes, IDLike] | Iterable[str | bytes],
        since: When | None,
        timeout: Length | None,
        count: int,
        where: MatchingOf | None = None,
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

    @declared_by(Store.merge)
    async def merge(self, *streams: Any, **options: Any) -> AsyncIterator[tuple[T, Entry[T]]]:
        found = await self._run(self._store.merge, *streams, **options)
        async for each in pages(self._run, found):
            yield each

    @declared_by(Store.scan)
    async def scan(self, *streams: Any, **options: Any) -> AsyncIterator[pa.RecordBatch]:
        batches = await self._run(self._store.scan, *streams, **options)
        async for batch in pages(self._run, iter(batches), 1):
            yield batch

    # -- its durability, its space, its keepers ------------------------------------------------
    sync = of_store(Store[T].sync)
    compact = of_store(Store[T].compact)
    retain = of_store(Store[T].retain)
    checkpoint = of_store(Store[T].checkpoint)
    backup = of_store(Store[T].backup)
    ship = of_store(Store[T].ship)
    info = of_store(Store[T].info)
    pins = of_store(Store[T].pins)
    moment = of_store(Store[T].moment)
    release_pins = of_store(Store[T].release_pins)
    requeue = of_store(Store[T].requeue)

    @property
    def durable_upto(self) -> tuple[int, int]:
        """Segment and offset up to which the log is durable; a lower bound."""
        return self._store.durable_upto

    @property
    def recovery(self) -> dict[str, Any]:
        """What opening found and did."""
        return self._store.recovery

    def metrics(self) -> dict[str, int | float]:
        """Counters of this process, as ``Store.metrics``; a plain call, which waits for nothing but
        a look at the files of pins.
        """
        return self._store.metrics()

    def on_dead_letter(self, callback: OnDead[T]) -> OnDead[T]:
        """As ``Store.on_dead_letter``: a plain function, called in a thread."""
        return self._store.on_dead_letter(callback)

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


class open(Generic[T]):  # noqa: N801
    """Open a store, as ``logstore.open`` with its options: ``async with`` it, or await it."""

    @overload
    def __init__(
        self: open[bytes],
        path: str | os.PathLike[str],
        *,
        encoding: None = ...,
        **options: Unpack[OpenOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: open[str],
        path: str | os.PathLike[str],
        *,
        encoding: str,
        **options: Unpack[OpenOptions],
    ) -> None: ...
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        encoding: str | None = None,
        **options: Unpack[OpenOptions],
    ) -> None:
        opener: Callable[..., Store[Any]] = open_store
        self._open: Callable[[], Store[T]] = partial(opener, path, encoding=encoding, **options)
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
