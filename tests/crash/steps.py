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
from logstore.engine.shm.control_block import Wake
from logstore.engine.shm.writer_lock import WriterLock
from logstore.fs import File, FileSystem
from logstore.log.segment_writer import CommitBuffer

LINGER = 0.5
LINGER_S = 0.008
HURRY = 2  # the byte that ends every stop


class Step(IntEnum):
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


def in_commit(step: Step) -> bool:
    """Whether LOCK is held at the step."""
    return Step.LOCKED <= step <= Step.ROLL_SEGMENT_NAMED


class Watch:
    """The word, and the step at which the process lingers now and then."""

    def __init__(self, path: Path, seed: int, linger_at: Step, task: Task = Task.NONE) -> None:
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

    def at(self, step: Step) -> None:
        """Write the step down; linger there now and then."""
        if threading.current_thread() is not self._main:
            return
        if self.opening:
            step = Step.OPENING
        elif self.finishing and step > Step.LOCKED:
            step = Step.FINISHING_A_DEAD_COMMIT
        self.word[:2] = bytes((step, self.task))
        wanted = (self._linger_at, self._linger_in)
        if (step, self.task) == wanted and self._random.random() < LINGER:
            until = time.monotonic() + self._random.random() * LINGER_S
            while time.monotonic() < until and not self.word[HURRY]:
                time.sleep(0.0002)

    def within(self, task: Task) -> Callable[[], None]:
        """What begins a task, or ends it by going back to the one around it."""

        def mark() -> None:
            if threading.current_thread() is self._main:
                self.task = task
                self.at(Step.BEGUN if task else Step.OUTSIDE)

        return mark


def read(path: Path) -> Step:
    """The step at which a process was killed."""
    return Step(path.read_bytes()[0])


def read_both(path: Path) -> tuple[Step, Task]:
    """The step at which a process was killed, and what it was part of."""
    found = path.read_bytes()
    return Step(found[0]), Task(found[1])


def _around(
    owner: Any, name: str, before: Callable[[], None] | None, after: Callable[[], None] | None
) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before()
        result = original(*args, **kwargs)
        if after is not None:
            after()
        return result

    setattr(owner, name, wrapped)


class _SteppingFile(File):
    watch: Watch

    def pwrite(self, data: bytes | bytearray, offset: int) -> None:
        elsewhere = self.path.suffix != ".log" and not self.watch.task
        if elsewhere or len(data) < 2:
            super().pwrite(data, offset)
            return
        half = len(data) // 2
        super().pwrite(data[:half], offset)
        self.watch.at(Step.ROLLING if self.watch.rolling else Step.HALF_APPENDED)
        super().pwrite(data[half:], offset + half)
        self.watch.at(Step.ROLL_SEALED if self.watch.rolling else Step.APPENDED)

    def sync(self) -> None:
        if not self.watch.rolling:
            self.watch.at(Step.SYNCING)
        super().sync()
        made = self.path.suffix == ".tmp"
        synced = Step.ROLL_SEGMENT_MADE if made else Step.ROLL_SYNCED
        self.watch.at(synced if self.watch.rolling else Step.SYNCED)


class _SteppingFileSystem(FileSystem):
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def open(self, path: Path, *, write: bool = False, create: bool = False,
             exclusive: bool = False) -> File:  # fmt: skip
        file = super().open(path, write=write, create=create, exclusive=exclusive)
        fd, file.fd = file.fd, -1
        made = _SteppingFile(fd, path)
        made.watch = self._watch
        return made

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        if self._watch.rolling:
            self._watch.at(Step.ROLL_SEGMENT_NAMED)
        elif self._watch.task:
            self._watch.at(Step.RENAMED)

    def remove(self, path: Path) -> None:
        super().remove(path)
        if self._watch.task:
            self._watch.at(Step.REMOVED)


def watch(
    path: Path, seed: int, linger_at: Step, task: Task = Task.NONE, *, lane: bool = False
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

    def rolling(flag: bool, step: Step) -> Callable[[], None]:
        def mark() -> None:
            made.rolling = flag
            made.at(step)

        return mark

    def mark(step: Step) -> Callable[[], None]:
        return lambda: made.at(step)

    if not lane:
        opening.FILES[0] = _SteppingFileSystem(made)
    _around(WriterLock, "acquire", None, mark(Step.LOCKED))
    _around(WriterLock, "release", None, mark(Step.OUTSIDE))
    _around(pipeline, "_decide", mark(Step.DECIDING), None)
    _around(CommitBuffer, "encode", None, mark(Step.ENCODED))
    _around(Wake, "begin", None, mark(Step.ANNOUNCED))
    _around(pipeline, "_keep_promise", None, mark(Step.INDEXING))
    _around(Wake, "publish", mark(Step.INDEXED), mark(Step.PUBLISHED))

    def finishing(flag: bool) -> Callable[[], None]:
        def note() -> None:
            made.finishing = flag
            made.at(Step.FINISHING_A_DEAD_COMMIT)

        return note

    _around(log_tail, "check_locked", finishing(True), finishing(False))
    _around(
        log_tail,
        "roll_locked",
        rolling(True, Step.ROLLING),
        rolling(False, Step.ROLL_SEGMENT_NAMED),
    )
    for owner, name, part in TASKS:
        _task(owner, name, made, part)
    indexed: Any = vars(Wake)["indexed_upto"]

    def store(wake: Wake, position: int) -> None:
        if made.task == Task.FOLLOWING:
            made.at(Step.INDEXED)
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
