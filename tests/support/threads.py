"""Threads of a test that run beside each other."""

from __future__ import annotations

import threading
from collections.abc import Iterable


def run_all(threads: Iterable[threading.Thread]) -> None:
    """Start them all, then wait for all of them."""
    made = list(threads)
    for each in made:
        each.start()
    for each in made:
        each.join()
