"""The store for asyncio: ``async with logstore.aio.open(path) as store``."""

from logstore.aio.group import AsyncGroup
from logstore.aio.store import AsyncStore, open  # noqa: A004  the name of the plain face
from logstore.aio.stream import AsyncStream

__all__ = ["AsyncGroup", "AsyncStore", "AsyncStream", "open"]
