"""A process's hold of a store, what a piece of work is, and the store in which all of it begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import logstore
from logstore.log import file_names
from tests.crash.states import store_content
from tests.crash.states.model import model_content, pairs, text, value
from tests.model.store import StoreModel
from tests.support.inside import FixedClock

LIMITS: dict[str, int] = {"segment_bytes": 64 * 1024, "node_max_entries": 4}
Answer = Any


class StoreHandle:
    """A process's hold of a store."""

    store: logstore.Store[bytes]
    reading: logstore.Store[bytes] | None = None

    def __init__(self, path: Path, lock_timeout: float) -> None:
        self.path, self.clock, self.lock_timeout = path, FixedClock(), lock_timeout

    def open(self, **options: Any) -> logstore.Store[bytes]:
        """A handle, without threads of its own, so that every run is alike."""
        given: dict[str, Any] = {
            "sync": "always", "background": False, "clock": self.clock,
            "lock_timeout": self.lock_timeout,
        }  # fmt: skip
        if not (self.path / file_names.STORE).exists():
            given |= LIMITS
        return logstore.open(self.path, **given | options)

    def leave(self) -> None:
        """Let go of what is kept for the next look."""
        if self.reading is not None:
            self.reading.close()

    def content(self) -> Answer:
        """All that can be read."""
        return store_content.plain(store_content.content(self.store, self.clock))


class Work(NamedTuple):
    """One thing to do."""

    name: str
    do: Callable[[StoreHandle], Answer]
    model: Callable[[StoreModel], Answer]
    locks: bool | None = True  # it takes LOCK; None: if there is something to do
    cares: bool = False  # it takes the maintenance lock
    fresh: bool = False  # done by a process that has the store not open, and closes it after


def fields(n: int, size: int = 30) -> dict[str, bytes]:
    """Of an entry."""
    return {"v": value(n, size)}


def added(model: StoreModel, name: str, n: int, size: int = 30) -> str:
    """One entry more; its ID."""
    return text(model.add(name.encode(), pairs(n, size)))


def seen(model: StoreModel) -> Answer:
    """What a reader must see."""
    return model_content(model)


def begin(path: Path) -> None:
    """A store with sealed segments, some of them mostly dead; open nodes; a group; settings."""
    at = StoreHandle(path, 10.0)
    with at.open() as store:
        a, b, c, r = (store.stream(name) for name in "abcr")
        a.add_many([(f"{n}-1", fields(n, 1500)) for n in range(1, 31)])
        c.add_many([(f"{n}-1", fields(n, 400)) for n in range(1, 9)])
        a.add_many([(f"{n}-1", fields(n, 1500)) for n in range(31, 61)])
        a.delete(*[f"{n}-1" for n in range(5, 30)])
        b.add_many([(f"{n}-1", fields(n)) for n in range(1, 13)])
        b.group("g").create("0")
        b.group("g").read("one", count=4)
        r.add_many([(f"{n}-1", fields(n, 300)) for n in range(1, 31)])
        r.configure(max_entries=10)
        store.create("empty")
