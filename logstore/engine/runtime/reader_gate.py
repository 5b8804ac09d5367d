"""The gate that readers pass: it lets a closer, a fork or a reopening wait until none is inside.

Invariants: a reader holds its token for one batch; adding and discarding a token is one step each,
so that an interrupt between them leaves at most a token that ``finally`` takes away; whoever shuts
the gate waits with a time limit, and leaves what is in use alone when it runs out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
SHUT_TIMEOUT_S = 5.0
_POLL_S = 0.0005


class Gate:
    """Counts readers without a lock on their path."""

    def __init__(self) -> None:
        self._inside: dict[object, int] = {}
        self._shut = False
        self._lock = threading.RLock()

    def through(self, work: Callable[..., T], *args: Any) -> T:
        """Run one batch of reading inside the gate; what it returns."""
        token = object()
        try:
            self._inside[token] = threading.get_ident()
            while self._shut:  # checked after the token was shown: the closer sees it, or we do
                self._inside.pop(token, None)
                with self._lock:
                    pass
                self._inside[token] = threading.get_ident()
            return work(*args)
        finally:
            self._inside.pop(token, None)

    def shut(self, timeout_s: float = SHUT_TIMEOUT_S) -> bool:
        """Keep new readers out and wait for those inside; False if some would not leave.

        ``reopen`` must follow, in the same thread.
        """
        self._lock.acquire()
        self._shut = True
        deadline = time.monotonic() + timeout_s
        while self._inside:
            ours = threading.get_ident() in self._inside.copy().values()
            if ours or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def reopen(self) -> None:
        """Let readers in again."""
        self._shut = False
        self._lock.release()
