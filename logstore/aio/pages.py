"""Iterators between asyncio and the plain faces: some items at a time, each time in a thread.

Invariant: nothing is fetched before it is asked for, and no page is larger than was asked for.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

R = TypeVar("R")
PAGE_ENTRIES = 256  # entries an iterator fetches at once


async def pages(
    run: Callable[[Callable[[], list[R]]], Awaitable[list[R]]],
    found: Iterator[R],
    size: int = PAGE_ENTRIES,
) -> AsyncIterator[R]:
    """What a plain iterator gives, fetched so many at a time by what runs calls in a thread."""
    while items := await run(lambda: list(itertools.islice(found, size))):
        for each in items:
            yield each


class Feed(Iterator[Any]):
    """Rows that came so far; it ends where there are none, and goes on when there are more."""

    def __init__(self) -> None:
        self.rows: deque[Any] = deque()

    def __next__(self) -> Any:
        if not self.rows:
            raise StopIteration
        return self.rows.popleft()
