"""Real servers, and one of ours, for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.servers import peer, redis_peer, valkey_peer
from tests.wire.served import Served, serving

__all__ = ["peer", "redis_peer", "valkey_peer"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server without a password."""
    with serving(tmp_path / "store", profile="redis-8.2") as found:
        yield found
