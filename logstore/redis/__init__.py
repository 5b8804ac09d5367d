"""redis-py on a store in the same process: ``from logstore.redis import Redis; Redis("path")``.

What it gives is a ``redis.Redis``, unmodified but for where its connections lead: no socket, no
server. Pipelines, transactions and blocking reads work as they do over a network. It needs the
package ``redis``. For asyncio there is :mod:`logstore.redis.asyncio`.
"""

from __future__ import annotations

import os
from typing import Any

import redis
from redis.connection import Connection, ConnectionPool

from logstore.wire.embedded import EmbeddedSocket, Shared
from logstore.wire.service import Profile


class EmbeddedConnection(Connection):
    """A connection of redis-py that leads to a store in this process."""

    def __init__(self, *args: Any, service_key: str, **options: Any) -> None:
        self._service_key = service_key
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]

    def _connect(self) -> Any:
        made = EmbeddedSocket(Shared.service(self._service_key))
        made.settimeout(self.socket_timeout)
        return made

    def repr_pieces(self) -> list[tuple[str, Any]]:
        """What is shown of it."""
        return [("path", self._service_key)]


class Redis(redis.Redis):  # pyright: ignore[reportGeneralTypeIssues]  (takes it for this module)
    """A ``redis.Redis`` on the store at ``path``, which is opened, or made, with ``store`` options.

    ``options`` are those of ``redis.Redis`` (``decode_responses``, ``protocol``, ...).
    """

    def __init__(
        self, path: str | os.PathLike[str], *, compat: Profile = "redis-8.10",
        store: dict[str, Any] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self._service_key: str | None = Shared.take(path, compat, store or {})
        try:
            pool = ConnectionPool(
                connection_class=EmbeddedConnection, service_key=self._service_key,
                socket_timeout=options.pop("socket_timeout", None), **options,
            )  # fmt: skip
            super().__init__(connection_pool=pool)
            self.auto_close_connection_pool = True
        except BaseException:
            Shared.give_back(self._service_key)
            raise

    def close(self) -> None:
        """End its connections, and close the store if no other client of this process has it."""
        super().close()
        key, self._service_key = self._service_key, None
        if key is not None:
            Shared.give_back(key)


__all__ = ["EmbeddedConnection", "Redis"]
