"""Values by key in streams of a store: set, taken, counted by many processes at once.

Invariants: a key has one entry. A change names the last ID that its stream had when the key was
read, and begins again if that is another one by then; each change gives the stream a new last ID.
Keys are spread over some streams, so that changes of different ones seldom meet.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

from logstore.api.store import Store
from logstore.api.stream import Stream
from logstore.errors import LastIDConflictError

STREAMS = 16
READ = 100  # entries at once while somebody waits


class Keys:
    """Values by key. Its methods are for any thread, and any process beside."""

    def __init__(self, store: Callable[[], Store[bytes]], name: str) -> None:
        """``store`` is asked each time; ``name``: what the names of the streams begin with."""
        self._store = store
        self._name = name
        self._ready: set[str] = set()

    def _stream(self, key: bytes) -> Stream[bytes]:
        name = f"{self._name}:{zlib.crc32(key) % STREAMS}"
        stream = self._store().stream(name)
        if name not in self._ready:
            stream.configure(compact_by="key")
            self._ready.add(name)
        return stream

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None: it is not set."""
        entry = self._stream(key).latest(key)
        return None if entry is None else entry["value"]

    def change(
        self,
        key: bytes,
        change: Callable[[bytes | None], bytes | None],
        ttl: timedelta | float | None = None,
    ) -> bool:
        """Set a key to what ``change`` makes of its value, which may be asked more than once; if
        that is None it stays as it is. Whether it was set."""
        stream = self._stream(key)
        while True:
            last = stream.last_id
            before = stream.latest(key)
            value = change(None if before is None else before["value"])
            if value is None:
                return False
            with suppress(LastIDConflictError), self._store().transaction() as tx:
                changed = tx.stream(stream.name)
                if before is not None:
                    changed.delete(before.id)
                changed.add({"key": key, "value": value}, expected_last_id=last, ttl=ttl)
                return True

    def pop(self, key: bytes) -> bytes | None:
        """Take the value of a key; None: it is not set."""
        stream = self._stream(key)
        while True:
            last = stream.last_id
            before = stream.latest(key)
            if before is None:
                return None
            with suppress(LastIDConflictError), self._store().transaction() as tx:
                changed = tx.stream(stream.name)
                changed.delete(before.id)
                # Comes and goes in this commit, so that the last ID tells others of the change.
                changed.add({"gone": ""}, id=last.next(), expected_last_id=last)
                changed.delete(last.next())
                value: bytes = before["value"]
                return value

    def all(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The keys that begin so, and their values."""
        for number in range(STREAMS):
            for entry in self._store().stream(f"{self._name}:{number}"):
                if entry["key"].startswith(start):
                    yield entry["key"], entry["value"]

    def wait(self, key: bytes, timeout: float | None) -> bool:
        """Wait until a key is set; whether it is."""
        stream = self._stream(key)
        until = None if timeout is None else time.monotonic() + timeout
        after = stream.last_id
        while stream.latest(key) is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            news = stream.read(after, count=READ, timeout=left)
            after = news[-1].id if news else after
        return True
