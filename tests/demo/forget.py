"""The second half of the demo: delete, erase, trim; entries and bytes before and after each.

Invariants: what must be left is computed from the CSV, never asked of the store; erased bytes are
looked for in every file of the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from logstore.api.store import Store, open_store
from logstore.ids import StreamID
from tests.demo import data as demo_data
from tests.demo.data import SECOND_HALF, StreamRows
from tests.demo.load import DemoError

IDS_IN_A_CALL = 5000
PROBES = 40
PROBE_BYTES_MIN = 5

Choose: TypeAlias = Callable[[StreamRows], set[StreamID]]


@dataclass(frozen=True, slots=True)
class ForgettingStep:
    """What the store held after a step, and what the step took."""

    what: str
    entries: int
    disk_bytes: int
    seconds: float
    removed: int


class Forgetting:
    """The steps on one store; ``left`` is what must still be there."""

    def __init__(
        self, path: Path, streams: list[StreamRows], told: Callable[[ForgettingStep], None]
    ) -> None:
        self.path = path
        self.left = streams
        flights = demo_data.flights_of(streams)
        self.largest = {rows.name: demo_data.largest_carriers(rows) for rows in flights}
        self._tails = {tail for rows in flights for tail in rows.column("tailnum")}
        self.probes = 0
        self._off_clock = 0.0  # seconds of a step that were spent looking, not doing
        self._told = told

    def run(self) -> list[ForgettingStep]:
        """All steps, in order."""
        steps: list[ForgettingStep] = []
        with open_store(self.path, encoding="utf-8", create=False) as store:
            for what, act in (
                ("loaded", lambda _store: 0),
                ("cancelled flights deleted", self._delete_cancelled),
                ("compacted", _compact),
                ("two largest carriers deleted", self._delete_largest),
                ("erased: compacted with purge", self._erase),
                ("first half-year trimmed", self._trim),
                ("compacted", _compact),
            ):
                self._off_clock = 0.0
                started = time.monotonic()
                removed = act(store)
                seconds = time.monotonic() - started - self._off_clock
                step = self._measure(store, what, seconds, removed)
                self._told(step)
                steps.append(step)
        return steps

    def _measure(
        self, store: Store[str], what: str, seconds: float, removed: int
    ) -> ForgettingStep:
        """Entries and bytes; DemoError if the entries are not as many as the CSV says."""
        entries = sum(len(store.stream(name)) for name in store.streams())
        wanted = sum(map(len, self.left))
        if entries != wanted:
            raise DemoError(f"{what}: {entries} entries are left, and {wanted} should be")
        info = store.info()
        return ForgettingStep(what, entries, info.disk_bytes, seconds, removed)

    def _delete_cancelled(self, store: Store[str]) -> int:
        return self._delete(store, demo_data.cancelled)

    def _delete_largest(self, store: Store[str]) -> int:
        return self._delete(store, lambda rows: demo_data.flown_by(rows, self.largest[rows.name]))

    def _delete(self, store: Store[str], choose: Choose) -> int:
        removed = 0
        for rows in demo_data.flights_of(self.left):
            gone = sorted(choose(rows))
            for start in range(0, len(gone), IDS_IN_A_CALL):
                removed += store.stream(rows.name).delete(*gone[start : start + IDS_IN_A_CALL])
            self._keep(rows, rows.without(set(gone)))
        return removed

    def _erase(self, store: Store[str]) -> int:
        """Compact with purge; what only the deleted entries held is in no file afterwards."""
        probes = self._tail_numbers_only_deleted()
        store.sync()
        if self._found(probes) != probes:
            raise DemoError("tail numbers that were only deleted are gone before they are erased")
        store.compact(purge=True)
        still = self._found(probes)
        if still:
            raise DemoError(f"erased, and still in a file: {sorted(still)}")
        self.probes = len(probes)
        return 0

    def _found(self, probes: set[bytes]) -> set[bytes]:
        started = time.monotonic()
        found = found_in(self.path, probes)
        self._off_clock += time.monotonic() - started
        return found

    def _trim(self, store: Store[str]) -> int:
        removed = 0
        for rows in list(self.left):
            removed += store.stream(rows.name).trim(min_id=SECOND_HALF, approximate=False)
            self._keep(rows, rows.without({id for id, _ in rows.rows if id < SECOND_HALF}))
        return removed

    def _keep(self, rows: StreamRows, less: StreamRows) -> None:
        self.left = [less if one is rows else one for one in self.left]

    def _tail_numbers_only_deleted(self) -> set[bytes]:
        """Some values that no entry holds any more, not even as a part of another value."""
        left = {tail for rows in demo_data.flights_of(self.left) for tail in rows.column("tailnum")}
        together = "\n".join(left)
        gone = {tail for tail in self._tails if len(tail) >= PROBE_BYTES_MIN}
        only = sorted(tail for tail in gone if tail not in together)
        return {tail.encode() for tail in only[:: max(1, len(only) // PROBES)]}


def _compact(store: Store[str]) -> int:
    store.compact()
    return 0


def found_in(path: Path, probes: Iterable[bytes]) -> set[bytes]:
    """Which of some bytes lie in the files below a directory."""
    wanted, found = set(probes), set[bytes]()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            data = file.read_bytes()
            found |= {probe for probe in wanted - found if probe in data}
    return found
