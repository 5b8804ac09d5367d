"""What embedded clients do when they are made and closed: take the store's service, make a pool
that leads to it, give the service back.

``Embedded`` stands in front of a client class of redis-py or valkey-py. Invariant: a client that
could not be made, or was closed, has given the service back, once. Knows no client library.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from logstore.errors import OptionError
from logstore.wire.embedded import Shared
from logstore.wire.service import Profile

T = TypeVar("T")


@contextmanager
def taken(
    path: str | os.PathLike[str], compat: Profile, store: dict[str, Any] | None
) -> Iterator[str]:
    """The key of the store's service, which is kept if the block is left without an error."""
    key = Shared.take(path, compat, store or {})
    try:
        yield key
    except BaseException:
        Shared.give_back(key)
        raise


def pool_of(kind: Callable[..., T], connection: type, key: str, options: dict[str, Any]) -> T:
    """A pool of such connections; over no network there is no time-out unless one is asked for.

    OptionError for a database: a path is one store.
    """
    if options.get("db"):
        raise OptionError(
            f"db={options['db']}: a path is one store, which is database 0; give another path"
        )
    return kind(connection_class=connection, service_key=key, **{"socket_timeout": None, **options})


class Embedded:
    """A client on the store at a path; its class names the pool, the connections, the profile."""

    _pool_kind: ClassVar[Callable[..., Any]]
    _connection_kind: ClassVar[type]
    _compat: ClassVar[Profile] = "redis-8.10"
    _service_key: str | None = None

    def __init__(
        self, path: str | os.PathLike[str], *, compat: Profile | None = None,
        store: dict[str, Any] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        made: Any = super()
        with taken(path, compat or self._compat, store) as key:
            pool = pool_of(self._pool_kind, self._connection_kind, key, options)
            made.__init__(connection_pool=pool)
            self.auto_close_connection_pool = True
        self._service_key = key

    def _leave(self) -> str | None:
        """The key that is to be given back; None if it was before, or never taken."""
        key, self._service_key = self._service_key, None
        return key


class AsyncEmbedded(Embedded):
    """The same of a client for asyncio."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """End its connections, and close the store if no other client of this process has it."""
        ended: Any = super()
        await ended.aclose(close_connection_pool)
        key = self._leave()
        if key is not None:
            await asyncio.to_thread(Shared.give_back, key)
