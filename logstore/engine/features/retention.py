"""Retention: dropping what a stream's settings no longer keep, in whole nodes, from the old end.

A sweep of streams (``background_sweep``). Nodes go as approximate trimming drops them: what groups
hold of their entries stays pending, ``max_deleted`` stays as it is, and so does a stream that got
empty.

Invariants: a node goes only whole; of a stream that is kept until it is shipped, only one that was
written before the end of what was shipped last (the open node: if nothing changed since); for its
bytes alone the last node never goes; a clock that goes back drops nothing. Several processes do not
share the work: one that finds another at it leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Committer
from logstore.engine.features.background_sweep import StreamSweep
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams.removal import Removed, state_record
from logstore.engine.txn import nodes
from logstore.engine.txn.nodes import NodeRef, View
from logstore.errors import CorruptionError
from logstore.features.setting_rows import OF_STREAM, SettingRows
from logstore.ids import ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.log import file_names, shipfile
from logstore.log import frame as frames
from logstore.log.shipfile import ShipRecord
from logstore.options import StreamSettings, restored

NODES_A_COMMIT = 100  # about a millisecond under the lock


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
        size = record.node_bytes + nodes.open_node_bytes(view, record)
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


def drop(txn: WriteTxn, stream: int, shipped: ShipRecord) -> Removed:
    """Drop what a stream does not keep, some nodes of it: one commit's part."""
    record = txn.record(stream)
    if record is None:
        return Removed(0, more=False)
    settings = txn.settings.stream(stream)
    going = surplus(txn, record, settings, txn.now_ms, NODES_A_COMMIT, shipped)
    if not going:
        return Removed(0, more=False)
    entries = sum(ref.live for ref in going)
    size = sum(ref.locator.payload_bytes for ref in going if ref.locator is not None)
    txn.emit(frames.Trim(stream, *going[0].master, *going[-1].master))
    state_record(txn, record, record.length - entries, record.max_deleted, first_gone=True)
    txn.counts["retained_entries"] += entries
    txn.counts["retained_bytes"] += size
    return Removed(entries, more=len(going) == NODES_A_COMMIT)


class Retention(StreamSweep):
    """Keeps a store's streams to their settings, for one process."""

    WHAT = "retention"
    PAUSE_S = 0.002

    def __init__(self, engine: Engine, committer: Committer) -> None:
        super().__init__(engine, committer)
        self._shipped = shipfile.NEVER  # what was shipped when a look began

    def candidates(self, view: Snapshot, after: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Streams with settings."""
        return SettingRows(view.index).rows(OF_STREAM, after)

    def has_work(self, view: Snapshot, stream: int, stored: dict[str, Any]) -> bool:
        """Whether a node goes; a damaged one does: where it is dropped, it can be passed over."""
        settings = restored(StreamSettings, stored)
        record = view.index.record(stream) if settings.retains else None
        try:
            return record is not None and bool(
                surplus(view, record, settings, view.now_ms, 1, self._shipped)
            )
        except CorruptionError:
            return True

    def work(self, txn: WriteTxn, stream: int) -> Removed:
        """Drop some nodes."""
        return drop(txn, stream, self._shipped)

    def alone(self) -> AbstractContextManager[None]:
        """No two processes share the work."""
        return maintenance_locks.alone(self._engine, 0, file_names.INDEX)

    def _streams_with_work(self) -> list[int]:
        self._shipped = shipfile.read(self._engine.fs, self._engine.path)
        return super()._streams_with_work()


def run(engine: Engine, committer: Committer) -> int:
    """Drop all that no stream keeps, by call; how many entries went."""
    return Retention(engine, committer).run()
