"""A server of a store, run in a thread of the test."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import logstore
from logstore.options import Profile
from logstore.wire.catalogue import service_of
from logstore.wire.server.server import Listen, Server
from logstore.wire.service import Service

# Of each peer that is asked, the profile that answers as it does.
SERVED_AS: dict[str, Profile] = {"redis": "redis-8.2", "valkey": "valkey-9"}


class Served:
    """A server that listens on loopback."""

    def __init__(
        self,
        service: Service,
        listen: Listen,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self.service = service
        self._loop_factory = loop_factory
        self.port = 0
        self._listen = listen
        self._ready = threading.Event()
        self._end: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(self._serve())
        except Exception as error:  # noqa: BLE001  raised by start or stop
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = Server(self.service)
        await server.start(self._listen)
        self.port = self.service.port
        self._ready.set()
        await self._end.wait()
        await server.close()

    def start(self) -> None:
        """Begin, and wait until it listens."""
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def hold_up(self, seconds: float) -> None:
        """Let its loop do nothing for so long: what comes meanwhile is there in one turn of it."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(time.sleep, seconds)

    def stop(self) -> None:
        """End it."""
        if self._loop is not None and self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error


@contextmanager
def serving(
    path: Path, *, listen: Listen | None = None, store: dict[str, Any] | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None, **options: Any,
) -> Iterator[Served]:  # fmt: skip
    """A store, served while the block runs."""
    with logstore.open(path, **(store or {})) as opened:
        made = Service(opened, **options) if "users" in options else service_of(opened, **options)
        served = Served(made, listen or Listen(port=0), loop_factory)
        served.start()
        try:
            yield served
        finally:
            served.stop()
