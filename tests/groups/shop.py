"""A store with one stream and one group, for the tests of the faces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import logstore
from logstore.api.store import Store
from tests.support.inside import FixedClock

NOW_MS = 1_700_000_000_000


@contextmanager
def shop(
    path: Path, entries: int = 0, **options: Any
) -> Iterator[tuple[Store[Any], logstore.Group[Any], FixedClock]]:
    """The store, the group "g" of the stream "work" from its start, and the clock."""
    clock = FixedClock(NOW_MS)
    given = {"sync": "os", "background": False, "clock": clock, "encoding": "utf-8", **options}
    with logstore.open(path / "store", **given) as store:
        work = store.stream("work")
        group = work.group("g", start="0")
        for number in range(1, entries + 1):
            work.add({"n": str(number)}, id=f"{number}-0")
        yield store, group, clock


def numbers(found: Any) -> list[int]:
    """The milliseconds of IDs, which the tests use as numbers."""
    return [each.id.ms for each in found]
