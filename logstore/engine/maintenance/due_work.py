"""When what a time was set for is done, and by whom: whoever sleeps in a store wakes for it.

Scheduled entries are added, streams that expired are dropped. A word in WAKE says when the next of
all that is due, so nobody looks in vain. The background thread of each process and every waiting
reader sleep no longer than until then; the first to wake does it, the others find the word moved.

Invariants: called with nothing held; what fails here fails nobody else's call: it is logged, and
tried again later. A read-only store does nothing.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from logstore.engine.commit.committer import Committer
from logstore.engine.runtime import reserve
from logstore.engine.runtime.background import Repeated
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.errors import ClosedError
from logstore.features.feature_list import first_due
from logstore.index.txn import IndexTxn

if TYPE_CHECKING:
    from logstore.engine.features.due_features import Timed

RETRY_S = 1.0
BUSY_S = 0.002  # another thread of this process is at it


class DueWorker:
    """Does what is due, for one process."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer
        self._busy = threading.Lock()
        self._retry_at = 0.0
        self._trouble = Repeated("adding what is due, or dropping what expired,")

    def add(self, due_ms: int) -> float:
        """Do a batch of what is due; after how many seconds to look again.

        ``due_ms`` is the word that says so.
        """
        if (wait_s := self._retry_at - time.monotonic()) > 0:
            return wait_s
        if not self._busy.acquire(blocking=False):
            return BUSY_S
        try:
            from logstore.engine.features.due_features import (
                TIMED,  # (not loaded where nothing is due)
            )

            engine = self._engine
            engine.check_open()
            if not any(self._do(timed) for timed in TIMED) and engine.wake.next_due_ms == due_ms:
                self._put_right()  # nobody was faster, and there was nothing
                return BUSY_S  # or the clock was put back meanwhile
        except ClosedError:
            return RETRY_S
        except Exception as exc:  # noqa: BLE001  whoever waits did not ask for this
            self._retry_at = time.monotonic() + RETRY_S
            self._trouble.failed(exc)
            return RETRY_S
        finally:
            self._busy.release()
        self._trouble.went()
        return 0.0

    def _do(self, timed: Timed) -> bool:
        """Do a batch of one kind of work, if its time has come; whether anything was done."""
        engine, first_due_of = self._engine, timed.feature.first_due
        assert first_due_of is not None
        first_ms = snapshot.read(engine, lambda view: first_due_of(view.index))
        if not 0 < first_ms <= engine.clock.now_ms():
            return False
        if timed.frees:
            return bool(self._committer.free(timed.work))
        reserve.check(engine)
        return bool(self._committer.run(timed.work))

    def _put_right(self) -> None:
        with self._committer.locked():
            refresh_locked(self._engine)


def refresh_locked(engine: Engine) -> None:
    """Set the word from the index, which stands where WAKE says. LOCK is held."""
    generation = engine.index()
    with generation.env.begin() as txn:
        engine.wake.next_due_ms = first_due(IndexTxn(generation, txn))
