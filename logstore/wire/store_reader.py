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
from logstore.engine.streams.read import Batch, Maker
from logstore.ids import StreamID
from logstore.index.keys import StreamRecord
from logstore.wire.resp.outgoing import Cut, Owed

T = TypeVar("T")


class StoreReader:
    """Reads of the store as it stands."""

    _look: ClassVar[read.Look] = staticmethod(snapshot.read)

    def __init__(self, store: Store[bytes], owed: Owed) -> None:
        self._engine = opened_of(store).engine()
        self.rows = owed.rows
        self.check = owed.check

    def once(self, batch: Callable[[Snapshot], T]) -> T:
        """What ``batch`` reads on one snapshot."""
        self.check()
        found: T = self._look(self._engine, batch)
        return found

    def record(self, key: bytes) -> StreamRecord | None:
        """The record of a stream."""
        return read.record(self._engine, key, self._look)

    def batch(
        self,
        key: bytes,
        low: StreamID,
        high: StreamID,
        limit: int,
        maker: Maker | None,
        *,
        reverse: bool,
    ) -> Batch | None:
        """The first entries between two IDs, by the read core if that has what it needs."""
        self.check()
        return read.read_batch(
            self._engine, key, low, high, limit, reverse=reverse, maker=maker, look=self._look
        )

    @property
    def now_ms(self) -> int:
        """The store's clock."""
        return self._engine.clock.now_ms()


class ReaderAtOnce(StoreReader):
    """The same without a wait: ``NotNow``."""

    _look: ClassVar[read.Look] = staticmethod(snapshot.read_at_once)

    def batch(
        self,
        key: bytes,
        low: StreamID,
        high: StreamID,
        limit: int,
        maker: Maker | None,
        *,
        reverse: bool,
    ) -> Batch | None:
        """The first entries between two IDs."""
        try:
            return super().batch(key, low, high, limit, maker, reverse=reverse)
        except (Cut, NotNow):
            raise
        except Exception as exc:
            raise NotNow from exc
