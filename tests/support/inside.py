"""The one door of the tests to what lies behind a handle, so that what moves is changed here alone.

What a test needs of the engine, of the log, or of the files of a store stands here once.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from logstore.api.store import Store
from logstore.compaction import closing
from logstore.engine import registry
from logstore.engine.commit import write_back
from logstore.engine.commit.committer import Committer, ready_locked
from logstore.engine.commit.log_tail import roll_locked
from logstore.engine.features.background_sweep import KeyCompaction
from logstore.engine.lane import lane as plain_lane
from logstore.engine.runtime import identity
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.waiters import PACE
from logstore.index.txn import IndexTxn
from logstore.log import frame as frames
from logstore.log.segment_writer import CommitBuffer

__all__ = [
    "START_MS", "Engine", "FixedClock", "add_frame", "close_gives_back", "committer_of",
    "delete_index", "do_due_work", "engine_of", "forget_reads", "indexed", "is_open",
    "keep_newest", "let_lag", "log_bytes", "roll",
]  # fmt: skip


START_MS = 1_700_000_000_000


@dataclass
class FixedClock:
    """A clock that stands still until it is set."""

    ms: int = START_MS

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return self.ms


def engine_of(store: Store[Any]) -> Engine:
    """The engine below a handle."""
    return store._live().engine


def is_open(path: Path) -> bool:
    """Whether this process has an engine for the store at this path, open to write."""
    found = path.stat()
    return (found.st_dev, found.st_ino, False) in registry._open


def committer_of(store: Store[Any]) -> Committer:
    """What commits for a handle."""
    return store._live().committer


def let_lag(
    patch: pytest.MonkeyPatch, commits: int, size_bytes: int = 64 * 1024, *, lane: bool = False
) -> None:
    """The index may be so far behind plain commits, here and in processes forked from here; they go
    through the pipeline, but with ``lane``: then all of them take it, however long a busy machine
    takes between two looks at the store's files.
    """
    patch.setattr(plain_lane, "IN_USE", lane)
    if lane:
        patch.setattr(identity, "LOOK_NS", 3600 * 10**9)
    patch.setattr(write_back, "INDEX_LAG_MAX_COMMITS", commits)
    patch.setattr(write_back, "INDEX_LAG_MAX_BYTES", size_bytes)


@contextmanager
def close_gives_back(dead_min_bytes: int = 4096) -> Iterator[None]:
    """A close gives back what is dead, and copies the index, also of a store as small as this, and
    with as little dead in it."""
    before = closing.DEAD_MIN_BYTES, closing.INDEX_FREE_BYTES, closing.SEGMENT_SHARE
    closing.DEAD_MIN_BYTES, closing.INDEX_FREE_BYTES = dead_min_bytes, 0
    closing.SEGMENT_SHARE = 0.07
    try:
        yield
    finally:
        closing.DEAD_MIN_BYTES, closing.INDEX_FREE_BYTES, closing.SEGMENT_SHARE = before


@contextmanager
def patient_waiters(seconds: float) -> Iterator[None]:
    """Who waits looks by itself only after so long, or when it knows that something is due."""
    before = PACE.slice_s
    PACE.set(seconds)
    try:
        yield
    finally:
        PACE.set(before)


def indexed(store: Store[Any]) -> int:
    """Up to where LMDB has the log, whatever WAKE says of it."""
    generation = engine_of(store).index()
    with generation.env.begin() as txn:
        return IndexTxn(generation, txn).meta().applied


def do_due_work(store: Store[Any]) -> None:
    """Do all that is due now, as the thread that sleeps until then does."""
    engine = engine_of(store)
    for _ in range(1000):
        if engine.sleep_within(1.0):
            return
    raise AssertionError("it never sleeps again")


def keep_newest(store: Store[Any]) -> int:
    """Delete what newer entries of their keys replace, and look at nothing behind the commit."""
    return KeyCompaction(engine_of(store), committer_of(store)).run()


def roll(store: Store[Any]) -> None:
    """Seal the active segment, as a commit that does not fit would."""
    engine = engine_of(store)
    with committer_of(store).mutex:
        engine.lock.acquire(engine.wake, 10)
        try:
            roll_locked(engine, ready_locked(engine))
        finally:
            engine.lock.release(engine.wake)


def forget_reads(store: Store[Any]) -> None:
    """Keep nothing that was read before: what is read next comes from the index and the log."""
    engine = engine_of(store)
    if engine.reader is not None:
        engine.reader.close()
        engine.reader = engine.new_reader()


def add_frame(buffer: CommitBuffer, body: frames.Body) -> tuple[int, int]:
    """Add a frame to a commit; its position and payload length."""
    return buffer.add_payload(frames.KIND_OF[type(body)], frames.encode(body))


def log_bytes(path: Path) -> int:
    """Bytes of the log on disk."""
    return sum(file.stat().st_size for file in (path / "log").glob("*.log"))


def delete_index(path: Path) -> None:
    """Remove the index of a closed store by hand."""
    shutil.rmtree(path / "index")


def lane_commits(store: Store[Any]) -> int:
    """How many adds were commits of the lane since this, or ``metrics``, was asked last."""
    lane = store._live().lane
    return 0 if lane is None else lane.take_counts()["commits"]


def follow(store: Store[Any]) -> None:
    """Let the index take in all that is published."""
    with committer_of(store).locked():
        pass
