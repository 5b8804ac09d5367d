"""A store, a clock that stands still, the peers."""

from tests.peers.servers import peer, redis_peer, valkey_peer
from tests.store.conftest import clock, open_store, store

__all__ = ["clock", "open_store", "peer", "redis_peer", "store", "valkey_peer"]
