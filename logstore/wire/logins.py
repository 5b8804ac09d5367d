"""Failed logins: counted, written to the log, and answered the later, the more an address has had.

Invariants: the log never has a password; what is kept of addresses is bounded, and forgotten; a
login that is right is never delayed. Knows no socket: who answers waits ``delay_s``.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from logstore.wire.log_limiter import Seldom, shown

FIRST_S = 0.05
MOST_S = 2.0
FORGET_S = 300.0
ADDRESSES_MAX = 4096


class Logins:
    """The failed logins of one server."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()  # by host: how many
        self._log = Seldom()

    def failed(self, address: str, user: bytes) -> float:
        """Note one; for how many seconds its answer is to wait: twice as long each time, to 2."""
        self._log.warn("a login failed: user %s, from %s", shown(user), address)
        host = address.rpartition(":")[0] or address
        now = time.monotonic()
        count, before = self._failures.pop(host, (0, now))
        count = 1 if now - before > FORGET_S else count + 1
        self._failures[host] = (count, now)
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)
        return min(FIRST_S * 2.0 ** min(count - 1, 20), MOST_S)
