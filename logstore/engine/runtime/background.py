"""Work in the background: how it is slowed down, and how its failures are logged.

Throttle: so many bytes a second, at most half of the time, and an end soon after it was asked for.
Whoever works calls ``spend`` between two steps with the bytes it read and wrote since, holding
nothing that others wait for.

Repeated failures: what is done in the background is tried again and again, and while a writer
stands still it fails every few seconds in the same words. Those are logged at once, then after
intervals that grow to an hour. Invariants: a failure in other words is always logged; its end is
logged once, and only if the failure was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import ClassVar, TypeAlias

from logstore.logger import Logger

log = Logger("logstore")


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
        self,
        rate_bytes_s: float,
        stop: threading.Event,
        meanwhile: Callable[[], None],
        unwanted: Callable[[], bool] = lambda: False,
    ) -> None:
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


class StoreThread:
    """A thread that works for a store until it is stopped; a daemon, so no process waits for it."""

    NAME: ClassVar[str]

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name=self.NAME, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, as soon as what it does lets it. A thread that stops itself does not wait."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError


AGAIN_S, AGAIN_MAX_S, GROWTH = 60.0, 3600.0, 8
OVER_S = 5.0  # without a failure: work that is due now and then does not fail in every round


class Repeated:
    """One kind of work, in one thread at a time."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._logged = (
            ""  # the words of the failure that was logged last; empty: none, or it is over
        )
        self._began_s = self._last_s = self._next_s = 0.0
        self._wait_s = AGAIN_S
        self._count = 0

    def failed(self, exc: BaseException) -> None:
        """It failed, once more perhaps."""
        now_s, words = self._clock(), f"{type(exc).__name__}: {exc}"
        self._last_s = now_s
        if words != self._logged:
            if not self._logged:
                self._began_s, self._count = now_s, 0
            self._logged, self._wait_s = words, AGAIN_S
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
                self._what,
                self._count,
                now_s - self._began_s,
                exc,
            )

    def went(self) -> None:
        """A round went without a failure, whether there was anything to do in it or not."""
        if self._logged and self._clock() - self._last_s >= OVER_S:
            self._logged = ""
            log.warning(
                "%s works again; it had failed %d times in %.0f s",
                self._what,
                self._count,
                self._last_s - self._began_s,
            )
