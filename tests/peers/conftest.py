"""The peers as fixtures."""

from tests.peers.servers import peer, redis_peer, valkey_peer

__all__ = ["peer", "redis_peer", "valkey_peer"]
