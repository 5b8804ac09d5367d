"""valkey-py on a store in the same process: ``from logstore.valkey import Valkey; Valkey("path")``.

What it gives is a ``valkey.Valkey``, unmodified but for where its connections lead: no socket, no
server. It needs the package ``valkey``. For asyncio there is :mod:`logstore.valkey.asyncio`.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import valkey
from valkey.connection import Connection, ConnectionPool

from logstore.wire.embedded import Shared
from logstore.wire.embedded_client import Embedded, SocketLink


class EmbeddedConnection(SocketLink, Connection):
    """A connection of valkey-py that leads to a store in this process."""


class Valkey(Embedded, valkey.Valkey):  # pyright: ignore[reportGeneralTypeIssues]  (for this module)
    """A ``valkey.Valkey`` on the store at ``path``; as :class:`logstore.redis.Redis`.

    ``options`` are those of ``valkey.Valkey`` (``decode_responses``, ``protocol``, ...).
    """

    _pool_kind = ConnectionPool
    _connection_kind = EmbeddedConnection
    _compat = "valkey-9"

    def close(self) -> None:
        """End its connections, and close the store if no other client of this process has it."""
        key = self._leave()
        if key is not None:  # else it was closed before, or never made: `__del__` closes, too
            super().close()
            Shared.give_back(key)


__all__ = ["EmbeddedConnection", "Valkey"]
