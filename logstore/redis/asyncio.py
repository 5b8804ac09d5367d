"""redis-py's asyncio client on a store in the same process.

``from logstore.redis.asyncio import Redis``: a ``redis.asyncio.Redis`` whose connections lead to
the store. Commands run in threads, so that the event loop is never held up.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.connection import Connection, ConnectionPool

from logstore.redis.opening import pool_of, taken
from logstore.wire.embedded import Direct, Shared
from logstore.wire.service import Profile

SLICE_S = 0.5


class _Writer:
    """What the connection writes to: runs what was written, in order."""

    def __init__(self, direct: Direct, reader: asyncio.StreamReader) -> None:
        self._direct = direct
        self._reader = reader
        self._parts: list[bytes] = []
        self._tail: asyncio.Task[None] | None = None
        self._closed = False

    def write(self, data: bytes) -> None:
        """Take bytes of requests."""
        self._parts.append(bytes(data))

    def writelines(self, lines: Any) -> None:
        """The same, of several."""
        self._parts += [bytes(each) for each in lines]

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
                self._reader.feed_data(await asyncio.to_thread(self._wait))
            if self._direct.session.closing:
                self._reader.feed_eof()
        except Exception as exc:  # noqa: BLE001  whoever reads is told
            self._reader.set_exception(exc)

    def _feed(self, data: bytes) -> bytes:
        self._direct.feed(data)
        return self._direct.encoded()

    def _wait(self) -> bytes:
        self._direct.wait(time.monotonic() + SLICE_S)
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


class EmbeddedConnection(Connection):
    """A connection of redis-py's asyncio client that leads to a store in this process."""

    def __init__(self, *args: Any, service_key: str, **options: Any) -> None:
        self._service_key = service_key
        super().__init__(*args, **options)

    async def _connect(self) -> None:
        reader = asyncio.StreamReader(limit=1 << 30)
        writer: Any = _Writer(Direct(Shared.service(self._service_key)), reader)
        self._reader, self._writer = reader, writer

    def repr_pieces(self) -> list[tuple[str, Any]]:
        """What is shown of it."""
        return [("path", self._service_key)]


class Redis(AsyncRedis):  # pyright: ignore[reportGeneralTypeIssues]  (as there)
    """A ``redis.asyncio.Redis`` on the store at ``path``; as :class:`logstore.redis.Redis`."""

    def __init__(
        self, path: str | os.PathLike[str], *, compat: Profile = "redis-8.10",
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


__all__ = ["EmbeddedConnection", "Redis"]
