"""After a failed sync: write anew what may never have reached the disk.

A sync that failed must not be repeated and believed: the kernel marks the pages clean, and the next
sync succeeds although nothing was written. But the bytes can still be read, and their checksums
tell whether they are right. So the first opener after it copies every segment that is not durable
into a new file, syncs that, and puts it in the old one's place: same number, same positions.

Invariants: it runs before anything is read for trust, with no other process in the store; the mark
in WAKE is cleared only when all of it is durable, so that a crash in between starts over; the tail
check that follows judges the bytes as always.
"""

from __future__ import annotations

from logstore.engine.runtime.engine import Engine, log
from logstore.format import segment_of
from logstore.log import chain, names

_CHUNK_BYTES = 1 << 20


def rewrite(engine: Engine, failed_at: int) -> int:
    """Copy the segments from ``failed_at`` (a position) on into new files; how many."""
    count = 0
    for link in chain.main_links(engine.fs, engine.path, engine.uuid, segment_of(failed_at)):
        _copy(engine, link)
        count += 1
    engine.wake.failed_at = 0
    log.warning("a sync had failed: %d segments were written anew", count)
    return count


def _copy(engine: Engine, link: chain.Link) -> None:
    """Crash order: bytes, sync, rename, directory sync; before the rename nothing has changed."""
    fs = engine.fs
    path = names.segment(engine.path, link.number)
    temporary = path.with_name(path.name + names.TEMPORARY)
    source = fs.open(path)
    try:
        target = fs.open_new(temporary)
        try:
            for offset in range(0, link.file_bytes, _CHUNK_BYTES):
                target.pwrite(source.pread(_CHUNK_BYTES, offset), offset)
            target.sync()
        finally:
            target.close()
    finally:
        source.close()
    fs.rename(temporary, path)
    fs.sync_directory(path.parent)
