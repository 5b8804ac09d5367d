"""The flusher: one thread a process that keeps the promise of ``everysec``.

Invariants: it acts when the oldest un-synced commit is over the interval, no matter whose it is;
it syncs first and clears the word under the writer lock, and only if nothing was committed
meanwhile; ``durable_upto`` only rises to what was published before the sync began.
"""

from __future__ import annotations

import threading

from logstore import format as fmt
from logstore.clock import monotonic_ms
from logstore.engine.commit import Committer
from logstore.engine.core import Engine, log
from logstore.errors import Error
from logstore.log import names
from logstore.options import SYNC_INTERVAL_MS

POLL_S = 0.2


class Flusher:
    """Syncs the active segment once a second while there is something to sync."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; a daemon thread, so that it never keeps a process alive."""
        self._thread = threading.Thread(target=self._run, name="logstore-flusher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; what is un-synced is the closer's to sync."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                self._engine.notice_drops()
                oldest = self._engine.wake.oldest_unsynced_ms
                if oldest and monotonic_ms() - oldest >= SYNC_INTERVAL_MS - POLL_S * 1000:
                    flush(self._engine, self._committer)
            except Error as exc:
                log.error("making commits durable failed: %s", exc)
                if self._engine.wake.failed_at:
                    return


def flush(engine: Engine, committer: Committer) -> int:
    """Make all that is published durable; the position up to which it is."""
    engine.check_failed()
    words = engine.wake.log()
    if words.applied > engine.wake.durable_upto:
        _sync_segment(engine, words.active_segment)
        with committer.mutex:
            engine.lock.acquire(engine.wake, engine.options.lock_timeout_s)
            try:
                engine.wake.raise_durable(words.applied)
                now = engine.wake.log()
                unsynced = now.applied > words.applied or now.in_progress
                engine.wake.oldest_unsynced_ms = monotonic_ms() if unsynced else 0
            finally:
                engine.lock.release(engine.wake)
    return engine.wake.durable_upto


def _sync_segment(engine: Engine, number: int) -> None:
    """Sync by a file of our own: the committer's may move on meanwhile.

    Segments before the active one were synced when they were sealed, under every policy.
    """
    file = engine.fs.open(names.segment(engine.path, number), write=True)
    try:
        engine.sync_file(file, engine.wake.durable_upto or fmt.position(number, 0))
    finally:
        file.close()
