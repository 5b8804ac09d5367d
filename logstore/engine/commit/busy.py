"""Whether a thread is inside a call of the store, and since when that was wanted.

Invariant: set and cleared by stores of an attribute, which no interrupt can fall into. Never
compiled: the class of a thread-local cannot be.
"""

from __future__ import annotations

import threading


class Busy(threading.local):
    """One flag a thread; and since when what it does now was wanted, by ``time.monotonic_ns``."""

    now = False
    since_ns = 0  # 0: since it is called
