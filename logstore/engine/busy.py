"""Whether a thread is inside a call of the store.

Invariant: set and cleared by stores of an attribute, which no interrupt can fall into. Never
compiled: the class of a thread-local cannot be.
"""

from __future__ import annotations

import threading


class Busy(threading.local):
    """One flag a thread."""

    now = False
