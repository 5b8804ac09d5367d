"""Where a process stands in a commit, written to a shared word that outlives a SIGKILL.

Only writers of kill tests use it: ``watch`` wraps the steps of the code under test in their own
process. The lane is one call of C: with ``lane`` its steps are told by a library that was loaded
before the C library (kills/linger.c). A wrapper may also stop for a moment, so that the killer
finds the process there, and an append is made in two writes, as the kernel may make it. Two bytes
tell where it is: the step, and the task that it belongs to (a part of compaction, a checkpoint, a
close); a third, written by the killer, ends every stop. Only the main thread of the process is
watched.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

from logstore.api import opening
from logstore.compaction import runner, segment_rewrite
from logstore.compaction.segment_rewrite import CompactedSegment
from logstore.engine.commit import log_tail, pipeline, write_back
from logstore.engine.maintenance import checkpoint
from logstore.engine.shm.commit_words import Wake
from logstore.engine.shm.writer_lock import WriterLock
from logstore.log.segment_writer import CommitBuffer
from tests.support.processes import die
from tests.support.watched_files import SECOND_HALF, FileOperation, WatchedFileSystem
from tests.support.wrapped_calls import around

LINGER = 0.5
LINGER_S = 0.008
HURRY = 2  # the byte that ends every stop


class CommitStep(IntEnum):
    """Steps in the order of a commit; those from ``LOCKED`` on are inside one."""

    OUTSIDE = 0
    OPENING = 1
    LOCKED = 2
    DECIDING = 3
    ENCODED = 4
    ANNOUNCED = 5
    HALF_APPENDED = 6
    APPENDED = 7
    SYNCING = 8
    SYNCED = 9
    INDEXING = 10
    INDEXED = 11
    PUBLISHED = 12
    FINISHING_A_DEAD_COMMIT = 13
    ROLLING = 14
    ROLL_SEALED = 15
    ROLL_SYNCED = 16
    ROLL_SEGMENT_MADE = 17
    ROLL_SEGMENT_NAMED = 18
    # Of other tasks, between commits.
    BEGUN = 19
    RENAMED = 20
    REMOVED = 21


class Task(IntEnum):
    """What a step is part of, beside a commit of the caller's own."""

    NONE = 0
    CLOSING = 1
    CHECKPOINT = 2
    COMPACTION_SEALING = 3
    COMPACTION_WRITING = 4
    COMPACTION_ADOPTING = 5
    COMPACTION_RESTATING = 6
    COMPACTION_DROPPING = 7
    COMPACTION_UNLINKING = 8
    COMPACTION_SHRINKING_THE_INDEX = 9
    LANE = 10  # what it will commit is not known yet
    LANE_ADD = 11
    LANE_READ = 12
    LANE_ACK = 13
    FOLLOWING = 14  # the index


# Whose call is which task.
TASKS: tuple[tuple[Any, str, Task], ...] = (
    (checkpoint, "take_alone", Task.CHECKPOINT),
    (segment_rewrite, "seal", Task.COMPACTION_SEALING),
    (segment_rewrite, "write_and_adopt", Task.COMPACTION_WRITING),
    (CompactedSegment, "finish", Task.COMPACTION_WRITING),
    (segment_rewrite, "adopt", Task.COMPACTION_ADOPTING),
    (segment_rewrite, "rewrite_open_nodes", Task.COMPACTION_RESTATING),
    (segment_rewrite, "drop_dead", Task.COMPACTION_DROPPING),
    (segment_rewrite, "unlink", Task.COMPACTION_UNLINKING),
    (runner, "_shrink_index", Task.COMPACTION_SHRINKING_THE_INDEX),
    (write_back, "follow_locked", Task.FOLLOWING),
)
OF_LANE = (Task.LANE, Task.LANE_ADD, Task.LANE_READ, Task.LANE_ACK)


def in_commit(step: CommitStep) -> bool:
    """Whether LOCK is held at the step."""
    return CommitStep.LOCKED <= step <= CommitStep.ROLL_SEGMENT_NAMED


class Watch:
    """The word, and the step at which the process lingers now and then."""

    def __init__(
        self, path: Path, seed: int, linger_at: CommitStep, task: Task = Task.NONE
    ) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(fd, 8)
        self.word = mmap.mmap(fd, 8)
        os.close(fd)
        self.opening = True
        self.rolling = False
        self.finishing = False
        self._random = random.Random(seed)
        self._linger_at = linger_at
        self._linger_in = task
        self.task = Task.NONE
        self._main = threading.current_thread()

    def at(self, step: CommitStep) -> None:
        """Write the step down; linger there now and then."""
        if threading.current_thread() is not self._main:
            return
        if self.opening:
            step = CommitStep.OPENING
        elif self.finishing and step > CommitStep.LOCKED:
            step = CommitStep.FINISHING_A_DEAD_COMMIT
        self.word[:2] = bytes((step, self.task))
        wanted = (self._linger_at, self._linger_in)
        if (step, self.task) == wanted and self._random.random() < LINGER:
            until = time.monotonic() + self._random.random() * LINGER_S
            while time.monotonic() < until and not self.word[HURRY]:
                time.sleep(0.0002)

    def die_at(self, step: CommitStep) -> None:
        """From here on the process is killed when it reaches the step, and writes nothing down."""
        self.opening = False

        def at(reached: CommitStep) -> None:
            if reached == step:
                die()

        self.at = at  # type: ignore[method-assign]

    def within(self, task: Task) -> Callable[[], None]:
        """What begins a task, or ends it by going back to the one around it."""

        def mark() -> None:
            if threading.current_thread() is self._main:
                self.task = task
                self.at(CommitStep.BEGUN if task else CommitStep.OUTSIDE)

        return mark


