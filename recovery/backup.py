"""A backup: a copy of the log that is itself a store, taken without stopping anybody.

Crash order: everything but STORE is copied and synced, then STORE: without it the copy is not a
store yet. Invariants: only bytes below the position that was published and durable at the start are
copied; the maintenance lock keeps compaction from unlinking meanwhile. No index goes along: it is
derived.
"""

from __future__ import annotations

from pathlib import Path

from logstore import format as fmt
from logstore.engine.commit import durability
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.engine import Engine
from logstore.errors import OptionError
from logstore.fs import File
from logstore.log import chain, names

COPY_BYTES = 4 << 20


def take(engine: Engine, committer: Committer, target: Path) -> None:
    """Copy a store into an empty or new directory."""
    fs = engine.fs
    if fs.names(target):
        raise OptionError(f"{target} is not empty: give a new or an empty directory for a backup")
    with maintenance_locks.alone(engine):
        with committer.locked() as words:
            pass
        durability.flush(engine, committer)
        for folder in (names.LOG, names.CHECKPOINTS, names.PINS, names.INDEX):
            fs.make_directory(target / folder)
        active, end = fmt.position_parts(words.applied)
        if not words.applied:  # nothing was ever committed: the first segment's header
            active, end = words.active_segment, fmt.SEGMENT_HEAD_BYTES
        for number, (_, size) in chain.heads(fs, engine.path, engine.uuid).items():
            if number > active:
                continue
            limit = end if number == active else size
            _copy(engine, names.segment(engine.path, number), names.segment(target, number), limit)
            hint = names.hint(engine.path, number)
            if number < active and fs.exists(hint):
                _copy(engine, hint, names.hint(target, number))
        for position in names.checkpoints(fs, engine.path):
            if position <= words.applied:
                source = names.checkpoint(engine.path, position)
                _copy(engine, source, names.checkpoint(target, position))
        for folder in (names.LOG, names.CHECKPOINTS):
            fs.sync_directory(target / folder)
        store = fs.read(engine.path / names.STORE, fmt.STORE_BODY_MAX_BYTES * 2)
        fs.write_atomic(target / names.STORE, store)


def _copy(engine: Engine, source: Path, target: Path, limit_bytes: int | None = None) -> None:
    fs = engine.fs
    reading: File = fs.open(source)
    writing: File = fs.open_new(target)
    try:
        left = reading.size_bytes() if limit_bytes is None else limit_bytes
        offset = 0
        while left:
            data = reading.pread(min(COPY_BYTES, left), offset)
            if not data:
                break
            writing.pwrite(data, offset)
            offset += len(data)
            left -= len(data)
        writing.sync()
    finally:
        reading.close()
        writing.close()
