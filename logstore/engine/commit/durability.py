"""Making what was published durable.

Invariants: it syncs first and clears the word under the writer lock, and only if nothing was
committed meanwhile: else it says when the sync began, which is before any commit that it did not
cover; ``durable_upto`` only rises to what was published before the sync began.
"""

from __future__ import annotations

from logstore import format as fmt
from logstore.clock import monotonic_ms
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime import identity
from logstore.engine.runtime.engine import Engine
from logstore.errors import DamagedStoreError, FileSystemError
from logstore.log import names


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
        with committer.locked() as now:
            engine.wake.raise_durable(applied)
            # What came meanwhile is not covered, and may be as old as the beginning of the sync.
            unsynced = now.applied > engine.wake.durable_upto
            engine.wake.oldest_unsynced_ms = began_ms if unsynced else 0
    return engine.wake.durable_upto


def flush_seen(engine: Engine, committer: Committer) -> int:
    """The same for all that any reader has seen: LMDB knows of a commit before WAKE does, and while
    it does, the word of a commit in progress is set. Who waits for that commit waits for LOCK."""
    engine.check_open()
    engine.check_failed()
    if engine.wake.in_progress:  # looked at before ``applied`` is
        with committer.locked():
            pass
    return flush(engine, committer)


def _sync_segment(engine: Engine, number: int) -> None:
    """Sync by a file of our own: the committer's may move on meanwhile."""
    try:
        file = engine.fs.open(names.segment(engine.path, number), write=True)
    except FileNotFoundError:
        identity.check(engine)
        if number >= engine.wake.log().active_segment:
            raise DamagedStoreError(
                "the segment that is written to is gone, and cannot be synced: close the store in "
                "every process, and restore it from a backup", segment=number,
            ) from None  # fmt: skip
        return  # sealed, and dropped since: both only after a sync
    try:
        engine.sync_file(file, engine.wake.durable_upto or fmt.position(number, 0))
    except FileSystemError:
        engine.check_failed()  # raises, and says what it means for the store
        raise
    finally:
        file.close()
