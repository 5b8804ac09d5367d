"""Writing the value of a stream to RDB, as one of the types 15, 19 and 21.

Invariants: what is written with the same type as it was read with has the same bytes, but for
compression. What a type cannot hold is left out (idempotent adds; with older types first ID,
counts, activity); entries that were given back are never left out: they go to a consumer without a
name, as delivered at time 0, so that any claim takes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from logstore.ids import StreamID
from logstore.rdb import streamtypes
from logstore.rdb.value import (
    NOBODY,
    ConsumerValue,
    GroupValue,
    Node,
    StreamInfoValue,
)
from logstore.rdb.writer import i64, length, signed, string

NOBODYS_NAME = b""


def nodes(count: int, found: Iterable[Node]) -> Iterator[bytes]:
    """The nodes, of which there are ``count``: pieces to be written one after the other."""
    yield length(count)
    for master, lp in found:
        yield length(len(master)) + master + length(len(lp))
        yield lp


def info(found: StreamInfoValue, kind: int) -> Iterator[bytes]:
    """All that stands behind the nodes."""
    yield length(found.length) + _id(found.last)
    if kind >= streamtypes.LISTPACKS_2:
        assert found.first is not None
        assert found.entries_added is not None
        yield _id(found.first) + _id(found.max_deleted) + length(found.entries_added)
    groups = sorted(found.all_groups(), key=lambda each: each.name)
    yield length(len(groups))
    for group in groups:
        yield from _group(group, kind)


def _id(id: StreamID) -> bytes:
    return length(id.ms) + length(id.seq)


def _group(group: GroupValue, kind: int) -> Iterator[bytes]:
    yield string(group.name) + _id(group.last)
    if kind >= streamtypes.LISTPACKS_2:
        assert group.entries_read is not None
        yield signed(group.entries_read)
    pending = group.pending
    yield length(len(pending))
    places: list[list[int]] = [[] for _ in range(len(group.consumers) + 1)]
    for place, owner in enumerate(pending.owners):
        time_ms = pending.times[place] if owner != NOBODY else 0
        yield pending.id_at(place) + i64(time_ms) + length(pending.counts[place])
        places[owner].append(place)
    consumers = [(each, places[at]) for at, each in enumerate(group.consumers, 1)]
    yield from _consumers(group, kind, _with_nobodys(consumers, places[NOBODY]))


def _with_nobodys(
    consumers: list[tuple[ConsumerValue, list[int]]], given_back: list[int]
) -> list[tuple[ConsumerValue, list[int]]]:
    """The consumers by name, the one without a name holding what was given back."""
    if given_back:
        for place, (consumer, places) in enumerate(consumers):
            if consumer.name == NOBODYS_NAME:
                consumers[place] = (consumer, sorted(places + given_back))
                break
        else:
            consumers.append((ConsumerValue(NOBODYS_NAME, 0, -1), given_back))
    return sorted(consumers, key=lambda each: each[0].name)


def _consumers(
    group: GroupValue, kind: int, consumers: list[tuple[ConsumerValue, list[int]]]
) -> Iterator[bytes]:
    yield length(len(consumers))
    for consumer, places in consumers:
        yield string(consumer.name) + i64(consumer.seen_ms)
        if kind >= streamtypes.LISTPACKS_3:
            yield i64(consumer.active_ms)
        yield length(len(places))
        yield b"".join([group.pending.id_at(place) for place in places])
