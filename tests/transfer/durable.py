"""A server that keeps its data over kills, and is started again on the same port."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import redis

START_S = 60.0


class DurableServer:
    """One server with an append-only file that is synced at every command."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        folder.mkdir()
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port: int = found.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = subprocess.Popen(
            [str(self._binary), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
             "--dir", str(self._folder), "--appendonly", "yes", "--appendfsync", "always",
             "--rdbcompression", "no"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        client = self.client()
        end = time.monotonic() + START_S
        while True:
            try:
                client.ping()
                break
            except redis.RedisError:
                assert self._process.poll() is None, "the server does not start"
                assert time.monotonic() < end, "the server does not answer"
                time.sleep(0.02)
        client.close()

    def kill(self) -> None:
        """End it without a word."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def client(self) -> Any:
        """A client whose replies are as they come."""
        client = redis.Redis(port=self.port, protocol=2)
        client.response_callbacks.clear()
        return client
