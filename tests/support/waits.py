"""Waiting for what another thread or process does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 120.0  # a limit only for what would never come true


def eventually(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until it holds; AssertionError if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.001)


async def eventually_async(condition: Callable[[], object]) -> None:
    """The same, while the event loop goes on."""
    await asyncio.to_thread(eventually, condition)
