"""A process that is killed while it commits, at a named step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logstore.api.store import Store
from logstore.engine.commit import pipeline
from logstore.engine.shm.commit_words import Wake
from tests.support import processes

POINTS = ("announced", "appended", "indexed")  # before the append, behind it, behind LMDB's commit


def killed_at(point: str, store: Store[Any], work: Callable[[], object]) -> None:
    """Do some work in a child, which is killed at the first commit of it, at this point."""

    def work_and_die() -> None:
        _die_at(point, store)
        work()

    processes.killed(work_and_die)


def _die_at(point: str, store: Store[Any]) -> None:
    def die(*_: Any) -> None:
        processes.die()

    engine = store._engine()  # opened anew in the child
    if point == "announced":
        file = engine.active_file(engine.wake.log().active_segment)
        file.pwrite = die  # type: ignore[method-assign]
    elif point == "appended":
        pipeline._keep_promise = die
    else:
        Wake.publish = die  # type: ignore[method-assign]
