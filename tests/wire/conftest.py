"""Real servers, for every test of this folder."""

from tests.peers.servers import peer, redis_peer, valkey_peer  # noqa: F401
