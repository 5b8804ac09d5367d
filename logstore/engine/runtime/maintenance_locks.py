"""What keeps a store tidy beside commits: hints of sealed segments, and the locks that keep work
of several processes apart: one for checkpoint, compaction and backup, one for retention.

Invariants: a maintenance lock is taken before any other lock and never waited for under one; a
child that is forked meanwhile does not keep it; a hint is only written for a segment that was
sealed, which means synced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from logstore import format as fmt
from logstore import fsinfo
from logstore.engine.runtime import identity
from logstore.engine.runtime.engine import Engine, log
from logstore.errors import CorruptFrameError, LockTimeoutError
from logstore.fs import File
from logstore.log import chain, file_names

CARE_TIMEOUT_S = 600.0
LOG_AFTER_S = 5.0  # then who waits says so in the log, and for whom


@contextmanager
def alone(
    engine: Engine, timeout_s: float = CARE_TIMEOUT_S, what: str = file_names.CHECKPOINTS
) -> Iterator[None]:
    """Hold a maintenance lock: a flock on a directory, by default of all that copies or moves.

    ``what``: another one of the store's directories, but for log/, which every process that has the
    store open holds (``shm.users_file``).
    """
    assert what != file_names.LOG
    engine.refuse_inside()  # others would wait with it, for whoever has the lock
    folder = engine.path / what
    engine.fs.make_directory(folder)
    file = engine.fs.open(folder)
    engine.care_files.add(file)
    try:
        if not file.try_lock(exclusive=True):
            _wait(file, folder, timeout_s)
        identity.check_whole(engine)
        yield
    finally:
        engine.care_files.discard(file)
        try:
            if engine.pid == os.getpid():
                file.unlock()  # a child that was just forked may hold the same file for a moment
        finally:
            file.close()


def _wait(file: File, folder: Path, timeout_s: float) -> None:
    """Wait until the lock is taken; LockTimeoutError names the process that has it."""
    started = time.monotonic()
    logged = False
    while not file.try_lock(exclusive=True):
        waited_s = time.monotonic() - started
        if waited_s >= timeout_s:
            pid = fsinfo.flock_owner(folder) if timeout_s else 0
            raise LockTimeoutError(
                f"a compaction, checkpoint or backup of {_who(pid)} did not end within "
                f"{timeout_s:g} s: try again when it is done, or look at that process (a stopped "
                "one keeps its lock)",
                owner_pid=pid or None,
            )
        if not logged and waited_s >= LOG_AFTER_S:
            logged = True
            who = _who(fsinfo.flock_owner(folder))
            log.warning(
                "waiting for a compaction, checkpoint or backup of %s, for up to %g s",
                who,
                timeout_s,
            )
        time.sleep(0.05)


def _who(pid: int) -> str:
    return f"process {pid}" if pid else "another process"


def write_missing_hints(engine: Engine, but: Collection[int] = ()) -> int:
    """Write the hints that sealed main segments lack, ``but`` those of some; how many."""
    present = set(engine.fs.names(engine.path / file_names.LOG))
    active = engine.wake.log().active_segment
    lacking = [
        number
        for number in file_names.segments(engine.fs, engine.path)
        if number < active
        and number not in but
        and file_names.hint(engine.path, number).name not in present
    ]
    if not lacking:
        return 0
    written = 0
    for link in chain.main_links(engine.fs, engine.path, engine.uuid, lacking[0]):
        if link.number in lacking and link.number < active:
            try:
                from logstore.log import hint

                hint.write(engine.fs, engine.path, engine.uuid, engine.seed, link)
                written += 1
            except (CorruptFrameError, FileNotFoundError):
                continue  # damaged: 'check' reports it; dropped meanwhile: fine
    return written


def compacted_link(engine: Engine, number: int) -> chain.Link:
    """A compacted segment as a link, to read its hint or frames."""
    size = engine.fs.stat(file_names.segment(engine.path, number)).size_bytes
    return chain.Link(number, fmt.SEGMENT_HEAD_BYTES, size, size, 0)
