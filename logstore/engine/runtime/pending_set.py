"""Changing the pending entries list (PEL) of one group: runs are rewritten, cut, and joined to.

Invariants: entries stand in runs of at most ``RUN_MAX_ENTRIES`` that do not overlap; a change
rewrites the row of a run once for neighbouring IDs, and takes IDs in ascending order, packed.
Decides nothing. How entries are found in it is told in ``txn.pel``.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.codec.pending_run import Item
from logstore.ids import StreamID
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
