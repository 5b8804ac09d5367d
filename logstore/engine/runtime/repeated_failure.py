"""Telling of a failure that repeats: once, again when it changes, and when it is over.

What is done in the background is tried again and again; while a writer stands still it fails every
few seconds, in the same words. Those are told at once, then after intervals that grow to an hour.
Invariants: a failure in other words is always told; that it is over is told once, and only if the
failure was.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from logstore.engine.runtime.engine import log

AGAIN_S, AGAIN_MAX_S, GROWTH = 60.0, 3600.0, 8
OVER_S = 5.0  # without a failure: work that is due now and then does not fail in every round


class Repeated:
    """One kind of work, in one thread at a time."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._told = ""  # the words of the failure that was told last; empty: none, or it is over
        self._began_s = self._last_s = self._next_s = 0.0
        self._wait_s = AGAIN_S
        self._count = 0

    def failed(self, exc: BaseException) -> None:
        """It failed, once more perhaps."""
        now_s, words = self._clock(), f"{type(exc).__name__}: {exc}"
        self._last_s = now_s
        if words != self._told:
            if not self._told:
                self._began_s, self._count = now_s, 0
            self._told, self._wait_s = words, AGAIN_S
            self._next_s = now_s + self._wait_s
            self._count += 1
            log.error("%s failed: %s", self._what, exc)
            return
        self._count += 1
        if now_s >= self._next_s:
            self._wait_s = min(AGAIN_MAX_S, self._wait_s * GROWTH)
            self._next_s = now_s + self._wait_s
            log.error(
                "%s still fails, %d times in %.0f s: %s",
                self._what, self._count, now_s - self._began_s, exc,
            )  # fmt: skip

    def went(self) -> None:
        """A round went without a failure, whether there was anything to do in it or not."""
        if self._told and self._clock() - self._last_s >= OVER_S:
            self._told = ""
            log.warning(
                "%s works again; it had failed %d times in %.0f s",
                self._what, self._count, self._last_s - self._began_s,
            )  # fmt: skip
