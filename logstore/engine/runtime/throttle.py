"""How work in the background is slowed down: so many bytes a second, at most half of the time, and
an end soon after it was told to stop.

Whoever works calls ``spend`` between two steps, with the bytes it read and wrote since, holding
nothing that others wait for. Decides nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeAlias

Pause: TypeAlias = Callable[[int], None]  # bytes read and written since the last call
STEP_S = 0.005
SLICE_S = 0.1


class StoppedError(Exception):
    """The store is being closed, or somebody waits: the work ends here. Never seen by users."""


def no_pause(_size_bytes: int) -> None:
    """For work by call, which is done as fast as it can be."""


class Throttle:
    """One run of work in the background."""

    def __init__(
        self, rate_bytes_s: float, stop: threading.Event, meanwhile: Callable[[], None],
        unwanted: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._rate_bytes_s = rate_bytes_s
        self._stop = stop
        self._meanwhile = meanwhile  # what else is due while this one rests
        self._unwanted = unwanted  # whether somebody waits for the end of it
        self._owed_s = 0.0
        self._since_s = time.monotonic()

    def spend(self, size_bytes: int) -> None:
        """Rest for what was worked since the last call; StoppedError if the end was asked for."""
        if self._stop.is_set() or self._unwanted():
            raise StoppedError
        self._owed_s += size_bytes / self._rate_bytes_s
        worked_s = time.monotonic() - self._since_s
        if self._owed_s + worked_s < STEP_S:
            return
        until_s = time.monotonic() + max(self._owed_s - worked_s, worked_s)
        while (left_s := until_s - time.monotonic()) > 0:
            if self._stop.wait(min(left_s, SLICE_S)) or self._unwanted():
                raise StoppedError
            self._meanwhile()
        self._owed_s = 0.0
        self._since_s = time.monotonic()
