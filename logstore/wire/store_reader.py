"""Where a look reads: the store as it stands, in a thread that may wait, or in the loop at once.

Invariants: each call is of one moment; what has to wait in the loop, or fails there, has read
nothing (``NotNow``): the thread meets the same, and may wait, look again, or say what is wrong.
Records and the first entries of an interval come from the read core where that has them. What a
look reads inside a commit is told by ``together.StateReader``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import NotNow, Snapshot
from logstore.engine.streams import read
from logstore.engine.streams.read import Batch
from logstore.index.keys import StreamRecord
from logstore.wire.resp.outgoing import Cut, Owed
from logstore.wire.steps import RangeQuery

T = TypeVar("T")


class StoreReader:
    """Reads of the store as it stands."""

    _on_snapshot: ClassVar[read.SnapshotRead] = staticmethod(snapshot.read)

    def __init__(self, store: Store[bytes], owed: Owed) -> None:
        self._engine = opened_of(store).engine()
        self.rows = owed.rows
        self.check = owed.check

    def once(self, batch: Callable[[Snapshot], T]) -> T:
        """What ``batch`` reads on one snapshot."""
        self.check()
        found: T = self._on_snapshot(self._engine, batch)
        return found

    def record(self, key: bytes) -> StreamRecord | None:
        """The record of a stream."""
        return read.record(self._engine, key, self._on_snapshot)

    def batch(self, query: RangeQuery) -> Batch | None:
        """What a query finds, by the read core if that has what it needs."""
        self.check()
        asked = read.RangeRead(query.low, query.high, query.limit, query.reverse, maker=query.maker)
        return read.read_batch(self._engine, query.key, asked, self._on_snapshot)

    @property
    def now_ms(self) -> int:
        """The store's clock."""
        return self._engine.clock.now_ms()


class ReaderAtOnce(StoreReader):
    """The same without a wait: ``NotNow``."""

    _on_snapshot: ClassVar[read.SnapshotRead] = staticmethod(snapshot.read_at_once)

    def batch(self, query: RangeQuery) -> Batch | None:
        """What a query finds."""
        try:
            return super().batch(query)
        except (Cut, NotNow):
            raise
        except Exception as exc:
            raise NotNow from exc
