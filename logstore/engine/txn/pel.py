"""Finding entries in the pending entries list (PEL) of one group.

Invariants: entries stand in runs, as ``runtime.group_state`` keeps them. A
scan reads runs as they are needed and does not see what is changed meanwhile, so a decision scans
first and emits frames after; the scan by idle time reads only runs that hold something old enough,
oldest delivery first, and works alike in a write transaction and on a snapshot. Decides nothing.

A run keeps one number for the time of an entry. It is the time of its last delivery; below
``GIVEN_BACK_MS`` the entry is in the line of those that were given back: its place, or, of one that
the consumer ``NOBODY`` has, from ``PUT_OFF_MS`` on when it joins the line (``put_off_until``). Such
an entry is found with that moment as the time of its delivery: it is idle from then on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from logstore.codec.pending_run import EVERYONE, Due, end_below
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.group_keys import ID_BYTES, NO_ONE, NOBODY
from logstore.index.group_txn import GroupTxn
from logstore.tuples import NamedTuple

LATEST_MS = (1 << 63) - 1
GIVEN_BACK_MS = 1 << 40  # delivery times are not below
PUT_OFF_MS = 1 << 39  # places are below
PUT_OFF_UNIT_MS = 8  # so that the numbers from there on last until the year 2109


def put_off_until(due_ms: int) -> int:
    """The time, in a run, of nobody's entry that nobody is to get before this moment."""
    return min(PUT_OFF_MS - -due_ms // PUT_OFF_UNIT_MS, GIVEN_BACK_MS - 1)


def joined_line(now_ms: int) -> int:
    """Of nobody's entries that were put off, those with this time or an earlier one are due."""
    return min(PUT_OFF_MS + now_ms // PUT_OFF_UNIT_MS, GIVEN_BACK_MS - 1)


def due_of(time_ms: int) -> int:
    """When nobody's entry with this time, in a run, joins the line; -1: it was not put off."""
    if not PUT_OFF_MS <= time_ms < GIVEN_BACK_MS:
        return -1
    return (time_ms - PUT_OFF_MS) * PUT_OFF_UNIT_MS


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


def _entry(
    txn: GroupTxn, group: int, id: StreamID, consumer: int, time_ms: int, count: int
) -> PendingEntry:
    """An entry as a run has it, with the time that it counts from."""
    if (due_ms := due_of(time_ms)) >= 0 and consumer == txn.consumer_number(group, NOBODY):
        time_ms = due_ms
    return PendingEntry(id, consumer, time_ms, count)


def find(txn: GroupTxn, group: int, id: StreamID) -> PendingEntry | None:
    """One pending entry by ID."""
    packed = id.packed()
    run = txn.run_floor(group, packed)
    values = None if run is None else run.find(packed)
    return None if values is None else _entry(txn, group, id, *values)


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
            yield _entry(txn, group, StreamID(ms, seq), owner, time_ms, count)


ANY_TIME_MS = (1 << 63) - 1  # no delivery is later


def delivered_until_ms(now_ms: int, min_idle_ms: int) -> int:
    """What was delivered then or before is idle for so long. Everything is for no time at all, also
    what was delivered while the clock was ahead."""
    return now_ms - min_idle_ms if min_idle_ms > 0 else ANY_TIME_MS


def by_idle(
    txn: GroupTxn,
    group: int,
    until_ms: int,
    first_id: StreamID = ZERO_ID,
    due_ms: int | None = None,
) -> Iterator[PendingEntry]:
    """Pending entries whose last delivery was at ``until_ms`` or before, oldest first; of those
    that were put off what is due at ``due_ms`` (None: ``until_ms``).

    Runs that end below ``first_id`` are passed over whole: what was trimmed may be many.
    """
    for found in _by_idle(txn, group, until_ms, first_id):
        time_ms, ms, seq, consumer, count = found
        entry = _entry(txn, group, StreamID(ms, seq), consumer, time_ms, count)
        if entry.time_ms == time_ms or entry.time_ms <= (until_ms if due_ms is None else due_ms):
            yield entry


def _by_idle(txn: GroupTxn, group: int, until_ms: int, first_id: StreamID) -> Iterator[Due]:
    """As ``by_idle``, but by the times in the runs."""
    heap: list[Due] = []
    least = first_id.packed()
    for oldest_ms, first in txn.idle(group):
        # What follows in the index is not before this row, in time, or at the same time in its ID.
        here = (oldest_ms, *StreamID.unpacked(first))
        while heap and heap[0] < here:
            yield heapq.heappop(heap)
        if oldest_ms > until_ms:
            break
        run = txn.run_floor(group, first)
        if run is None or run.last < least:
            continue
        heap += run.due(until_ms)
        heapq.heapify(heap)
    while heap:
        yield heapq.heappop(heap)


def held_since(txn: GroupTxn, group: int) -> int | None:
    """The earliest delivery of what consumers have; None: they have nothing.

    What was given back has no age, also while it is put off: the time of its delivery is not kept.
    """
    nobody = txn.consumer_number(group, NOBODY)
    earliest: int | None = None
    for oldest_ms, first in txn.idle(group):
        if earliest is not None and oldest_ms >= earliest:
            break
        run = txn.run_floor(group, first)
        for time_ms, _, _, consumer, _ in () if run is None else run.due(LATEST_MS):
            if consumer not in (NO_ONE, nobody) and (earliest is None or time_ms < earliest):
                earliest = time_ms
    return earliest


def oldest(
    txn: GroupTxn,
    group: int,
    there: Callable[[StreamID], bool],
    first_id: StreamID = ZERO_ID,
    since_ms: int = 0,
) -> tuple[int, int] | None:
    """The earliest time, ``since_ms`` or later, that a run has of a pending entry that is still
    there, and when that joins the line (-1: it was not put off); None if none is.

    Reads the run that begins with the earliest, and others only if what it holds is gone, as all
    below ``first_id`` is.
    """
    earliest: tuple[int, int] | None = None
    least = first_id.packed()
    for oldest_ms, first in txn.idle(group):
        if earliest is not None and oldest_ms >= earliest[0]:
            break
        run = txn.run_floor(group, first)
        if run is None or run.last < least:
            continue
        for time_ms, ms, seq, consumer, count in sorted(run.due(LATEST_MS)):
            if earliest is not None and time_ms >= earliest[0]:
                break
            if time_ms >= since_ms and there(id := StreamID(ms, seq)):
                counted_ms = _entry(txn, group, id, consumer, time_ms, count).time_ms
                earliest = time_ms, -1 if counted_ms == time_ms else counted_ms
                break
    return earliest
