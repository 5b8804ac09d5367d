"""What the tests of the operations share: a clock that stands still, an open store, the peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from tests.peers.servers import peer, redis_peer, valkey_peer
from tests.support.inside import FixedClock

__all__ = ["clock", "open_store", "peer", "redis_peer", "store", "valkey_peer"]

OpenStore = Callable[..., Store[Any]]


@pytest.fixture
def clock() -> FixedClock:
    """A clock that only the test moves."""
    return FixedClock(1_700_000_000_000)


@pytest.fixture
def open_store(tmp_path: Path, clock: FixedClock) -> Iterator[OpenStore]:
    """Opens the test's store, with weak durability, and closes every handle in the end."""
    made: list[Store[Any]] = []

    def open_it(path: Path = tmp_path / "store", **options: Any) -> Store[Any]:
        made.append(logstore.open(path, **{
            "sync": "os", "background": False, "clock": clock, **options,
        }))  # fmt: skip
        return made[-1]

    yield open_it
    for store in made:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> Store[bytes]:
    """An open, empty store with small nodes."""
    return open_store(node_max_entries=5)
