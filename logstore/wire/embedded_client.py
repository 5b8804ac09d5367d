"""What makes a client of redis-py or valkey-py lead to a store in this process.

The client libraries have the same clients and connections, each its own: the classes here stand in
front of them. ``Embedded`` opens the store, makes a pool of connections that lead to it, and gives
the store back; bytes go to the session and come back, so that the library's own packing and parsing
is used. Invariant: a client that could not be made, or was closed, has given the store's service
back, once. Knows no client library.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from logstore.aio.tasks import Tasks
from logstore.aio.wait import Watcher
from logstore.errors import OptionError
from logstore.options import Profile
from logstore.wire.embedded import Direct, EmbeddedSocket, Shared


class Writer:
    """What the connection writes to: runs what was written, in order."""

    def __init__(self, direct: Direct, reader: asyncio.StreamReader, watcher: Watcher) -> None:
        self._direct = direct
        self._tasks = Tasks(watcher, asyncio.to_thread)
        self._reader = reader
        self._parts: list[bytes] = []
        self._tail: asyncio.Task[None] | None = None
        self._closed = False

    def write(self, data: bytes) -> None:
        """Take bytes of requests."""
        self._parts.append(bytes(data))

    def writelines(self, lines: Any) -> None:
        """Take several pieces of bytes of requests."""
        self._parts += [bytes(line) for line in lines]

    async def drain(self) -> None:
        """Run what was written; its replies come to the reader."""
        data, self._parts = b"".join(self._parts), []
        if data:
            self._tail = asyncio.ensure_future(self._run(data, self._tail))

    async def _run(self, data: bytes, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            self._reader.feed_data(await asyncio.to_thread(self._feed, data))
            while self._direct.waits and not self._closed:
                await self._direct.wait_in_task(self._tasks)
                self._reader.feed_data(self._direct.encoded())
            if self._direct.session.closing:
                self._reader.feed_eof()
        except Exception as exc:  # noqa: BLE001  whoever reads is told
            self._reader.set_exception(exc)

    def _feed(self, data: bytes) -> bytes:
        self._direct.feed(data)
        return self._direct.encoded()

    def close(self) -> None:
        """End the session."""
        if not self._closed:
            self._closed = True
            self._direct.close()

    async def wait_closed(self) -> None:
        """Until it is ended."""
        if self._tail is not None:
            await asyncio.wait([self._tail])

    def is_closing(self) -> bool:
        """Whether it was ended."""
        return self._closed

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        """There is no socket to tell of."""
        return default


class Link:
    """A connection to the service of a key."""

    def __init__(self, *args: Any, service_key: str, **options: Any) -> None:
        self._service_key = service_key
        super().__init__(*args, **options)

    def repr_pieces(self) -> list[tuple[str, Any]]:
        """What the representation of the connection shows."""
        return [("path", self._service_key)]


class SocketLink(Link):
    """One of a client whose calls wait."""

    socket_timeout: float | None

    def _connect(self) -> Any:
        made = EmbeddedSocket(Shared.service(self._service_key))
        made.settimeout(self.socket_timeout)
        return made


class StreamLink(Link):
    """One of a client for asyncio."""

    async def _connect(self) -> None:
        reader = asyncio.StreamReader(limit=1 << 30)
        self._reader: Any = reader
        self._writer: Any = Writer(
            Direct(Shared.service(self._service_key)), reader, Shared.watcher(self._service_key)
        )


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
        self,
        path: str | os.PathLike[str],
        *,
        compat: Profile | None = None,
        store: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
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
    """A client for asyncio on the store at a path."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """End its connections, and close the store if no other client of this process has it."""
        ended: Any = super()
        await ended.aclose(close_connection_pool)
        key = self._leave()
        if key is not None:
            await asyncio.to_thread(Shared.give_back, key)
