"""Retention: dropping what a stream's settings no longer keep, in whole nodes, from the old end.

Looks at snapshots first and takes no lock while nothing is due; what goes is decided once more
under the writer lock, a bounded number of nodes a commit. Nodes go as approximate trimming drops
them: what groups hold of their entries stays pending, ``max_deleted`` stays as it is, and so does a
stream that got empty.

Invariants: a node goes only whole; of a stream that is kept until it is shipped, only one that was
written before the end of what was shipped last (the open node: if nothing changed since); for its
bytes alone the last node never goes; a clock that goes back drops nothing. Several processes do not
share the work: one that finds another at it leaves it.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams.removal import state_record
from logstore.engine.txn import nodes
from logstore.engine.txn.nodes import NodeRef, View
from logstore.errors import CorruptionError, LockTimeoutError
from logstore.features.setting_rows import OF_STREAM, SettingRows
from logstore.ids import ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.log import file_names, shipfile
from logstore.log import frame as frames
from logstore.log.shipfile import ShipRecord
from logstore.options import StreamSettings, restored
from logstore.tuples import NamedTuple

LOOK_S = 1.0
LOOK_SHARE = 0.02  # of the time at most goes into looking
STREAMS_A_LOOK = 1000
NODES_A_COMMIT = 100  # about a millisecond under the lock
TICK_S = 0.1  # of work, then what else is due has its turn
PAUSE_S = 0.002  # between commits, for those who wait for the lock
FAILED_AGAIN_S = 60.0  # when to try again with a stream whose nodes are damaged


class Dropped(NamedTuple):
    """What one commit dropped, and whether there may be more."""

    entries: int
    more: bool


def surplus(
    view: View,
    record: StreamRecord,
    settings: StreamSettings,
    now_ms: int,
    most: int,
    shipped: ShipRecord,
) -> list[NodeRef]:
    """The oldest nodes that the settings do not keep, at most so many."""
    oldest, length, size = ZERO_ID, record.length, 0
    if settings.max_age_ms is not None:
        oldest = StreamID(max(0, now_ms - settings.max_age_ms), 0)
    if settings.max_bytes is not None:
        node = view.open_node(record.number) if record.open_version else None
        size = record.node_bytes + (nodes.open_bytes(node) if node is not None else 0)
    too_many = settings.max_entries is not None and length > settings.max_entries
    too_large = settings.max_bytes is not None and size > settings.max_bytes
    going: list[NodeRef] = []
    if not (too_many or too_large or record.first < oldest):
        return going  # as nearly always: no node is looked at
    for ref in nodes.refs(view, record):
        if len(going) >= most:
            break
        last = ref.locator is None or (not record.open_version and len(going) + 1 == record.nodes)
        goes = ref.last < oldest
        if settings.max_entries is not None:
            goes = goes or length > settings.max_entries <= length - ref.live
        if settings.max_bytes is not None:
            goes = goes or (size > settings.max_bytes and not last)
        if not goes or (settings.keep_until_shipped and not _covers(shipped, record, ref)):
            break
        going.append(ref)
        length -= ref.live
        size -= ref.locator.payload_bytes if ref.locator is not None else 0
    return going


def _covers(shipped: ShipRecord, record: StreamRecord, ref: NodeRef) -> bool:
    at = record.position if ref.locator is None else ref.locator.position
    return shipped.covers(at)


def drop(txn: WriteTxn, stream: int, shipped: ShipRecord) -> Dropped:
    """Drop what a stream does not keep, some nodes of it: one commit's part."""
    record = txn.record(stream)
    if record is None:
        return Dropped(0, more=False)
    settings = txn.settings.stream(stream)
    going = surplus(txn, record, settings, txn.now_ms, NODES_A_COMMIT, shipped)
    if not going:
        return Dropped(0, more=False)
    entries = sum(ref.live for ref in going)
    size = sum(ref.locator.payload_bytes for ref in going if ref.locator is not None)
    txn.emit(frames.Trim(stream, *going[0].master, *going[-1].master))
    state_record(txn, record, record.length - entries, record.max_deleted, first_gone=True)
    txn.counts["retained_entries"] += entries
    txn.counts["retained_bytes"] += size
    return Dropped(entries, more=len(going) == NODES_A_COMMIT)


def look(view: Snapshot, after: int, now_ms: int, shipped: ShipRecord) -> tuple[list[int], int]:
    """Streams above ``after`` with something to drop; the last one looked at, 0 at the end."""
    due: list[int] = []
    for count, (number, kept) in enumerate(SettingRows(view.index).rows(OF_STREAM, after), 1):
        settings = restored(StreamSettings, kept)
        record = view.index.record(number) if settings.retains else None
        try:
            if record is not None and surplus(view, record, settings, now_ms, 1, shipped):
                due.append(number)
        except CorruptionError:
            due.append(number)  # it is told where it can be passed over
        if count == STREAMS_A_LOOK:
            return due, number
    return due, 0


def run(engine: Engine, committer: Committer) -> int:
    """Drop all that no stream keeps, by call; how many entries went."""
    entries = after = 0
    shipped = shipfile.read(engine.fs, engine.path)
    while True:
        now_ms = engine.clock.now_ms()
        due, after = snapshot.read(
            engine, partial(look, after=after, now_ms=now_ms, shipped=shipped)
        )
        for number in due:
            more = True
            while more:
                dropped = _commit(committer, number, shipped)
                entries, more = entries + dropped.entries, dropped.more
        if not after:
            return entries


def _commit(committer: Committer, number: int, shipped: ShipRecord) -> Dropped:
    dropped: Dropped = committer.free(partial(drop, stream=number, shipped=shipped))
    if dropped.more:
        time.sleep(PAUSE_S)
    return dropped


class Retention:
    """Keeps a store's streams to their settings, for one process, bit by bit."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer
        self._next_s = 0.0
        self._after = 0  # the last stream that was looked at
        self._looked_s = 0.0
        self._due: deque[int] = deque()
        self._failed: dict[int, float] = {}
        self._shipped = shipfile.NEVER  # when it was last looked

    def tick(self) -> None:
        """Do what is due, for a bounded time."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_S  # whatever fails below is not tried at once
        if not self._due:
            self._look()
        if self._due:
            try:
                with maintenance_locks.alone(self._engine, 0, file_names.INDEX):
                    self._work(now_s + TICK_S)
            except LockTimeoutError:
                self._due.clear()  # another process does it
        if self._due or self._after:
            self._next_s = now_s  # the rest is for the next tick
            return
        self._next_s = now_s + max(LOOK_S, self._looked_s / LOOK_SHARE)
        self._looked_s = 0.0

    def _look(self) -> None:
        started_s = time.monotonic()
        after, self._after = self._after, 0
        engine, now_ms = self._engine, self._engine.clock.now_ms()
        self._shipped = shipfile.read(engine.fs, engine.path)
        due, self._after = snapshot.read(
            engine, partial(look, after=after, now_ms=now_ms, shipped=self._shipped)
        )
        self._due.extend(stream for stream in due if self._failed.get(stream, 0.0) <= started_s)
        self._looked_s += time.monotonic() - started_s

    def _work(self, until_s: float) -> None:
        while self._due and time.monotonic() < until_s:
            number = self._due[0]
            try:
                more = _commit(self._committer, number, self._shipped).more
            except CorruptionError as exc:
                log.warning("retention passes over stream %d for now: %s", number, exc)
                self._failed[number] = time.monotonic() + FAILED_AGAIN_S
                more = False
            if not more:
                self._due.popleft()
