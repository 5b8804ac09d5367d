"""Work on all streams that is done every so often, and what all of its kinds do alike.

A sweep reads a snapshot, and takes no lock while nothing is due. Whether there is work is decided
once more under the writer lock, where a bounded part of it is done a commit. A sweep of a process
works for a tenth of a second, then other work has its turn. Looking takes 2 % of its time at most.

Invariants: a stream with damaged nodes is passed over for a minute, and keeps no other waiting.
What fails is not tried again at once. Several processes may sweep at a time: who comes second finds
the work done. Nothing here is needed for correctness. On a full disk a sweep works in the space
that is set aside, as it gives space back.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import idempotency, latest_entries
from logstore.engine.streams.removal import Removed
from logstore.errors import CorruptionError, LockTimeoutError
from logstore.features.idempotent_ids import ProducerRows
from logstore.features.latest import LatestRows
from logstore.features.setting_rows import OF_STREAM, SettingRows

LOOK_SHARE = 0.02  # of the time at most goes into looking
STREAMS_A_LOOK = 1000
TICK_S = 0.1  # of work, then what else is due has its turn
FAILED_AGAIN_S = 60.0  # when to try again with a stream whose nodes are damaged


class StreamSweep(ABC):
    """One kind of such work, for one process."""

    WHAT: ClassVar[str]  # what it does with a stream, for the log
    LOOK_S: ClassVar[float] = 1.0  # between two looks, once nothing is left to do
    PAUSE_S: ClassVar[float] = 0.001  # between commits, for those who wait for the lock

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer
        self._next_s = 0.0
        self._after = 0  # the last stream that was looked at; 0: a look begins with the first
        self._looked_s = 0.0
        self._due: deque[int] = deque()
        self._failed: dict[int, float] = {}  # streams, and until when they are passed over

    @abstractmethod
    def candidates(self, view: Snapshot, after: int) -> Iterator[tuple[int, Any]]:
        """Streams above ``after`` that may have work, and what is stored of each; ascending."""

    @abstractmethod
    def has_work(self, view: Snapshot, stream: int, stored: Any) -> bool:
        """Whether one of them has work."""

    @abstractmethod
    def work(self, txn: WriteTxn, stream: int) -> Removed:
        """One commit's part of a stream's work."""

    def alone(self) -> AbstractContextManager[None]:
        """Held while this process works in the background; LockTimeoutError leaves the work."""
        return nullcontext()

    def tick(self) -> None:
        """Do what is due, for a bounded time."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self.LOOK_S  # whatever fails below is not tried at once
        if not self._due:
            due = self._streams_with_work()
            self._due.extend(stream for stream in due if self._failed.get(stream, 0.0) <= now_s)
            self._looked_s += time.monotonic() - now_s
        if self._due:
            try:
                with self.alone():
                    self._work_until(now_s + TICK_S)
            except LockTimeoutError:
                self._due.clear()  # another process does it
        if self._due or self._after:
            self._next_s = now_s  # the rest is for the next tick
            return
        self._next_s = now_s + max(self.LOOK_S, self._looked_s / LOOK_SHARE)
        self._looked_s = 0.0

    def run(self) -> int:
        """Do all that is due, by call; how much was removed."""
        removed = 0
        while True:
            for stream in self._streams_with_work():
                more = True
                while more:
                    part = self._commit(stream)
                    removed, more = removed + part.entries, part.more
            if not self._after:
                return removed

    def _streams_with_work(self) -> list[int]:
        """The next streams with work."""
        after, self._after = self._after, 0
        due, self._after = snapshot.read(self._engine, self._find, after)
        return due

    def _find(self, view: Snapshot, after: int) -> tuple[list[int], int]:
        """Streams above ``after`` with work; the last one looked at, 0 at the end."""
        due: list[int] = []
        for count, (stream, stored) in enumerate(self.candidates(view, after), 1):
            if self.has_work(view, stream, stored):
                due.append(stream)
            if count == STREAMS_A_LOOK:
                return due, stream
        return due, 0

    def _work_until(self, until_s: float) -> None:
        while self._due and time.monotonic() < until_s:
            stream = self._due[0]
            try:
                more = self._commit(stream).more
            except CorruptionError as exc:
                log.warning(
                    "%s passes over stream %d for a minute, as it is damaged: %s",
                    self.WHAT, stream, exc,
                )  # fmt: skip
                self._failed[stream] = time.monotonic() + FAILED_AGAIN_S
                more = False
            if not more:
                self._due.popleft()

    def _commit(self, stream: int) -> Removed:
        part: Removed = self._committer.free(lambda txn: self.work(txn, stream))
        if part.more:
            time.sleep(self.PAUSE_S)
        return part


class KeyCompaction(StreamSweep):
    """Deletes entries that a newer one of the same key replaced, in streams kept compact."""

    WHAT = "keeping streams compact"

    def candidates(self, view: Snapshot, after: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Streams with settings."""
        return SettingRows(view.index).rows(OF_STREAM, after)

    def has_work(self, view: Snapshot, stream: int, stored: dict[str, Any]) -> bool:
        """Whether entries were added that were not gone through."""
        if "compact_by" not in stored:
            return False
        record = view.index.record(stream)
        return record is not None and record.last > LatestRows(view.index).upto(stream)

    def work(self, txn: WriteTxn, stream: int) -> Removed:
        """Go through the next entries."""
        return latest_entries.go_on(txn, stream)


class IdempotentExpiry(StreamSweep):
    """Gives back idempotent IDs that are remembered for longer than their stream's setting says.

    The next idempotent add to a stream does it, too; this is for streams to which nobody adds so
    again. What is over its time is not known, whether it is still there or not.
    """

    WHAT = "giving back idempotent IDs"
    LOOK_S = 10.0

    def candidates(self, view: Snapshot, after: int) -> Iterator[tuple[int, Any]]:
        """Streams with producers."""
        return ProducerRows(view.index).tallies(after)

    def has_work(self, view: Snapshot, stream: int, stored: Any) -> bool:
        """Whether something that is remembered is over its time."""
        if not stored.ids:
            return False
        settings = SettingRows(view.index).stream(stream)
        return idempotency.has_expired(ProducerRows(view.index), stream, settings, view.now_ms)

    def work(self, txn: WriteTxn, stream: int) -> Removed:
        """Forget some of it."""
        return idempotency.forget_expired(txn, stream)
