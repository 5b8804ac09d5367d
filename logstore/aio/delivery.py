"""Deliveries for asyncio: what a group hands out, with an ``ack`` and a ``nack`` to await.

Invariant: an ``AsyncDelivery`` is settled when the plain delivery that it stands for is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from logstore.api.group import DeletedDelivery, Delivery
from logstore.options import NackMode

if TYPE_CHECKING:
    from logstore.ids import StreamID

T = TypeVar("T", bytes, str)
Run = Callable[[Callable[[], Any]], Awaitable[Any]]  # a call in a thread of the store


class AsyncDelivery(Delivery[T]):
    """A :class:`logstore.Delivery` of an AsyncGroup, which is its ``group``."""

    __slots__ = ("_plain", "_run")

    def __init__(self, group: Any, plain: Delivery[T], run: Run) -> None:
        self.id, self._flat, self._encoding = plain.id, plain._flat, plain._encoding
        self.deleted, self.delivery_count, self.idle = (
            plain.deleted,
            plain.delivery_count,
            plain.idle,
        )
        self._consumer, self._delivered_ms = plain._consumer, plain._delivered_ms
        self.group = group
        self._plain: Delivery[T] = plain
        self._run = run

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
        delay: timedelta | float | None = None,
        error: str = "",
    ) -> bool:
        """Not done, as ``Delivery.nack``."""
        done: bool = await self._run(lambda: self._plain.nack(mode, delay=delay, error=error))
        return done

    def _fenced(self) -> tuple[bytes, tuple[Any, ...]]:
        return self._plain._fenced()

    def _fence(self) -> dict[str, Any]:
        return self._plain._fence()


class AsyncDeletedDelivery(  # pyright: ignore[reportIncompatibleMethodOverride]
    AsyncDelivery[T], DeletedDelivery[T]
):
    """A delivery of an entry that was deleted while it was pending."""

    __slots__ = ()


class AsyncAutoclaimed(Generic[T]):
    """What ``AsyncGroup.autoclaim`` gave: ``entries``, ``deleted`` IDs, and a ``cursor``."""

    __slots__ = ("cursor", "deleted", "entries")

    def __init__(
        self, cursor: StreamID, entries: list[AsyncDelivery[T]], deleted: list[StreamID]
    ) -> None:
        self.cursor = cursor
        self.entries: list[AsyncDelivery[T]] = entries
        self.deleted = deleted

    def __repr__(self) -> str:
        return f"AsyncAutoclaimed({self.cursor}, {self.entries!r}, deleted={self.deleted!r})"


def async_delivery(group: Any, plain: Delivery[T], run: Run) -> AsyncDelivery[T]:
    """The delivery for asyncio that stands for a plain one."""
    if plain.deleted:
        return AsyncDeletedDelivery(group, plain, run)
    return AsyncDelivery(group, plain, run)
