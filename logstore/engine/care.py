"""What keeps a store tidy beside commits: hints of sealed segments, and the locks that keep work
of several processes apart: one for checkpoint, compaction and backup, one for retention.

Invariants: a care lock is taken before any other lock and never waited for under one; a child that
is forked meanwhile does not keep it; a hint is only written for a segment that was sealed, which
means synced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from logstore import format as fmt
from logstore.engine.core import Engine
from logstore.errors import CorruptFrameError, LockTimeoutError
from logstore.log import chain, hint, names

CARE_TIMEOUT_S = 600.0


@contextmanager
def alone(
    engine: Engine, timeout_s: float = CARE_TIMEOUT_S, what: str = names.CHECKPOINTS
) -> Iterator[None]:
    """Hold a care lock: a flock on a directory; by default the one of all that copies or moves."""
    folder = engine.path / what
    engine.fs.make_directory(folder)
    file = engine.fs.open(folder)
    engine.care_files.add(file)
    deadline = time.monotonic() + timeout_s
    try:
        while not file.try_lock(exclusive=True):
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"another compaction, checkpoint or backup ran for over {timeout_s:g} s: "
                    "try again when it is done"
                )
            time.sleep(0.05)
        yield
    finally:
        engine.care_files.discard(file)
        try:
            if engine.pid == os.getpid():
                file.unlock()  # a child that was just forked may hold the same file for a moment
        finally:
            file.close()


def write_missing_hints(engine: Engine) -> int:
    """Write the hints that sealed main segments lack; how many."""
    present = set(engine.fs.names(engine.path / names.LOG))
    active = engine.wake.log().active_segment
    lacking = [
        number
        for number in names.segments(engine.fs, engine.path)
        if number < active and names.hint(engine.path, number).name not in present
    ]
    if not lacking:
        return 0
    written = 0
    for link in chain.main_links(engine.fs, engine.path, engine.uuid, lacking[0]):
        if link.number in lacking and link.number < active:
            try:
                hint.write(engine.fs, engine.path, engine.uuid, engine.seed, link)
                written += 1
            except (CorruptFrameError, FileNotFoundError):
                continue  # damaged: 'check' tells; dropped meanwhile: fine
    return written


def compacted_link(engine: Engine, number: int) -> chain.Link:
    """A compacted segment as a link, to read its hint or frames."""
    size = engine.fs.stat(names.segment(engine.path, number)).size_bytes
    return chain.Link(number, fmt.SEGMENT_HEAD_BYTES, size, size, 0)
