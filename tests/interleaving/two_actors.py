"""Works that are stopped where a bug was found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interleaving import works
from tests.interleaving.actor import Actor, Stopped, WorkResult
from tests.interleaving.handle import Work, begin
from tests.interleaving.points import Point

OPEN = works.nothing("open", lambda at: setattr(at, "store", at.open()))
WORKS = {
    work.name: work
    for work in (
        OPEN, works.READ, works.FORK, works.READONLY, works.CHECKPOINT, works.add("a", 1),
        works.SCAN, works.PURGE, works.SYNC,
    )
}  # fmt: skip


LAZILY = WORKS | {
    "open": works.nothing("open", lambda at: setattr(at, "store", at.open(sync="os")))
}


@contextmanager
def two_actors(path: Path, first: dict[str, Work] = WORKS) -> Iterator[tuple[Actor, Actor]]:
    """Two processes that have one store open; the first of them with these works."""
    begin(path)
    with Actor(path, first) as one, Actor(path, WORKS) as other:
        assert one.do("open") == other.do("open") == WorkResult()
        yield one, other


def stopped(actor: Actor, work: str, point: str) -> Stopped:
    """Stop it there."""
    actor.tell(work, Point(point, 1))
    found = actor.hear()
    assert isinstance(found, Stopped), found
    return found
