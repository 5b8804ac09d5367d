"""The gate that readers pass: it lets a closer, a fork or a reopening wait until none is inside.

Invariants: a reader holds its token for one batch; adding and discarding a token is one step each,
so that an interrupt between them leaves at most a token that ``finally`` takes away; a reader shows
its token and then looks whether the gate is shut, so that the closer sees it, or it sees the closer
(``snapshot.inside``); whoever shuts the gate waits with a time limit, and leaves what is in use
alone when it runs out. Shutting and opening may be cut off by an interrupt at any place, and are
repeated then: a gate that stayed shut would keep its process from reading, and LOCK from others.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

SHUT_TIMEOUT_S = 5.0
_POLL_S = 0.0005


class Gate:
    """Counts readers without a lock on their path."""

    def __init__(self) -> None:
        self.inside: dict[object, int] = {}  # by the token of a reader: its thread
        self.is_shut = False
        self._lock = threading.RLock()

    def wait(self, token: object) -> None:
        """It was found shut: wait outside until it is open, and go in again."""
        while self.is_shut:
            self.inside.pop(token, None)
            with self._lock:
                pass
            self.inside[token] = threading.get_ident()

    def shut(self, timeout_s: float = SHUT_TIMEOUT_S) -> bool:
        """Keep new readers out and wait for those inside; False if some would not leave.

        ``reopen`` must follow, in the same thread. False, too, if another thread keeps it shut.
        """
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=timeout_s):
            return False
        self.is_shut = True
        while self.inside:
            ours = threading.get_ident() in self.inside.copy().values()
            if ours or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def reopen(self) -> None:
        """Let readers in again, if this thread kept them out. May be repeated.

        An interrupt may have cut ``shut`` off anywhere, or a first ``reopen``: the lock may be
        taken not at all, or several times.
        """
        if not self._lock.acquire(blocking=False):
            return  # another thread has it
        self.is_shut = False
        with suppress(RuntimeError):  # not taken by this thread any more
            while True:
                self._lock.release()
