"""The store for asyncio: ``async with logstore.aio.open(path) as store``."""

from logstore.aio.store import AsyncDelivery, AsyncGroup, AsyncStore, AsyncStream, open  # noqa: A004  as the plain

__all__ = ["AsyncDelivery", "AsyncGroup", "AsyncStore", "AsyncStream", "open"]
