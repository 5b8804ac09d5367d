"""Dead letters: telling somebody of entries that were given up, and giving them back.

The engine moves them (``groups.dead_letter``); ``OpenStore.commit_telling`` tells of it afterwards:
a warning in the log, the callbacks that were registered with ``store.on_dead_letter``, a worker's
``on_dead``.

Invariants: telling comes after the commit, with no lock held, so that a callback may use the store;
what a callback raises is logged and goes no further. Whoever is killed in between has told nobody:
the dead letter stream itself is the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from logstore.api import entry_reads as reading
from logstore.api import units
from logstore.api.group import DeadLetter, Group, OnDead
from logstore.api.handlers import PLAIN, not_done
from logstore.api.opening import OpenStore
from logstore.engine.groups import dead_letter as back
from logstore.engine.groups.dead_letter import DeadLettered
from logstore.errors import StreamNotFoundError
from logstore.ids import ZERO_ID, StreamID
from logstore.logger import Logger
from logstore.options import Sync

T = TypeVar("T", bytes, str)
log = Logger("logstore")
WARNINGS_MAX = 10  # of one commit; the rest are summed up
REQUEUED_MAX = 500  # in one commit, where all are given back


def requeue(
    opened: OpenStore[T],
    name: bytes,
    ids: Sequence[StreamID],
    to: bytes | None,
    sync: Sync | None,
) -> list[StreamID]:
    """Give dead letters back: those with these IDs in one commit; without IDs all that are there
    now, in commits of some hundred."""
    step = partial(back.requeue, name=name, to=to)
    if ids:
        moved: list[StreamID] = opened.commit(partial(step, ids=list(dict.fromkeys(ids))), sync)
        return moved
    record, moved = opened.record(name), []
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=name)
    first, last = ZERO_ID, record.last
    while some := [
        entry.id
        for entry in reading.entries(opened, name, first, last, REQUEUED_MAX, reverse=False)
    ]:
        moved += opened.commit(partial(step, ids=some, strict=False), sync)
        if some[-1] >= last:
            break
        first = some[-1].next()
    return moved


def tell(
    opened: OpenStore[T],
    dead: list[DeadLettered],
    groups: Mapping[tuple[bytes, bytes], Group[T]],
    on_dead: OnDead[T] | None = None,
) -> None:
    """Log what was dead-lettered, then call whoever wants to know: the worker's callback first.

    ``groups``: by the names of stream and group, where the entries were pending.
    """
    from logstore.api.info import plain_text

    letters = [DeadLetter(opened, groups[letter.origin, letter.group], letter) for letter in dead]
    for letter in letters[:WARNINGS_MAX]:
        log.warning(
            "entry %s of %r moved to %r after %s (group %r, consumer %r): %s",
            letter.id,
            plain_text(letter.group.stream.name),
            plain_text(letter.dead_letter),
            units.counted(letter.delivery_count, "delivery", "deliveries"),
            plain_text(letter.group.name),
            letter.consumer and plain_text(letter.consumer),
            letter.error,
        )
    if len(letters) > WARNINGS_MAX:
        log.warning("and %d more in the same commit", len(letters) - WARNINGS_MAX)
    callbacks: list[OnDead[Any]] = list(opened.on_dead)
    if on_dead is not None:
        callbacks.insert(0, on_dead)
    for letter in letters:
        for callback in callbacks:
            try:
                undone = not_done(callback(letter), "a callback for dead letters", PLAIN)
                if undone is not None:
                    raise undone
            except Exception:
                log.exception("a callback for dead letters failed at entry %s", letter.id)
