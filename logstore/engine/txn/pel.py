"""Finding entries in the pending entries list (PEL) of one group.

Invariants: entries stand in runs, as ``runtime.group_state`` keeps them. A
scan reads runs as they are needed and does not see what is changed meanwhile, so a decision scans
first and emits frames after; the scan by idle time reads only runs that hold something old enough,
oldest delivery first, and works alike in a write transaction and on a snapshot. Decides nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from logstore.codec.pending_run import EVERYONE, Due, end_below
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.group_keys import ID_BYTES
from logstore.index.group_txn import GroupTxn
from logstore.tuples import NamedTuple

LATEST_MS = (1 << 63) - 1


class PendingEntry(NamedTuple):
    """One pending entry. ``time_ms`` of an entry that was given back
    (``consumer`` 0) is its place in the queue of those."""

    id: StreamID
    consumer: int
    time_ms: int
    count: int  # type: ignore[assignment]  # deliveries

    def idle_ms(self, now_ms: int) -> int:
        """Time since the last delivery; of nobody's entry, since ever."""
        return max(0, now_ms - self.time_ms) if self.consumer else now_ms


def find(txn: GroupTxn, group: int, id: StreamID) -> PendingEntry | None:
    """One pending entry by ID."""
    packed = id.packed()
    run = txn.run_floor(group, packed)
    values = None if run is None else run.find(packed)
    return None if values is None else PendingEntry(id, *values)


def present(txn: GroupTxn, group: int, ids: bytes) -> bytes:
    """The IDs among these, packed and ascending, that are pending."""
    parts: list[bytes] = []
    at = 0
    while at < len(ids):
        _, run, upper = txn.around(group, ids[at : at + ID_BYTES])
        if run is None:
            at = end_below(ids, at, upper)
            continue
        here, at = run.present(ids, at, upper)
        parts.append(here)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def by_id(
    txn: GroupTxn,
    group: int,
    start: StreamID = ZERO_ID,
    end: StreamID = MAX_ID,
    consumer: int | None = None,
) -> Iterator[PendingEntry]:
    """Pending entries of a closed interval, ascending; of one consumer, or of all."""
    low, high = start.packed(), end.packed()
    whose = EVERYONE if consumer is None else consumer
    for run in txn.runs(group, low):
        if run.first > high:
            return
        for ms, seq, owner, time_ms, count in run.between(low, high, whose):
            yield PendingEntry(StreamID(ms, seq), owner, time_ms, count)


ANY_TIME_MS = (1 << 63) - 1  # no delivery is later


def delivered_until_ms(now_ms: int, min_idle_ms: int) -> int:
    """What was delivered then or before is idle for so long. Everything is for no time at all, also
    what was delivered while the clock was ahead."""
    return now_ms - min_idle_ms if min_idle_ms > 0 else ANY_TIME_MS


def by_idle(
    txn: GroupTxn, group: int, until_ms: int, first_id: StreamID = ZERO_ID
) -> Iterator[PendingEntry]:
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
    earliest_ms: int | None = None
    least = first_id.packed()
    for oldest_ms, first in txn.idle(group):
        if earliest_ms is not None and oldest_ms >= earliest_ms:
            break
        run = txn.run_floor(group, first)
        if run is None or run.last < least:
            continue
        for time_ms, ms, seq, *_ in sorted(run.due(LATEST_MS)):
            if earliest_ms is not None and time_ms >= earliest_ms:
                break
            if there(StreamID(ms, seq)):
                earliest_ms = time_ms
                break
    return earliest_ms


def _popped(heap: list[Due]) -> PendingEntry:
    time_ms, ms, seq, consumer, count = heapq.heappop(heap)
    return PendingEntry(StreamID(ms, seq), consumer, time_ms, count)
