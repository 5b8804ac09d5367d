"""The flusher: one thread a process that keeps the promise of ``everysec``.

Invariants: it acts when the oldest un-synced commit is over the interval, no matter whose it is. It
also adds scheduled entries, frees slots of killed readers, and closes forgotten stores. What may
take longer is the caretaker's, in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from logstore.clock import monotonic_ms
from logstore.engine.commit.committer import Committer
from logstore.engine.commit.durability import flush
from logstore.engine.runtime import identity, timers
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.runtime.repeated_failure import Repeated
from logstore.errors import StoreGoneError
from logstore.options import SYNC_INTERVAL_MS

POLL_S = 0.2
READER_CHECK_POLLS = 25
LATE_MAX_MS = 16


class Flusher:
    """Syncs the active segment once a second while there is something to sync."""

    def __init__(
        self, engine: Engine, committer: Committer, reap: Callable[[], None] = lambda: None
    ) -> None:
        self._engine = engine
        self._reap = reap  # closes stores whose handles were forgotten
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
        polls = 0
        trouble = Repeated("keeping the promise of everysec")
        while not self._pause():
            polls += 1
            try:
                identity.check(self._engine)
                self._keep_promise()
                self._reap()
                if self._stop.is_set():
                    return  # it was ours that was closed
                self._engine.notice_drops()
                if polls % READER_CHECK_POLLS == 0:
                    self._check_readers()
                trouble.went()
            except StoreGoneError as exc:
                log.error("work in the background ends: %s", exc)
                return
            except Exception as exc:  # noqa: BLE001  whatever fails in the care, the promise is kept
                trouble.failed(exc)
                if self._engine.wake.failed_at:
                    return

    def _pause(self) -> bool:
        """Until the next poll, doing what a time was set for; True when it must end.

        Waiting readers come first: they know best when, and one commit for each of many processes
        that wake together would be one too many for all but the first.
        """
        late_ms = 2 + self._engine.pid % LATE_MAX_MS
        end = time.monotonic() + POLL_S
        while not self._stop.wait(timers.within(self._engine, end - time.monotonic(), late_ms)):
            if time.monotonic() >= end:
                return False
        return True

    def _keep_promise(self) -> None:
        oldest = self._engine.wake.oldest_unsynced_ms
        if oldest and monotonic_ms() - oldest >= SYNC_INTERVAL_MS - POLL_S * 1000:
            flush(self._engine, self._committer)

    def _check_readers(self) -> None:
        """Free the slots of killed readers: one that held a snapshot lets the index grow; and those
        kept for waiters that did not come back.
        """
        self._engine.wake.waits.places.sweep()
        generation = self._engine.generation
        if generation is not None:
            freed = self._engine.gate.through(generation.check_readers)
            if freed:
                self._engine.wake.readers_changed += 1
