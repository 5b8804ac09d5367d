"""Ends of jobs that are committed together: the results and acks of quick jobs, some in one commit.

A job's end is kept while the next job of the batch runs, for ``KEPT_S`` at most; then, or when the
batch is over, all that are kept are one commit.

Invariants: a job ends once, for each end is fenced; where one of them was lost to another worker,
the others are committed without it. A worker that is killed lost no more than the ends that it
kept: those jobs are done once more, as one that was killed right before its end always was. Jobs
with a transaction of their own are never kept: their end is in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from logstore.api.group import Delivery
from logstore.api.store import Store
from logstore.errors import NotOwnerError
from logstore.logger import Logger

log = Logger("logstore.jobs")
KEPT_S = 0.01
Fields = dict[str, str | bytes]


class Ends:
    """What a worker's jobs gave, until it is committed. Its methods are for any thread."""

    def __init__(
        self,
        store: Store[Any],
        results: str,
        failed: Callable[[Delivery[Any], Exception], None],
    ) -> None:
        """``failed`` is called with a job whose end cannot be committed, and why."""
        self._store = store
        self._results = results
        self._failed = failed
        self._guard = threading.Lock()
        self._committing = threading.Lock()
        self._kept: list[tuple[Delivery[Any], Fields | None]] = []
        self._oldest = 0.0
        self._last: Delivery[Any] | None = None
        self._some = threading.Event()

    def keep(self, delivery: Delivery[Any], result: Fields | None) -> None:
        """Keep the end of a job: its result, if it has one, and its ack."""
        with self._guard:
            self._last = delivery
            self._kept.append((delivery, result))
            if len(self._kept) == 1:
                self._oldest = time.monotonic()
                self._some.set()

    def keeps(self, delivery: Delivery[Any]) -> bool:
        """Whether the end of the job that was just done is kept here, or was."""
        return delivery is self._last

    def commit(self) -> None:
        """Commit what is kept; when it returns, nothing that was kept before is."""
        with self._committing:
            with self._guard:
                kept, self._kept = self._kept, []
                self._some.clear()
            if not kept:
                return
            try:
                self._commit(kept)
            except Exception as error:  # noqa: BLE001  one by one it is seen whose it is
                if not isinstance(error, NotOwnerError):
                    log.warning("%d ends are committed one by one: %s", len(kept), error)
                for each in kept:
                    self._alone(each)

    def wait(self, timeout_s: float) -> bool:
        """Wait until something is kept; whether it is."""
        return self._some.wait(timeout_s)

    def commit_old(self) -> None:
        """Commit what is kept if it was for ``KEPT_S``, or wait for that."""
        with self._guard:
            left_s = self._oldest + KEPT_S - time.monotonic() if self._kept else 0.0
        if left_s > 0:
            time.sleep(left_s)
        else:
            self.commit()

    def _alone(self, end: tuple[Delivery[Any], Fields | None]) -> None:
        delivery = end[0]
        try:
            self._commit([end])
        except NotOwnerError as lost:
            log.info("job of entry %s is another worker's now: %s", delivery.id, lost)
        except Exception as error:  # noqa: BLE001  as if the job had raised it
            self._failed(delivery, error)

    def _commit(self, ends: list[tuple[Delivery[Any], Fields | None]]) -> None:
        with self._store.transaction() as tx:
            results = tx.stream(self._results)
            for delivery, result in ends:
                if result is not None:
                    results.add(result)
                tx.ack(delivery)
