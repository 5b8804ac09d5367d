"""Iterators of the plain faces for asyncio: some items at a time, each time in a thread.

Invariant: nothing is fetched before it is asked for, and no page is larger than was asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar

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
