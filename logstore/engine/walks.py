"""Walking a group's pending entries: by ID, by consumer, by idle time.

Invariants: a walk reads runs as they are needed; what is changed meanwhile is not seen, so a
decision walks first and emits after. The walk by idle time reads only runs that hold something old
enough, oldest delivery first. Works alike on a write state and on a snapshot.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.groupkeys import ID_BYTES, PendingRun
from logstore.index.grouptxn import GroupTxn


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
    if run is None:
        return None
    place, there = run.find(packed)
    if not there:
        return None
    return Waiting(id, run.consumers[place], run.times[place], run.counts[place])


def present(txn: GroupTxn, group: int, ids: bytes) -> bytes:
    """Those of some IDs, packed and ascending, that are pending."""
    found: list[bytes] = []
    at = 0
    run: PendingRun | None = None
    while at < len(ids):
        id = ids[at : at + ID_BYTES]
        if run is None or not run.first <= id <= run.last:
            run = txn.run_floor(group, id)
        place, there = run.find(id) if run is not None else (0, False)
        count = 1
        if run is not None and there:
            count = run.same(place, ids, at)
            found.append(ids[at : at + count * ID_BYTES])
        at += count * ID_BYTES
    return b"".join(found)


def by_id(
    txn: GroupTxn, group: int, start: StreamID = ZERO_ID, end: StreamID = MAX_ID,
    consumer: int | None = None,
) -> Iterator[Waiting]:  # fmt: skip
    """Pending entries of a closed interval, ascending; of one consumer, or of all."""
    low, high = start.packed(), end.packed()
    for run in txn.runs(group, low):
        if run.first > high:
            return
        if consumer is not None and consumer not in run.consumers:
            continue
        place, _ = run.find(low)
        for at in range(place, len(run)):
            packed = run.id_at(at)
            if packed > high:
                return
            if consumer is None or run.consumers[at] == consumer:
                yield Waiting(
                    StreamID.unpacked(packed), run.consumers[at], run.times[at], run.counts[at]
                )


def by_idle(txn: GroupTxn, group: int, until_ms: int) -> Iterator[Waiting]:
    """Pending entries whose last delivery was at ``until_ms`` or before, oldest first."""
    heap: list[tuple[int, bytes, int, int]] = []
    for oldest_ms, first in txn.idle(group):
        while heap and heap[0][0] < oldest_ms:
            yield _popped(heap)
        if oldest_ms > until_ms:
            break
        run = txn.run_floor(group, first)
        if run is None:
            continue
        for place, time_ms in enumerate(run.times):
            if time_ms <= until_ms:
                item = (time_ms, run.id_at(place), run.consumers[place], run.counts[place])
                heapq.heappush(heap, item)
    while heap:
        yield _popped(heap)


def _popped(heap: list[tuple[int, bytes, int, int]]) -> Waiting:
    time_ms, packed, consumer, count = heapq.heappop(heap)
    return Waiting(StreamID.unpacked(packed), consumer, time_ms, count)
