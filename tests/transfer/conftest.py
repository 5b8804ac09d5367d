"""A store, a clock that stands still, the peers; a server of its own that may be killed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.servers import binary_of, peer, redis_peer, valkey_peer
from tests.store.conftest import clock, open_store, store
from tests.transfer.durable import DurableServer

__all__ = ["clock", "durable", "open_store", "peer", "redis_peer", "store", "valkey_peer"]


@pytest.fixture(params=["redis", "valkey"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DurableServer]:
    """A server with an append-only file, each kind in turn."""
    binary = binary_of(request.param)
    if binary is None:
        pytest.skip(f"no {request.param} server")
    server = DurableServer(binary, tmp_path / "server")
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def client(durable: DurableServer) -> Iterator[Any]:
    """A client of the server that is followed."""
    made = durable.client()
    yield made
    made.close()
