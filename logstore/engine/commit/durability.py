"""Making durable what was published: on demand, and once a second for ``everysec``.

Invariants: the sync comes first, and the word of what is not synced is cleared under the writer
lock and only if nothing was committed meanwhile; else the word says when the sync began, which is
before any commit that it did not cover. ``durable_upto`` only rises to what was published before
the sync began. The flusher, one thread a process, acts when the oldest commit that is not synced is
over the interval, no matter which process made it; it also adds scheduled entries, frees the slots
of killed readers and closes forgotten stores. What may take longer is done by the maintenance
thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from logstore import format as fmt
from logstore.clock import monotonic_ms
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime import identity
from logstore.engine.runtime.background import Repeated, StoreThread
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.snapshots import snapshot
from logstore.errors import DamagedStoreError, FileSystemError, StoreGoneError
from logstore.log import file_names
from logstore.options import SYNC_INTERVAL_MS


def flush(engine: Engine, committer: Committer) -> int:
    """Make all that is published durable; the position up to which it is.

    The words are read without LOCK, so only ``applied`` counts, one word: the segment that it names
    is synced, and those before it were synced when they were sealed, under every policy.
    """
    engine.check_open()
    engine.check_failed()
    began_ms = monotonic_ms()
    applied = engine.wake.applied
    if applied > engine.wake.durable_upto:
        _sync_segment(engine, fmt.segment_of(applied))
        with committer.locked(follow=False) as now:
            engine.wake.raise_durable(applied)
            # What came meanwhile is not covered, and may be as old as the beginning of the sync.
            unsynced = now.applied > engine.wake.durable_upto
            engine.wake.oldest_unsynced_ms = began_ms if unsynced else 0
    return engine.wake.durable_upto


def sync(engine: Engine, committer: Committer) -> int:
    """As ``flush_seen``, and the end of the log is checked even if all of it is durable:
    DamagedStoreError if it changed."""
    with committer.locked(follow=False):
        pass
    return flush(engine, committer)


def flush_seen(engine: Engine, committer: Committer) -> int:
    """The same for all that any reader has seen: LMDB knows of a commit before WAKE does, and while
    it does, the word of a commit in progress is set. A caller that waits for that
    commit waits for LOCK.
    """
    engine.check_open()
    engine.check_failed()
    if engine.wake.in_progress:  # looked at before ``applied`` is
        with committer.locked(follow=False):
            pass
    return flush(engine, committer)


def _sync_segment(engine: Engine, number: int) -> None:
    """Sync by a file of our own: the committer's may move on meanwhile."""
    try:
        file = engine.fs.open(file_names.segment(engine.path, number), write=True)
    except FileNotFoundError:
        identity.check(engine)
        if number >= engine.wake.log().active_segment:
            raise DamagedStoreError(
                "the segment that is written to is gone, and cannot be synced: close the store in "
                "every process, and restore it from a backup",
                segment=number,
            ) from None
        return  # sealed, and dropped since: both only after a sync
    try:
        engine.sync_file(file, engine.wake.durable_upto or fmt.position(number, 0))
    except FileSystemError:
        engine.check_failed()  # raises, and says what it means for the store
        raise
    finally:
        file.close()


POLL_S = 0.2
READER_CHECK_POLLS = 25
LATE_MAX_MS = 16


class Flusher(StoreThread):
    """Syncs the active segment once a second while there is something to sync. What is un-synced
    when it stops is the closer's to sync."""

    NAME = "logstore-flusher"

    def __init__(
        self, engine: Engine, committer: Committer, reap: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self._engine = engine
        self._reap = reap  # closes stores whose handles were forgotten
        self._committer = committer

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
                log.error("syncing in the background ends, as the store is gone: %s", exc)
                return
            except Exception as exc:  # noqa: BLE001  whatever fails here, the promise of everysec stays
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
        while not self._stop.wait(self._engine.sleep_within(end - time.monotonic(), late_ms)):
            if time.monotonic() >= end:
                return False
        return True

    def _keep_promise(self) -> None:
        oldest = self._engine.wake.oldest_unsynced_ms
        if oldest and monotonic_ms() - oldest >= SYNC_INTERVAL_MS - POLL_S * 1000:
            flush(self._engine, self._committer)

    def _check_readers(self) -> None:
        """Free the slots of killed readers, since one with a snapshot lets the index grow, and the
        slots of saved waiters that did not come back.
        """
        self._engine.wake.waits.saved.sweep()
        generation = self._engine.generation
        if generation is not None:
            freed = snapshot.inside(self._engine, lambda _: generation.check_readers())
            if freed:
                self._engine.wake.readers_changed += 1
