"""What the tests of scheduled entries share: a clock to set, and what wakes a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import logstore
from logstore.api.store import Store
from logstore.api.stream import Stream

START_MS = 1_700_000_000_000


class SetClock:
    """A clock that stands until it is set."""

    def __init__(self, ms: int = START_MS) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        """What it was set to."""
        return self.ms


def opened(path: Path, clock: SetClock, **limits: int) -> Store[Any]:
    """The store, with nobody awake in it."""
    return logstore.open(path, encoding="utf-8", sync="os", background=False, clock=clock, **limits)


def values(stream: Stream[Any]) -> list[str]:
    """The entries of a stream that was given one field, ``n``."""
    return [entry.fields["n"] for entry in stream]


def waiting(stream: Stream[Any]) -> list[str]:
    """The same of what is scheduled."""
    return [entry.fields["n"] for entry in stream.scheduled()]
