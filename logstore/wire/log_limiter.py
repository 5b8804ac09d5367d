"""Messages that clients can cause: a few are written, then they are counted, so that nobody can
fill a disk.

Invariant: of one kind at most so many lines at once, and then one in so many seconds; what was not
written is counted in the next line, so the counts are exact.
"""

from __future__ import annotations

import logging
import threading
import time

log = logging.getLogger("logstore.server")
EACH_S = 60.0
SHOWN_MAX = 64


class Seldom:
    """One kind of message: ``at_once`` lines, then one in ``each_s`` seconds. Safe in threads."""

    def __init__(
        self, to: logging.Logger = log, *, at_once: int = 1, each_s: float = EACH_S
    ) -> None:
        self._log = to
        self._at_once = at_once
        self._each_s = each_s
        self._left = float(at_once)
        self._looked_s = time.monotonic()
        self._silent = 0
        self._mutex = threading.Lock()

    def warn(self, message: str, *arguments: object) -> None:
        """Write it as a warning, or count it."""
        self.write(logging.WARNING, message, *arguments)

    def write(self, level: int, message: str, *arguments: object) -> None:
        """Write a line at a level of ``logging``, or count it."""
        with self._mutex:
            now = time.monotonic()
            refilled = self._left + (now - self._looked_s) / self._each_s
            self._left = min(float(self._at_once), refilled)
            self._looked_s = now
            if self._left < 1:
                self._silent += 1
                return
            self._left -= 1
            silent, self._silent = self._silent, 0
        if silent:
            message += "; %d more like this since the last line"
            arguments = (*arguments, silent)
        self._log.log(level, message, *arguments)


class Lasting:
    """A state of trouble: one line when it begins, and one when it is over."""

    def __init__(self, begun: str, over: str) -> None:
        self._begun = Seldom()
        self._messages = (begun, over)
        self._lasts = False

    def begin(self, *arguments: object) -> None:
        """The trouble is there: write a line, unless it was there before."""
        if not self._lasts:
            self._lasts = True
            self._begun.warn(self._messages[0], *arguments)

    def end(self) -> None:
        """The trouble is over: write a line, if it was there."""
        if self._lasts:
            self._lasts = False
            log.info(self._messages[1])


def shown(text: bytes) -> str:
    """A name that a stranger gave, in a form that is safe in a log: short, on one line."""
    cut = text[:SHOWN_MAX]
    return ascii(cut.decode("utf-8", "backslashreplace")) + ("..." if len(text) > SHOWN_MAX else "")
