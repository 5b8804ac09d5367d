"""The peers as fixtures."""

from tests.peers.servers import redis_peer, valkey_peer

__all__ = ["redis_peer", "valkey_peer"]
