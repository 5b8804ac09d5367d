"""What a server counts for INFO: connections, commands, errors by their code, commands a second.

Invariants: counted from the start, or from CONFIG RESETSTAT; a rate is that of the last second or
two, and needs no timer: it is 0 when nothing came. Knows no store.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable

from logstore.wire.reply import Encoded, Failure, Reply

CODES_MAX = 128  # kinds of errors, as in Redis
SAMPLE_S = 0.1
SAMPLES = 16
_ENCODED_ERROR = re.compile(rb"(?:\A|\n)-(\S+)")


class Counts:
    """The counts of one server."""

    def __init__(self) -> None:
        self.connections = 0
        self.rejected = 0  # connections, for want of a place
        self.commands = 0
        self.errors: dict[str, int] = {}
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)
        self._sample_at = 0.0

    def reset(self) -> None:
        """As CONFIG RESETSTAT."""
        self.connections = self.rejected = self.commands = 0
        self.errors.clear()
        self._samples.clear()

    def count(self, commands: int) -> None:
        """So many commands came."""
        now = time.monotonic()
        if now >= self._sample_at:
            self._samples.append((now, self.commands))
            self._sample_at = now + SAMPLE_S
        self.commands += commands

    def commands_a_second(self) -> int:
        """How many came in each of the last seconds, about."""
        now = time.monotonic()
        begun = now - SAMPLE_S * SAMPLES
        for when, commands in self._samples:
            if when >= begun:
                return round((self.commands - commands) / max(now - when, SAMPLE_S))
        return 0

    def note(self, replies: Iterable[Reply]) -> None:
        """Count the errors among replies, also those in what a transaction replies."""
        for reply in replies:
            kind = type(reply)
            if kind is Failure:
                self._failed(reply.text.partition(" ")[0])
            elif kind is Encoded and (b"\n-" in reply.data or reply.data[:1] == b"-"):
                for code in _ENCODED_ERROR.findall(reply.data):
                    self._failed(code.decode("utf-8", "replace"))

    def _failed(self, code: str) -> None:
        if code in self.errors or len(self.errors) < CODES_MAX:
            self.errors[code] = self.errors.get(code, 0) + 1


def human(size: int) -> str:
    """A size as INFO tells it to people."""
    if size < 1024:
        return f"{size}B"
    value = float(size)
    for unit in "KMGT":
        value /= 1024
        if value < 1024:
            return f"{value:.2f}{unit}"
    return f"{value / 1024:.2f}P"
