"""Gathering ``info_full``: what XINFO STREAM FULL tells, in steps.

Invariants: no snapshot is held for more than one batch of entries and ``ROWS_A_STEP`` pending ones;
what fits into one step is of one moment, and of what does not each step is of a moment of its own
(an entry stands in the lists as it was when they came to it). A group's pending entries are walked
once for all its lists, which share their items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from logstore.api import describe
from logstore.api.entry import Entry, make_entry
from logstore.api.full_info import FullConsumerInfo, FullGroupInfo, FullPendingEntry, FullStreamInfo
from logstore.api.info import GroupInfo, StreamInfo
from logstore.codec.run import Pending
from logstore.engine.groups import describe as pendings
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.streams import read
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.group_keys import NO_ONE, ConsumerRecord, PendingRun
from logstore.index.group_txn import LAST
from logstore.options import elapsed

if TYPE_CHECKING:
    from logstore.api.store import Store

T = TypeVar("T", bytes, str)
ROWS_A_STEP = 10_000


def full_info(store: Store[T], name: bytes, count: int) -> FullStreamInfo[T]:
    """A stream with at most ``count`` of each list (0: all); StreamNotFoundError."""
    return full_info_on(partial(snapshot.read, store._engine()), store, name, count)


def full_info_on(
    once: Callable[[Callable[[Snapshot], bool]], bool], store: Store[T], name: bytes, count: int
) -> FullStreamInfo[T]:
    """The same on what ``once`` reads: fresh snapshots, or the state inside a commit."""
    gather = _Stream(store, name, count)
    while not once(gather.step):
        pass
    return gather.result()


class _Stream(Generic[T]):
    """A stream on the way. A step may be cut off by a segment that went, and goes on then."""

    def __init__(self, store: Store[T], name: bytes, count: int) -> None:
        self._store: Store[T] = store
        self._name = name
        self._count = count
        self._number = 0
        self._head: StreamInfo[T] | None = None
        self._entries: list[Entry[T]] = []
        self._rest: tuple[StreamID, StreamID] | None = (ZERO_ID, MAX_ID)
        self._groups: list[_Group[T]] = []

    def step(self, view: Snapshot) -> bool:
        """Look on; True when all was seen."""
        if self._head is None:
            self._begin(view)
        record = view.record(self._name)
        if record is None or record.number != self._number:
            return True  # it went meanwhile
        if self._rest is not None:
            self._read(view, *self._rest)
        left = ROWS_A_STEP
        for group in self._groups:
            if left <= 0:
                return False
            left -= group.step(view, left)
        return self._rest is None and left > 0

    def _begin(self, view: Snapshot) -> None:
        head = describe.stream_info(view, self._name, self._store.encoding)
        record = view.record(self._name)
        assert record is not None
        now_ms = self._store._engine().clock.now_ms()
        rows = pendings.group_rows(view, self._name)
        self._groups = [
            _Group(
                self._store, describe.group_info(row, self._text), each.number,
                view.index.groups.consumers(each.number), self._count, now_ms,
            )
            for row, each in zip(rows, view.index.groups.of_stream(record.number), strict=True)
        ]  # fmt: skip
        self._number, self._head = record.number, head

    def _read(self, view: Snapshot, low: StreamID, high: StreamID) -> None:
        left = self._count - len(self._entries) if self._count else -1
        found = read.read_on(lambda batch: batch(view), self._name, low, high, left)
        encoding = self._store.encoding
        self._entries += [make_entry(ms, seq, flat, encoding) for _, ms, seq, flat in found.entries]
        over = bool(self._count) and len(self._entries) >= self._count
        self._rest = None if over else found.rest

    def _text(self, name: bytes) -> T:
        return cast(T, self._store._text(name))

    def result(self) -> FullStreamInfo[T]:
        """What was seen."""
        assert self._head is not None
        return FullStreamInfo(
            **_values(self._head), entries=tuple(self._entries),
            group_infos=tuple(group.result() for group in self._groups),
        )  # fmt: skip


class _Group(Generic[T]):
    """A group on the way."""

    def __init__(
        self, store: Store[T], info: GroupInfo[T], number: int, consumers: list[ConsumerRecord],
        count: int, now_ms: int,
    ) -> None:  # fmt: skip
        self._info: GroupInfo[T] = info
        self._number = number
        self._consumers = consumers
        self._now_ms = now_ms
        self._names: dict[int, T] = {
            each.number: cast(T, store._text(each.name)) for each in consumers
        }
        self._lists: dict[int, list[FullPendingEntry[T]]] = {each: [] for each in self._names}
        self._all: list[FullPendingEntry[T]] = []
        most = count or info.pending
        self._wanted = min(most, info.pending)
        self._wants = {  # how many are still to be found, of whom some are
            each.number: min(most, each.pending) for each in consumers if each.pending
        }
        self._nacked = info.pending - sum(each.pending for each in consumers)
        self._after = ZERO_ID.packed()

    def step(self, view: Snapshot, most: int) -> int:
        """Walk on; how many pending entries were looked at, ``most`` or more if some are left."""
        looked = 0
        if not (self._wanted or self._wants):
            return 0
        for run in view.index.groups.runs(self._number, self._after):
            if looked >= most:
                return looked
            looked += len(run)
            self._take(run)
            if not (self._wanted or self._wants):
                return looked
        self._wanted, self._wants = 0, {}  # of what was counted, some went meanwhile
        return looked

    def _take(self, run: PendingRun) -> None:
        """Put a run's entries into the lists that want them."""
        for found in run.between(self._after, LAST):
            if self._wanted or found[2] in self._wants:
                self._put(found)
        last = StreamID.unpacked(run.last)
        self._after = last.next().packed() if last < MAX_ID else run.last
        if last == MAX_ID:
            self._wanted, self._wants = 0, {}

    def _put(self, found: Pending) -> None:
        who, given = found[2], self._entry(found)
        if self._wanted:
            self._all.append(given)
            self._wanted -= 1
        if who in self._wants:
            self._lists[who].append(given)
            self._wants[who] -= 1
            if not self._wants[who]:
                del self._wants[who]

    def _entry(self, found: Pending) -> FullPendingEntry[T]:
        ms, seq, who, time_ms, count = found
        id = StreamID(ms, seq)
        if who == NO_ONE:  # its time is its place in the line
            return FullPendingEntry(id, None, None, count, delivered_ms=None)
        idle = elapsed(self._now_ms - time_ms)
        return FullPendingEntry(id, self._names.get(who), idle, count, delivered_ms=time_ms)

    def result(self) -> FullGroupInfo[T]:
        """What was seen."""
        return FullGroupInfo(
            **_values(self._info), nacked=self._nacked, pending_entries=tuple(self._all),
            consumer_infos=tuple(map(self._consumer, self._consumers)),
        )  # fmt: skip

    def _consumer(self, record: ConsumerRecord) -> FullConsumerInfo[T]:
        now_ms, active_ms = self._now_ms, record.active_ms
        never = active_ms < 0
        return FullConsumerInfo(
            self._names[record.number], record.pending,
            elapsed(now_ms - record.seen_ms),
            None if never else elapsed(now_ms - active_ms),
            seen_ms=record.seen_ms, active_ms=None if never else active_ms,
            pending_entries=tuple(self._lists[record.number]),
        )  # fmt: skip


def _values(info: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, as they are."""
    return {each.name: getattr(info, each.name) for each in fields(info)}
