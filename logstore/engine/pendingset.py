"""Changing the pending entries of one group: runs that are split, joined to, and emptied.

Invariants: entries stand in runs of at most ``RUN_MAX_ENTRIES`` that do not overlap; a run's row is
rewritten once for neighbouring IDs; IDs are given in ascending order, packed. Decides nothing.
"""

from __future__ import annotations

from logstore.index.groupkeys import ID_BYTES, RUN_MAX_ENTRIES, PendingRun
from logstore.index.grouptxn import LAST, GroupTxn

Item = tuple[bytes, int, int]  # ID, delivery time, delivery count


class PendingSet:
    """An editor of a group's runs; ``changes`` counts by consumer what came and went."""

    def __init__(self, txn: GroupTxn, group: int) -> None:
        self._txn = txn
        self._group = group
        self._run: PendingRun | None = None
        self._stored: tuple[bytes, int] | None = None  # first ID and oldest time of its row
        self._upper = LAST  # IDs below this belong to the run at hand
        self._dirty = False
        self.changes: dict[int, int] = {}

    def _count(self, consumer: int, by: int) -> None:
        self.changes[consumer] = self.changes.get(consumer, 0) + by

    def _seek(self, id: bytes) -> PendingRun | None:
        """Go to the run that holds an ID, or would; None if there is none below it."""
        run = self._run
        if run is not None and len(run) and run.first <= id < self._upper:
            return run
        self.flush()
        self._run = run = self._txn.run_floor(self._group, id)
        self._stored = None if run is None else (run.first, min(run.times))
        self._upper = self._txn.next_first(self._group, id) or LAST + b"\x00"
        return run

    def flush(self) -> None:
        """Write the run at hand back."""
        if self._dirty:
            if self._stored is not None:
                self._txn.delete_run(self._group, *self._stored)
            if self._run is not None and len(self._run):
                self._txn.put_run(self._group, self._run)
        self._run, self._stored, self._dirty = None, None, False

    def _start(self, run: PendingRun) -> None:
        """Write the run at hand back and go on with a new one behind it."""
        self.flush()
        self._run, self._dirty = run, True

    def put(self, items: list[Item], consumer: int) -> None:
        """Set entries as pending with a consumer."""
        for id, time_ms, count in items:
            run = self._room(id)
            place, there = run.find(id)
            if there:
                self._count(run.consumers[place], -1)
                run.consumers[place] = consumer
                run.times[place], run.counts[place] = time_ms, count
            else:
                run.insert(place, id, consumer, time_ms, count)
            self._count(consumer, 1)
            self._dirty = True

    def _room(self, id: bytes) -> PendingRun:
        """The run for an ID, with room for one more."""
        run = self._seek(id)
        if run is None:
            self._start(PendingRun())
        elif len(run) >= RUN_MAX_ENTRIES:
            upper = self._upper
            if id > run.last:
                self._start(PendingRun())
            elif not run.find(id)[1]:
                cut = run.split()
                self._dirty = True
                if id < cut.first:
                    self._upper = cut.first
                    self._txn.put_run(self._group, cut)
                else:
                    self._start(cut)
                    self._upper = upper
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
                self.put([(first, time_ms, count)], consumer)
                at += ID_BYTES
                continue
            if run is None or len(run) >= RUN_MAX_ENTRIES:
                run = PendingRun()
                self._start(run)
                self._upper = LAST + b"\x00"
            taken = min(end - at, (RUN_MAX_ENTRIES - len(run)) * ID_BYTES)
            run.extend(ids[at : at + taken], consumer, time_ms, count)
            self._dirty = True
            self._count(consumer, taken // ID_BYTES)
            at += taken

    def remove(self, ids: bytes) -> int:
        """Entries are no longer pending; how many were."""
        gone = at = 0
        while at < len(ids):
            id = ids[at : at + ID_BYTES]
            run = self._seek(id)
            place, there = run.find(id) if run is not None else (0, False)
            if run is None or not there:
                at += ID_BYTES
                continue
            count = run.same(place, ids, at)
            for consumer in run.consumers[place : place + count]:
                self._count(consumer, -1)
            run.delete(place, count)
            self._dirty = True
            gone += count
            at += count * ID_BYTES
        return gone

    def remove_of(self, consumer: int) -> int:
        """Nothing is pending with this consumer any more; how many were."""
        found = [
            run.id_at(place)
            for run in self._txn.runs(self._group)
            if consumer in run.consumers
            for place, owner in enumerate(run.consumers)
            if owner == consumer
        ]
        return self.remove(b"".join(found))
