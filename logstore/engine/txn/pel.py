"""The pending entries list (PEL) of one group: changing it, and finding entries in it.

Invariants: entries stand in runs of at most ``RUN_MAX_ENTRIES`` that do not overlap; a change
rewrites the row of a run once for neighbouring IDs, and takes IDs in ascending order, packed. A
scan reads runs as they are needed and does not see what is changed meanwhile, so a decision scans
first and emits frames after; the scan by idle time reads only runs that hold something old enough,
oldest delivery first, and works alike in a write transaction and on a snapshot. Decides nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from logstore.codec.pending_run import EVERYONE, Due, Item, end_below
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.group_keys import ID_BYTES, RUN_MAX_ENTRIES, PendingRun
from logstore.index.group_txn import END, FIRST, LAST, GroupTxn


class PendingSet:
    """An editor of a group's runs; ``changes`` counts by consumer what came and went."""

    def __init__(self, txn: GroupTxn, group: int) -> None:
        self._txn = txn
        self._group = group
        self._run: PendingRun | None = None
        self._upper = LAST  # IDs below this belong to the run at hand
        self._dirty = False
        self.changes: dict[int, int] = {}

    def _seek(self, id: bytes) -> PendingRun | None:
        """Go to the run that holds an ID, or would; None if there is none below it."""
        run = self._run
        if run is not None and len(run) and run.first <= id < self._upper:
            return run
        self.flush()
        _, self._run, self._upper = self._txn.around(self._group, id)
        return self._run

    def flush(self) -> None:
        """Write the run at hand back."""
        run = self._run
        if self._dirty and run is not None:
            self._txn.put_run(self._group, run)
            if len(run):
                self._txn.keep_near(self._group, (run.first, run, self._upper))
        self._run, self._dirty = None, False

    def _start(self, run: PendingRun, upper: bytes) -> None:
        """Write the run at hand back and go on with a new one behind it."""
        self._upper = b""  # the one at hand ends where the new one will begin
        self.flush()
        self._run, self._dirty, self._upper = run, True, upper

    def put(self, items: Sequence[Item], consumer: int) -> None:
        """Set entries as pending with a consumer."""
        at = 0
        while at < len(items):
            run = self._room(StreamID(*items[at][:2]).packed())
            at = run.put(items, at, consumer, self._upper, self.changes)
            self._dirty = True

    def _room(self, id: bytes) -> PendingRun:
        """The run for an ID, with room for one more."""
        run = self._seek(id)
        if run is None:
            self._start(PendingRun(), self._upper)
        elif len(run) >= RUN_MAX_ENTRIES:
            if id > run.last:
                self._start(PendingRun(), self._upper)
            elif run.find(id) is None:
                cut = run.split()
                self._dirty = True
                if id < cut.first:
                    self._upper = cut.first
                    self._txn.put_run(self._group, cut)
                else:
                    self._start(cut, self._upper)
        assert self._run is not None
        return self._run

    def extend(self, ids: bytes, consumer: int, time_ms: int, count: int) -> None:
        """Set the entries of one delivery as pending; those behind all others go in at once."""
        at, end = 0, len(ids)
        while at < end:
            first = ids[at : at + ID_BYTES]
            run = self._seek(first)
            behind = self._upper > LAST and (run is None or first > run.last)
            if not behind:
                ms, seq = StreamID.unpacked(first)
                self.put([(ms, seq, time_ms, count)], consumer)
                at += ID_BYTES
                continue
            if run is None or len(run) >= RUN_MAX_ENTRIES:
                run = PendingRun()
                self._start(run, END)
            taken = min(end - at, (RUN_MAX_ENTRIES - len(run)) * ID_BYTES)
            run.extend(ids[at : at + taken], consumer, time_ms, count)
            self._dirty = True
            self.changes[consumer] = self.changes.get(consumer, 0) + taken // ID_BYTES
            at += taken

    def remove(self, ids: bytes) -> None:
        """Entries are no longer pending; what was not is passed over."""
        at = 0
        while at < len(ids):
            run = self._seek(ids[at : at + ID_BYTES])
            if run is None:
                at += ID_BYTES
                continue
            size = len(run)
            at = run.remove(ids, at, self._upper, self.changes)
            if len(run) != size:
                self._dirty = True

    def remove_of(self, consumer: int) -> None:
        """Nothing is pending with this consumer any more."""
        self.remove(
            b"".join(
                [
                    StreamID(ms, seq).packed()
                    for run in self._txn.runs(self._group)
                    for ms, seq, *_ in run.between(FIRST, LAST, consumer)
                ]
            )
        )


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
    """Those of some IDs, packed and ascending, that are pending."""
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
