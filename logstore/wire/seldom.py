"""Messages that strangers can cause: written once, then counted, so that they cannot fill a disk.

Invariant: of one kind at most one line in ``EACH_S`` seconds; what was not written is told in the
next line, so the counts are exact.
"""

from __future__ import annotations

import logging
import time

log = logging.getLogger("logstore.server")
EACH_S = 60.0
SHOWN_MAX = 64


class Seldom:
    """One kind of message."""

    def __init__(self, each_s: float = EACH_S) -> None:
        self._each_s = each_s
        self._next_s = 0.0
        self._silent = 0

    def warn(self, message: str, *arguments: object) -> None:
        """Write it as a warning, or count it if one was written shortly before."""
        now = time.monotonic()
        if now < self._next_s:
            self._silent += 1
            return
        self._next_s = now + self._each_s
        if self._silent:
            message += "; %d more like this since the last line"
            arguments = (*arguments, self._silent)
            self._silent = 0
        log.warning(message, *arguments)


class Lasting:
    """A state of trouble: one line when it begins, and one when it is over."""

    def __init__(self, begun: str, over: str) -> None:
        self._begun = Seldom()
        self._messages = (begun, over)
        self._lasts = False

    def begin(self, *arguments: object) -> None:
        """It is so now; nothing if it was so before."""
        if not self._lasts:
            self._lasts = True
            self._begun.warn(self._messages[0], *arguments)

    def end(self) -> None:
        """It is over; nothing if it was not so."""
        if self._lasts:
            self._lasts = False
            log.info(self._messages[1])


def shown(text: bytes) -> str:
    """A name that a stranger gave, in a form that is safe in a log: short, on one line."""
    cut = text[:SHOWN_MAX]
    return ascii(cut.decode("utf-8", "backslashreplace")) + ("..." if len(text) > SHOWN_MAX else "")
