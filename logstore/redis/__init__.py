"""redis-py on a store in the same process: ``from logstore.redis import Redis; Redis("path")``.

What it gives is a ``redis.Redis``, unmodified but for where its connections lead: no socket, no
server. Pipelines, transactions and blocking reads work as they do over a network. It needs the
package ``redis``. For asyncio there is :mod:`logstore.redis.asyncio`.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

from typing import Any

import redis

from logstore.redis.connection import EmbeddedConnection, EmbeddedPool
from logstore.wire.embedded import Shared
from logstore.wire.embedded_client import Embedded


class Redis(Embedded, redis.Redis):  # pyright: ignore[reportGeneralTypeIssues]  (for this module)
    """A ``redis.Redis`` on the store at ``path``, which is opened, or made, with ``store`` options.

    ``options`` are those of ``redis.Redis`` (``decode_responses``, ``protocol``, ...).
    """

    _pool_kind = EmbeddedPool
    _connection_kind = EmbeddedConnection

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command and return its reply.

        The short way leaves out what redis-py reckons of a network: its metrics.
        """
        pool: Any = self.connection_pool
        connection: EmbeddedConnection | None = None
        if self.connection is None and isinstance(pool, EmbeddedPool) and not pool.cache:
            connection = pool.borrow()
        if connection is None:
            return super().execute_command(*args, **options)

        def run() -> Any:
            connection.send_command(*args, **options)
            return self.parse_response(connection, args[0], **options)

        try:
            return connection.retry.call_with_retry(run, lambda _: connection.disconnect())
        finally:
            pool.give_back(connection)

    def close(self) -> None:
        """End its connections, and close the store if no other client of this process has it."""
        super().close()
        key = self._leave()
        if key is not None:
            Shared.give_back(key)


__all__ = ["EmbeddedConnection", "Redis"]
