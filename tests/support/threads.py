"""Threads of a test that run beside each other."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def running(threads: Iterable[threading.Thread], patience_s: float | None = None) -> Iterator[None]:
    """Start them all, and wait for all of them at the end of the block, each so long at most."""
    started = list(threads)
    for each in started:
        each.start()
    yield
    for each in started:
        each.join(patience_s)


def run_all(threads: Iterable[threading.Thread], patience_s: float | None = None) -> None:
    """Start them all, then wait for all of them."""
    with running(threads, patience_s):
        pass
