"""valkey-py on a store in the same process: ``from logstore.valkey import Valkey; Valkey("path")``.

What it gives is a ``valkey.Valkey``, unmodified but for where its connections lead: no socket, no
server. It needs the package ``valkey``. For asyncio there is :mod:`logstore.valkey.asyncio`.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import os
from typing import Any

import valkey
from valkey.connection import Connection, ConnectionPool

from logstore.wire.embedded import Shared
from logstore.wire.links import SocketLink
from logstore.wire.opening import pool_of, taken
from logstore.wire.service import Profile


class EmbeddedConnection(SocketLink, Connection):
    """A connection of valkey-py that leads to a store in this process."""


class Valkey(valkey.Valkey):  # pyright: ignore[reportGeneralTypeIssues]  (takes it for this module)
    """A ``valkey.Valkey`` on the store at ``path``; as :class:`logstore.redis.Redis`.

    ``options`` are those of ``valkey.Valkey`` (``decode_responses``, ``protocol``, ...).
    """

    _service_key: str | None = None

    def __init__(
        self, path: str | os.PathLike[str], *, compat: Profile = "valkey-9",
        store: dict[str, Any] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        with taken(path, compat, store) as key:
            super().__init__(
                connection_pool=pool_of(ConnectionPool, EmbeddedConnection, key, options)
            )
            self.auto_close_connection_pool = True
        self._service_key = key

    def close(self) -> None:
        """End its connections, and close the store if no other client of this process has it."""
        key, self._service_key = self._service_key, None
        if key is not None:  # else it was closed before, or never made: `__del__` closes, too
            super().close()
            Shared.give_back(key)


__all__ = ["EmbeddedConnection", "Valkey"]
