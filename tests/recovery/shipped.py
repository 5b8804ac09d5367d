"""Stores that are shipped to a bucket."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import logstore
from logstore.api.opening import opened_of
from logstore.clock import Clock
from logstore.recovery import shipping
from logstore.recovery.shipping import Progress, Shipped

SEGMENT_BYTES = 1 << 20
ROWS = 16_000


def filled(path: Path, clock: Clock | None = None) -> logstore.Store[bytes]:
    """A store of some sealed segments, and one that is written to."""
    store = logstore.open(path, background=False, segment_bytes=SEGMENT_BYTES, clock=clock)
    store.stream("x").add_many([{"a": b"v" * 100, "n": str(n)} for n in range(ROWS)])
    store.checkpoint()
    return store


def ship(
    store: logstore.Store[bytes],
    uri: object,
    progress: Progress | None = None,
    *,
    take_over: bool = False,
    keep_ms: int = 0,
    verify: bool = False,
) -> Shipped:
    live = opened_of(store).live()
    return shipping.ship(
        live.engine,
        live.committer,
        str(uri),
        take_over=take_over,
        keep_ms=keep_ms,
        verify=verify,
        progress=progress,
    )


def ids(store: logstore.Store[bytes]) -> list[str]:
    return [str(entry.id) for entry in store.stream("x").range()]


@contextmanager
def at_once(progress_number: int, deed: Callable[[], object]) -> Iterator[Progress]:
    """A progress that does something as the file of that number is about to be sent."""
    calls: list[int] = []

    def progress(_done: int, _total: int) -> None:
        calls.append(1)
        if len(calls) == progress_number:
            deed()

    yield progress
    assert len(calls) >= progress_number


def empty_bucket(folder: Path) -> int:
    """A bucket in the folder, and the port of its server to be."""
    (folder / "bucket").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextmanager
def bucket_server(data: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """An S3-compatible server whose buckets outlive it."""
    command = [Path(sys.executable).with_name("localbucket"), data, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert server.poll() is None
                assert time.monotonic() < until
                time.sleep(0.02)
        yield server
    finally:
        server.kill()
        server.wait()


URI = (
    "s3://someone:secret@bucket/stores/a?endpoint_override=127.0.0.1%3A{port}"
    "&scheme=http&region=us-east-1"
)


def names_and_bytes(path: Path) -> dict[str, bytes]:
    """All files below ``path``."""
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}
