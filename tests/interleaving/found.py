"""Works that are stopped where a bug was found."""

from __future__ import annotations

from tests.interleaving import works
from tests.interleaving.actor import Actor, Stopped
from tests.interleaving.points import Point

OPEN = works.nothing("open", lambda at: setattr(at, "store", at.open()))
WORKS = {
    work.name: work
    for work in (
        OPEN, works.READ, works.FORK, works.READONLY, works.CHECKPOINT, works.add("a", 1),
        works.SCAN, works.PURGE, works.SYNC,
    )
}  # fmt: skip


def stopped(actor: Actor, work: str, point: str) -> Stopped:
    """Stop it there."""
    actor.tell(work, Point(point, 1))
    found = actor.hear()
    assert isinstance(found, Stopped), found
    return found
