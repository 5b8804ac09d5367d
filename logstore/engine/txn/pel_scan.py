"""Walking a group's pending entries: by ID, by consumer, by idle time.

Invariants: a walk reads runs as they are needed; what is changed meanwhile is not seen, so a
decision walks first and emits after. The walk by idle time reads only runs that hold something old
enough, oldest delivery first. Works alike on a write state and on a snapshot.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import NamedTuple

from logstore.codec.run import EVERYONE, Due
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.group_keys import ID_BYTES
from logstore.index.group_txn import GroupTxn

LATEST_MS = (1 << 63) - 1


class Waiting(NamedTuple):
    """One pending entry. ``time_ms`` of nobody's entry (``consumer`` 0) is its place in line."""

    id: StreamID
    consumer: int
    time_ms: int
    count: int  # type: ignore[assignment]  # deliveries

    def idle_ms(self, now_ms: int) -> int:
        """Time since the last delivery; of nobody's entry, since ever."""
        return max(0, now_ms - self.time_ms) if self.consumer else now_ms


def find(txn: GroupTxn, group: int, id: StreamID) -> Waiting | None:
    """One pending entry by ID."""
    packed = id.packed()
    run = txn.run_floor(group, packed)
    found = None if run is None else run.find(packed)
    return None if found is None else Waiting(id, *found)


def present(txn: GroupTxn, group: int, ids: bytes) -> bytes:
    """Those of some IDs, packed and ascending, that are pending."""
    found: list[bytes] = []
    at = 0
    while at < len(ids):
        _, run, upper = txn.around(group, ids[at : at + ID_BYTES])
        if run is None:
            at += ID_BYTES
            continue
        here, at = run.present(ids, at, upper)
        found.append(here)
    return found[0] if len(found) == 1 else b"".join(found)


def by_id(
    txn: GroupTxn, group: int, start: StreamID = ZERO_ID, end: StreamID = MAX_ID,
    consumer: int | None = None,
) -> Iterator[Waiting]:  # fmt: skip
    """Pending entries of a closed interval, ascending; of one consumer, or of all."""
    low, high = start.packed(), end.packed()
    whose = EVERYONE if consumer is None else consumer
    for run in txn.runs(group, low):
        if run.first > high:
            return
        for ms, seq, owner, time_ms, count in run.between(low, high, whose):
            yield Waiting(StreamID(ms, seq), owner, time_ms, count)


def by_idle(
    txn: GroupTxn, group: int, until_ms: int, first_id: StreamID = ZERO_ID
) -> Iterator[Waiting]:
    """Pending entries whose last delivery was at ``until_ms`` or before, oldest first.

    Runs that end below ``first_id`` are passed over whole: what was trimmed may be many.
    """
    heap: list[Due] = []
    least = first_id.packed()
    for oldest_ms, first in txn.idle(group):
        # What follows in the index is not before this row, in time, or at the same time in its ID.
        here = (oldest_ms, *StreamID.unpacked(first))
        while heap and heap[0] < here:
            yield _popped(heap)
        if oldest_ms > until_ms:
            break
        run = txn.run_floor(group, first)
        if run is None or run.last < least:
            continue
        heap += run.due(until_ms)
        heapq.heapify(heap)
    while heap:
        yield _popped(heap)


def oldest(
    txn: GroupTxn, group: int, there: Callable[[StreamID], bool], first_id: StreamID = ZERO_ID
) -> int | None:
    """The earliest delivery of a pending entry that is still there; None if none is.

    Reads the run that begins with the earliest, and others only if what it holds is gone, as all
    below ``first_id`` is.
    """
    found: int | None = None
    least = first_id.packed()
    for oldest_ms, first in txn.idle(group):
        if found is not None and oldest_ms >= found:
            break
        run = txn.run_floor(group, first)
        if run is None or run.last < least:
            continue
        for time_ms, ms, seq, *_ in sorted(run.due(LATEST_MS)):
            if found is not None and time_ms >= found:
                break
            if there(StreamID(ms, seq)):
                found = time_ms
                break
    return found


def _popped(heap: list[Due]) -> Waiting:
    time_ms, ms, seq, consumer, count = heapq.heappop(heap)
    return Waiting(StreamID(ms, seq), consumer, time_ms, count)
