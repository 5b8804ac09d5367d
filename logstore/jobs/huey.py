"""huey over an embedded store: its tasks, results, schedules and locks, without a server.

``StoreHuey("app", path="work.store")`` is a Huey as any of huey's own; its workers are
``huey_consumer``. The queue is a stream with a consumer group (one more for each priority), the
schedule is that of a second stream, results, locks and counters are entries of some streams that
are looked up by key (``Keys``).

Invariants: a task is acked when it ended, so that one of a worker that was killed goes to another;
one that kills worker after worker becomes a dead letter. Of those that ask for what is due one gets
it: the one whose cancel, or delete, succeeds. The store is opened when it is needed. A key has one
entry. A change of its value names the last ID that its stream had when the key was read, and begins
again if that is another one by then; each change gives the stream a new last ID. Keys are spread
over some streams, so that changes of different ones seldom meet.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from huey.api import Huey
from huey.constants import EmptyData
from huey.signals import SIGNAL_INTERRUPTED
from huey.storage import BaseStorage, MemoryStorage

from logstore.api.group import Group
from logstore.api.store import Store, open_store
from logstore.api.stream import Stream
from logstore.api.worker import process_name
from logstore.errors import LastIDConflictError
from logstore.ids import StreamID
from logstore.jobs import gone
from logstore.options import Length

# -- values by key ----------------------------------------------------------------------------
STREAMS = 16
READ = 100  # entries at once while somebody waits


class Keys:
    """Values by key. Its methods are for any thread, and any process beside."""

    def __init__(self, store: Callable[[], Store[bytes]], name: str) -> None:
        """``store`` is asked each time; ``name``: what the names of the streams begin with."""
        self._store = store
        self._name = name
        self._ready: set[str] = set()

    def _stream(self, key: bytes) -> Stream[bytes]:
        name = f"{self._name}:{zlib.crc32(key) % STREAMS}"
        stream = self._store().stream(name)
        if name not in self._ready:
            stream.configure(compact_by="key")
            self._ready.add(name)
        return stream

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None: it is not set."""
        entry = self._stream(key).latest(key)
        return None if entry is None else entry["value"]

    def change(
        self,
        key: bytes,
        change: Callable[[bytes | None], bytes | None],
        ttl: Length | None = None,
    ) -> bool:
        """Set a key to what ``change`` makes of its value, which may be asked more than once; if
        that is None it stays as it is. Whether it was set."""
        stream = self._stream(key)
        while True:
            last = stream.last_id
            before = stream.latest(key)
            value = change(None if before is None else before["value"])
            if value is None:
                return False
            with suppress(LastIDConflictError), self._store().transaction() as tx:
                changed = tx.stream(stream.name)
                if before is not None:
                    changed.delete(before.id)
                changed.add({"key": key, "value": value}, expected_last_id=last, ttl=ttl)
                return True

    def pop(self, key: bytes) -> bytes | None:
        """Take the value of a key; None: it is not set."""
        stream = self._stream(key)
        while True:
            last = stream.last_id
            before = stream.latest(key)
            if before is None:
                return None
            with suppress(LastIDConflictError), self._store().transaction() as tx:
                changed = tx.stream(stream.name)
                changed.delete(before.id)
                # Comes and goes in this commit, so that the last ID tells others of the change.
                changed.add({"gone": ""}, id=last.next(), expected_last_id=last)
                changed.delete(last.next())
                value: bytes = before["value"]
                return value

    def all(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The keys that begin so, and their values."""
        for number in range(STREAMS):
            for entry in self._store().stream(f"{self._name}:{number}"):
                if entry["key"].startswith(start):
                    yield entry["key"], entry["value"]

    def wait(self, key: bytes, timeout: float | None) -> bool:
        """Wait until a key is set; whether it is."""
        stream = self._stream(key)
        until = None if timeout is None else time.monotonic() + timeout
        after = stream.last_id
        while stream.latest(key) is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            news = stream.read(after, count=READ, timeout=left)
            after = news[-1].id if news else after
        return True


# -- what huey keeps --------------------------------------------------------------------------
GROUP = "workers"
DEATHS_MAX = 3  # of workers that had a task
WAIT_S = 1.0  # for a task; huey's workers look whether they are stopped then
WAIT_EACH_S = 0.1  # with priorities, for a stream that is new
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_numbers = count(1)
_Pair = tuple[datetime, bytes]


class StoreStorage(BaseStorage):
    """What huey keeps, in a store.

    Args:
        name: the queue's, with which the names of its streams begin.
        path: the store's directory; it is made if it is missing.
        keep_results: how long results are kept that nobody reads, seconds or a timedelta; None: for
            ever, as huey's other storages do.
        min_idle: when a task of a worker elsewhere, on another machine or in another
            container, goes to another one. (Of workers here it is seen that they are gone.)
        keeps_taken: a task stays with the worker that took it until ``done``; ``StoreHuey`` says
            that. Without, it is gone when it is taken, as huey's other storages have it.
        options: further ones of ``logstore.open``, such as ``sync``.
    """

    blocking = True
    priority = True

    def __init__(
        self,
        name: str = "huey",
        path: str | os.PathLike[str] = "huey.store",
        *,
        keep_results: Length | None = timedelta(days=1),
        min_idle: Length = timedelta(hours=1),
        keeps_taken: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(name)
        self.path = path
        self._keep_results = keep_results
        self._min_idle = min_idle
        self._keeps_taken = keeps_taken
        self._options = options
        self._guard = threading.RLock()
        self._store: Store[bytes] | None = None
        self._ready: set[str] = set()  # streams whose group is made, and that are configured
        self._rescued: deque[tuple[str, Any]] = deque()
        self._look_at = 0.0
        self._ranks: tuple[StreamID, list[float]] | None = None
        self._mine = threading.local()
        self._keys = Keys(lambda: self.store, f"{name}:keys")

    # -- the store ------------------------------------------------------------------------------
    @property
    def store(self) -> Store[bytes]:
        """The store, opened."""
        with self._guard:
            store = self._store
            if store is None:
                store = self._store = open_store(self.path, **self._options)
            return store

    def close(self) -> bool:
        """Close the store; whether it was open. The next call opens it again."""
        with self._guard:
            store, self._store = self._store, None
            self._ready.clear()
        if store is None:
            return False
        store.close()
        return True

    def _stream(self, part: str) -> Stream[bytes]:
        return self.store.stream(f"{self.name}{part}")

    def _group(self, part: str) -> Group[bytes]:
        group = self._stream(part).group(GROUP, start=None if part in self._ready else "0")
        if part not in self._ready:
            group.configure(
                max_deliveries=DEATHS_MAX + 1,
                dead_letter=f"{self.name}:dead",
                min_idle=self._min_idle,
            )
            self._ready.add(part)
        return group

    # -- the queue ------------------------------------------------------------------------------
    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        """Add a task; those of a higher priority are taken first."""
        rank = float(priority or 0)
        if rank and rank not in self._known_ranks():
            self._stream(":priorities").add({"priority": repr(rank)})
        self._stream(_part(rank)).add({"task": bytes(data)})

    def _known_ranks(self) -> list[float]:
        """The priorities that tasks had, highest first."""
        stream = self._stream(":priorities")
        last = stream.last_id
        if self._ranks is None or self._ranks[0] != last:
            ranks = {float(each["priority"]) for each in stream} | {0.0}
            self._ranks = last, sorted(ranks, reverse=True)
        return self._ranks[1]

    def _parts(self) -> list[str]:
        return [_part(rank) for rank in self._known_ranks()]

    def dequeue(self) -> bytes | None:
        """Take the next task, waiting for a second at most."""
        name = self._consumer()
        taken = self._taken_over(name) or self._next(name)
        if taken is None:
            return None
        part, delivery = taken
        if self._keeps_taken:
            self._mine.taken = part, delivery.id
        else:
            self.done((part, delivery.id))
        data: bytes = delivery["task"]
        return data

    def _consumer(self) -> str:
        """The consumer of this thread."""
        who = getattr(self._mine, "who", None)
        if who is None or who[0] != os.getpid():
            who = self._mine.who = os.getpid(), f"{process_name()}:{next(_numbers)}"
        name: str = who[1]
        return name

    def _taken_over(self, name: str) -> tuple[str, Any] | None:
        """A task of a worker that is gone, if there is one."""
        with self._guard:
            if time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + gone.LOOK_S
                for part in self._parts():
                    taken = gone.rescue(self._group(part), name)
                    self._rescued += [(part, each) for each in taken]
            while self._rescued:
                part, delivery = self._rescued.popleft()
                if delivery.deleted:
                    self._group(part).ack(delivery.id)
                elif delivery.delivery_count > DEATHS_MAX + 1:
                    reason = f"{DEATHS_MAX + 1} workers died of it"
                    self._group(part).nack(delivery.id, mode="fatal", error=reason)
                else:
                    return part, delivery
        return None

    def _next(self, name: str) -> tuple[str, Any] | None:
        parts = self._parts()
        if len(parts) == 1:
            return self._read(parts[0], name, WAIT_S)
        until = time.monotonic() + WAIT_S
        while True:
            # Settled before the look: what is added behind it ends the wait.
            ends = {self._stream(part).name: self._stream(part).last_id for part in parts}
            for part in parts:
                taken = self._read(part, name, 0)
                if taken is not None:
                    return taken
            if time.monotonic() >= until:
                return None
            self.store.read(ends, count=1, timeout=WAIT_EACH_S)
            parts = self._parts()

    def _read(self, part: str, name: str, timeout: float) -> tuple[str, Any] | None:
        group = self._group(part)
        for delivery in group.read(name, count=1, timeout=timeout):
            if not delivery.deleted:
                return part, delivery
            group.ack(delivery.id)
        return None

    def taken(self) -> tuple[str, StreamID] | None:
        """What this thread took last and has not asked for yet; for ``done`` and ``give_back``."""
        found: tuple[str, StreamID] | None = getattr(self._mine, "taken", None)
        self._mine.taken = None
        return found

    def done(self, taken: tuple[str, StreamID]) -> None:
        """A task ended: it goes."""
        part, id = taken
        self._group(part).ack_delete(id, references="acked")

    def give_back(self, taken: tuple[str, StreamID], error: str | None = None) -> None:
        """A task was not begun, or not ended: another worker's, or with an error a dead letter."""
        part, id = taken
        if error is None:
            self._group(part).nack(id, mode="silent")
        else:
            self._group(part).nack(id, mode="fatal", error=error)

    def _waiting(self) -> Iterator[bytes]:
        for part in self._parts():
            begin = self._group(part).info().last_delivered_id
            for entry in self._stream(part).range(f"({begin}"):
                yield entry["task"]

    def queue_size(self) -> int:
        """How many tasks wait."""
        sizes = [
            self._stream(part).count(f"({self._group(part).info().last_delivered_id}")
            for part in self._parts()
        ]
        return sum(sizes)

    def enqueued_items(self, limit: int | None = None) -> list[bytes]:
        """The tasks that wait, in the order in which they are taken."""
        return _first(self._waiting(), limit)

    def flush_queue(self) -> None:
        """Remove all tasks."""
        for part in self._parts():
            self._stream(part).trim(max_entries=0, approximate=False)

    # -- the schedule ---------------------------------------------------------------------------
    def add_to_schedule(self, data: bytes, ts: datetime) -> None:
        """Keep a task until a moment, in huey's time: naive, of this place or UTC as huey says."""
        fields = {"task": bytes(data), "at": _time_text(ts)}
        self._stream(":schedule").schedule(fields, at=_aware(ts))

    def _scheduled(self) -> list[tuple[_Pair, Callable[[], int]]]:
        """What is scheduled, by time, with what takes it away, once. What the store's clock brought
        is in the stream already; what it brings meanwhile is listed twice, and taken once."""
        stream = self._stream(":schedule")
        found: list[tuple[_Pair, Callable[[], int]]] = [
            (_pair(later.fields), _cancelling(stream, later.key)) for later in stream.scheduled()
        ]
        found += [(_pair(entry), _deleting(stream, entry.id)) for entry in stream]
        return sorted(found, key=lambda each: each[0][0])

    def read_schedule(self, ts: datetime) -> list[bytes]:
        """Take what is due at a moment."""
        asked = _aware(ts)
        return [pair[1] for pair, take in self._scheduled() if pair[0] <= asked and take()]

    def schedule_size(self) -> int:
        """How many tasks are scheduled."""
        return len(self._scheduled())

    def scheduled_items(self, limit: int | None = None) -> list[bytes]:
        """The tasks that are scheduled, by time."""
        return _first((pair[1] for pair, _ in self._scheduled()), limit)

    def flush_schedule(self) -> None:
        """Remove all that is scheduled."""
        for _, take in self._scheduled():
            take()

    # -- keys -----------------------------------------------------------------------------------
    def put_data(self, key: str | bytes, value: bytes, is_result: bool = False) -> None:
        """Set a key."""
        ttl = self._keep_results if is_result else None
        self._keys.change(_data(key), lambda _: bytes(value), ttl)

    def peek_data(self, key: str | bytes) -> Any:
        """The value of a key, or EmptyData."""
        value = self._keys.get(_data(key))
        return EmptyData if value is None else value

    def pop_data(self, key: str | bytes) -> Any:
        """Take the value of a key, or EmptyData."""
        value = self._keys.pop(_data(key))
        return EmptyData if value is None else value

    def has_data_for_key(self, key: str | bytes) -> bool:
        """Whether a key is set."""
        return self.peek_data(key) is not EmptyData

    def wait_result(
        self,
        key: str | bytes,
        timeout: float | None = None,
        backoff: float = 1.15,  # noqa: ARG002
        max_delay: float = 1.0,  # noqa: ARG002
    ) -> bool:
        """Wait until a key is set, without polling."""
        return self._keys.wait(_data(key), timeout)

    def put_if_empty(self, key: str | bytes, value: bytes, ttl: Length | None = None) -> bool:
        """Set a key that is not set, for some seconds if ``ttl`` says so; whether it did."""
        return self._keys.change(_data(key), lambda old: bytes(value) if old is None else None, ttl)

    def incr(self, key: str | bytes, amount: int = 1) -> int:
        """Add to a counter; what it is after."""
        after = 0

        def added(old: bytes | None) -> bytes:
            nonlocal after
            after = int(old or 0) + amount
            return b"%d" % after

        self._keys.change(_counter(key), added, None)
        return after

    def delete_counter(self, key: str | bytes) -> None:
        """Forget a counter."""
        self._keys.pop(_counter(key))

    def result_store_size(self) -> int:
        """How many keys are set."""
        return sum(1 for _ in self._keys.all(_DATA))

    def result_items(self) -> dict[str, bytes]:
        """All keys and values."""
        return {key[len(_DATA) :].decode(): value for key, value in self._keys.all(_DATA)}

    def flush_results(self) -> None:
        """Forget all keys."""
        for key, _ in self._keys.all(_DATA):
            self._keys.pop(key)

    def flush_counters(self) -> None:
        """Forget all counters."""
        for key, _ in self._keys.all(_COUNTER):
            self._keys.pop(key)


_DATA, _COUNTER = b"data:", b"counter:"


def _data(key: str | bytes) -> bytes:
    return _DATA + (key.encode() if isinstance(key, str) else key)


def _counter(key: str | bytes) -> bytes:
    return _COUNTER + (key.encode() if isinstance(key, str) else key)


def _part(rank: float) -> str:
    return f":{rank!r}" if rank else ""


def _first(given: Iterable[bytes], limit: int | None) -> list[bytes]:
    found = list(given)
    return found if limit is None else found[:limit]


def _aware(ts: datetime) -> datetime:
    """huey's moments are naive; as its other storages do, all are taken for those of one clock."""
    return ts.astimezone(UTC)


def _time_text(ts: datetime) -> str:
    return str((_aware(ts) - EPOCH) // timedelta(microseconds=1))


def _pair(fields: Any) -> _Pair:
    at = EPOCH + timedelta(microseconds=int(fields[b"at"]))
    task: bytes = fields[b"task"]
    return at, task


def _cancelling(stream: Stream[bytes], key: Any) -> Callable[[], int]:
    return lambda: stream.cancel(key)


def _deleting(stream: Stream[bytes], id: StreamID) -> Callable[[], int]:
    return lambda: stream.delete(id)


class StoreHuey(Huey):
    """A Huey over a store in a directory; its arguments are those of ``StoreStorage``, and huey's.

    A task whose worker is killed is begun again by another one within seconds: huey's other
    storages lose it.
    """

    storage_class = StoreStorage

    def __init__(self, name: str = "huey", **options: Any) -> None:
        options.setdefault("keeps_taken", True)
        super().__init__(name, **options)
        self._held: dict[str, tuple[str, StreamID]] = {}
        self._interrupted: set[str] = set()
        self.signal(SIGNAL_INTERRUPTED)(self._note_interrupted)

    def _note_interrupted(self, _signal: str, task: Any, *_more: Any) -> None:
        self._interrupted.add(task.id)

    def dequeue(self) -> Any:
        """The next task; ``execute`` says when it is done."""
        storage = self.storage
        if isinstance(storage, MemoryStorage):  # immediate
            return super().dequeue()
        try:
            task = super().dequeue()
        except Exception as error:
            taken = storage.taken()
            if taken is not None:
                storage.give_back(taken, f"{type(error).__name__}: {error}")
            raise
        taken = storage.taken()
        if task is not None and taken is not None:
            self._held[task.id] = taken
        return task

    def execute(self, task: Any, timestamp: datetime | None = None) -> Any:
        """Do a task: it ends when its result is kept, or what comes of it is enqueued."""
        try:
            return super().execute(task, timestamp)
        finally:
            taken = self._held.pop(task.id, None)
            if taken is not None:
                if task.id in self._interrupted:
                    self._interrupted.discard(task.id)
                    self.storage.give_back(taken)
                else:
                    self.storage.done(taken)
