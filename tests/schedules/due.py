"""What the tests of scheduled entries share: a clock to set, and what wakes a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import logstore
from logstore.api.store import Store
from logstore.api.stream import Stream
from tests.support.inside import FixedClock


def opened(path: Path, clock: FixedClock, **limits: int) -> Store[Any]:
    """The store, with nobody awake in it."""
    return logstore.open(path, encoding="utf-8", sync="os", background=False, clock=clock, **limits)


def values(stream: Stream[Any]) -> list[str]:
    """The entries of a stream that was given one field, ``n``."""
    return [entry.fields["n"] for entry in stream]


def waiting(stream: Stream[Any]) -> list[str]:
    """The same of what is scheduled."""
    return [entry.fields["n"] for entry in stream.scheduled()]
