"""The connections of one embedded client, and the short way to one of them.

Invariants: a connection that is lent is idle, connected and owes no reply; whatever else there is
to do about one is redis-py's own pool's.
"""

from __future__ import annotations

import os

from redis.connection import ConnectionPool

from logstore.redis.linked import EmbeddedConnection


class EmbeddedPool(ConnectionPool):
    """redis-py's pool, with ``borrow`` beside ``get_connection``."""

    def borrow(self) -> EmbeddedConnection | None:
        """An idle connection that can run a command; None: ``get_connection`` finds one."""
        if self.pid != os.getpid():
            return None
        with self._lock:
            idle = self._available_connections
            if not idle or not idle[-1].at_rest:
                return None
            found: EmbeddedConnection = idle.pop()
            self._in_use_connections.add(found)
        return found

    def give_back(self, connection: EmbeddedConnection) -> None:
        """What ``release`` does for one that was borrowed."""
        if self.pid != os.getpid():
            self.release(connection)
            return
        with self._lock:
            if connection in self._in_use_connections:
                self._in_use_connections.remove(connection)
                self._available_connections.append(connection)  # whoever borrows it looks at it
