"""What makes a connection of a client library lead to a store in this process, of either library.

redis-py and valkey-py have the same connections, each its own: these classes stand in front of
them. Bytes go to the session and come back, so that the library's own packing and parsing is used.
Knows no client library.
"""

from __future__ import annotations

import asyncio
from typing import Any

from logstore.aio.turn import Tasks
from logstore.aio.wait import Watcher
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
        """What is shown of it."""
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
