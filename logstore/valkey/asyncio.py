"""valkey-py's asyncio client on a store in the same process.

``from logstore.valkey.asyncio import Valkey``: a ``valkey.asyncio.Valkey`` whose connections lead
to the store. Commands run in threads, so that the event loop is never held up.
"""

from __future__ import annotations

from valkey.asyncio import Valkey as AsyncValkey
from valkey.asyncio.connection import Connection, ConnectionPool

from logstore.wire.embedded_client import AsyncEmbedded, StreamLink


class EmbeddedConnection(StreamLink, Connection):
    """A connection of valkey-py's asyncio client that leads to a store in this process."""


class Valkey(AsyncEmbedded, AsyncValkey):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    """A ``valkey.asyncio.Valkey`` on the store at ``path``; as :class:`logstore.valkey.Valkey`."""

    _pool_kind = ConnectionPool
    _connection_kind = EmbeddedConnection
    _compat = "valkey-9"


__all__ = ["EmbeddedConnection", "Valkey"]
