"""A real Redis, which an example archives."""

from tests.peers.servers import redis_peer  # noqa: F401