def read(path: Path) -> CommitStep:
    """The step at which a process was killed."""
    return CommitStep(path.read_bytes()[0])


def read_both(path: Path) -> tuple[CommitStep, Task]:
    """The step at which a process was killed, and what it was part of."""
    found = path.read_bytes()
    return CommitStep(found[0]), Task(found[1])


class _SteppingFileSystem(WatchedFileSystem):
    """Writes the step of a commit, of a roll or of a task down where an operation tells it."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def halves(self, path: Path) -> bool:
        """An append, and every write of a task."""
        return path.suffix == ".log" or bool(self._watch.task)

    def before(self, operation: FileOperation) -> None:
        rolling = self._watch.rolling
        if operation.kind == SECOND_HALF:
            self._watch.at(CommitStep.ROLLING if rolling else CommitStep.HALF_APPENDED)
        elif operation.kind == "sync" and not rolling:
            self._watch.at(CommitStep.SYNCING)

    def after(self, operation: FileOperation) -> None:
        kind, rolling, in_task = operation.kind, self._watch.rolling, bool(self._watch.task)
        if kind == SECOND_HALF:
            self._watch.at(CommitStep.ROLL_SEALED if rolling else CommitStep.APPENDED)
        elif kind == "sync":
            made = operation.path.suffix == ".tmp"
            synced = CommitStep.ROLL_SEGMENT_MADE if made else CommitStep.ROLL_SYNCED
            self._watch.at(synced if rolling else CommitStep.SYNCED)
        elif kind == "rename" and (rolling or in_task):
            self._watch.at(CommitStep.ROLL_SEGMENT_NAMED if rolling else CommitStep.RENAMED)
        elif kind == "remove" and in_task:
            self._watch.at(CommitStep.REMOVED)


def watch(
    path: Path, seed: int, linger_at: CommitStep, task: Task = Task.NONE, *, lane: bool = False
) -> Watch:
    """Wrap the steps of this process; to be called once, in a process of its own.

    ``lane``: the real file system, for without that there is none, and the library is loaded.
    """
    made = Watch(path, seed, linger_at, task)
    if lane:
        word = ctypes.addressof(ctypes.c_char.from_buffer(made.word))
        arm = ctypes.CDLL(None).linger_arm
        arm.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint)
        arm(word, linger_at, task, seed)

    def rolling(flag: bool, step: CommitStep) -> Callable[..., None]:
        def mark(*_: object) -> None:
            made.rolling = flag
            made.at(step)

        return mark

    def mark(step: CommitStep) -> Callable[..., None]:
        return lambda *_: made.at(step)

    if not lane:
        opening.FILES[0] = _SteppingFileSystem(made)
    around(WriterLock, "acquire", None, mark(CommitStep.LOCKED))
    around(WriterLock, "release", None, mark(CommitStep.OUTSIDE))
    around(pipeline, "_decide", mark(CommitStep.DECIDING))
    around(CommitBuffer, "encode", None, mark(CommitStep.ENCODED))
    around(Wake, "begin", None, mark(CommitStep.ANNOUNCED))
    around(pipeline, "_keep_promise", None, mark(CommitStep.INDEXING))
    around(Wake, "publish", mark(CommitStep.INDEXED), mark(CommitStep.PUBLISHED))

    def finishing(flag: bool) -> Callable[..., None]:
        def note(*_: object) -> None:
            made.finishing = flag
            made.at(CommitStep.FINISHING_A_DEAD_COMMIT)

        return note

    around(log_tail, "check_locked", finishing(True), finishing(False))
    around(
        log_tail,
        "roll_locked",
        rolling(True, CommitStep.ROLLING),
        rolling(False, CommitStep.ROLL_SEGMENT_NAMED),
    )
    for owner, name, part in TASKS:
        _task(owner, name, made, part)
    indexed: Any = vars(Wake)["indexed_upto"]

    def store(wake: Wake, position: int) -> None:
        if made.task == Task.FOLLOWING:
            made.at(CommitStep.INDEXED)
        indexed.fset(wake, position)

    Wake.indexed_upto = property(indexed.fget, store)  # type: ignore[assignment]
    return made


def _task(owner: Any, name: str, made: Watch, task: Task) -> None:
    """Mark a call as a task; also if it raises, the one around it goes on."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before = made.task
        made.within(task)()
        try:
            return original(*args, **kwargs)
        finally:
            made.within(before)()

    setattr(owner, name, wrapped)
