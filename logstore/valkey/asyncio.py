"""valkey-py's asyncio client on a store in the same process.

``from logstore.valkey.asyncio import Valkey``: a ``valkey.asyncio.Valkey`` whose connections lead
to the store. Commands run in threads, so that the event loop is never held up.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from valkey.asyncio import Valkey as AsyncValkey
from valkey.asyncio.connection import Connection, ConnectionPool

from logstore.wire.embedded import Shared
from logstore.wire.links import StreamLink
from logstore.wire.opening import pool_of, taken
from logstore.wire.service import Profile


class EmbeddedConnection(StreamLink, Connection):
    """A connection of valkey-py's asyncio client that leads to a store in this process."""


class Valkey(AsyncValkey):  # pyright: ignore[reportGeneralTypeIssues]  (takes it for this module)
    """A ``valkey.asyncio.Valkey`` on the store at ``path``; as :class:`logstore.valkey.Valkey`."""

    def __init__(
        self, path: str | os.PathLike[str], *, compat: Profile = "valkey-9",
        store: dict[str, Any] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        with taken(path, compat, store) as key:
            super().__init__(
                connection_pool=pool_of(ConnectionPool, EmbeddedConnection, key, options)
            )
            self.auto_close_connection_pool = True
        self._service_key: str | None = key

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """End its connections, and close the store if no other client of this process has it."""
        await super().aclose(close_connection_pool)
        key, self._service_key = self._service_key, None
        if key is not None:
            await asyncio.to_thread(Shared.give_back, key)


__all__ = ["EmbeddedConnection", "Valkey"]
