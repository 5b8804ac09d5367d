"""redis-py's asyncio client on a store in the same process.

``from logstore.redis.asyncio import Redis``: a ``redis.asyncio.Redis`` whose connections lead to
the store. Commands run in threads, so that the event loop is never held up.
"""

from __future__ import annotations

from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.connection import Connection, ConnectionPool

from logstore.wire.embedded_client import AsyncEmbedded, StreamLink


class EmbeddedConnection(StreamLink, Connection):
    """A connection of redis-py's asyncio client that leads to a store in this process."""


class Redis(AsyncEmbedded, AsyncRedis):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    """A ``redis.asyncio.Redis`` on the store at ``path``; as :class:`logstore.redis.Redis`."""

    _pool_kind = ConnectionPool
    _connection_kind = EmbeddedConnection


__all__ = ["EmbeddedConnection", "Redis"]
