"""The store for asyncio: what keeps it durable and small, what it tells of itself, and what becomes
of dead letters; as ``api.store_care``, awaited.

Invariants: nothing here runs in the event loop but plain calls that wait for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from logstore.api.store import Store
from logstore.ids import IDLike, StreamID
from logstore.options import Sync

if TYPE_CHECKING:
    from logstore.api.dead_letters import OnDead
    from logstore.api.info import PinInfo, StoreInfo
    from logstore.recovery.shipping import Shipped

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bytes, str)


class AsyncStoreCare(Generic[T]):
    """What ``AsyncStore`` has for its durability, its space, and its keepers."""

    _store: Store[T]

    async def _run(self, work: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        """Run a plain call in a thread of the store."""
        raise NotImplementedError

    async def sync(self) -> None:
        """Make everything that was acknowledged durable before it returns."""
        await self._run(self._store.sync)

    @property
    def durable_upto(self) -> tuple[int, int]:
        """Segment and offset up to which the log is durable; a lower bound."""
        return self._store.durable_upto

    async def compact(
        self, *, purge: bool = False, full: bool = False, threshold: float = 0.5
    ) -> Any:
        """Give deleted space back, as ``Store.compact``; a report is returned."""
        return await self._run(self._store.compact, purge=purge, full=full, threshold=threshold)

    async def retain(self) -> int:
        """Drop at once what streams do not keep by their settings; how many entries went."""
        return await self._run(self._store.retain)

    async def checkpoint(self) -> int:
        """Take a checkpoint now; its bytes."""
        return await self._run(self._store.checkpoint)

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """A copy of the store in a new directory, taken without stopping anybody."""
        await self._run(self._store.backup, path)

    async def ship(self, uri: str | os.PathLike[str], *, take_over: bool = False) -> Shipped:
        """Publish the store at a URI, as ``Store.ship``."""
        return await self._run(self._store.ship, uri, take_over=take_over)

    async def info(self) -> StoreInfo:
        """What the store holds and where it stands."""
        return await self._run(self._store.info)

    async def pins(self) -> list[PinInfo]:
        """As ``Store.pins``."""
        return await self._run(self._store.pins)

    async def moment(self, *streams: str | bytes) -> str:
        """As ``Store.moment``."""
        return await self._run(self._store.moment, *streams)

    async def release_pins(self, *ids: str) -> int:
        """As ``Store.release_pins``."""
        return await self._run(self._store.release_pins, *ids)

    def metrics(self) -> dict[str, int | float]:
        """Counters of this process, as ``Store.metrics``; a plain call, which waits for nothing but
        a look at the files of pins.
        """
        return self._store.metrics()

    @property
    def recovery(self) -> dict[str, Any]:
        """What opening found and did."""
        return self._store.recovery

    # -- dead letters -------------------------------------------------------------------------
    def on_dead_letter(self, callback: OnDead[T]) -> OnDead[T]:
        """As ``Store.on_dead_letter``: a plain function, called in a thread."""
        return self._store.on_dead_letter(callback)

    async def requeue(
        self,
        dead_letter: str | bytes,
        *ids: IDLike,
        to: str | bytes | None = None,
        sync: Sync | None = None,
    ) -> list[StreamID]:
        """Give dead letters back, as ``Store.requeue``."""
        return await self._run(self._store.requeue, dead_letter, *ids, to=to, sync=sync)
