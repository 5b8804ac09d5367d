"""Making a store of what was shipped to a URI.

Invariant: a directory is a store only once all of it was fetched, checked and synced.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from logstore import format as fmt
from logstore.errors import CorruptionError, OptionError
from logstore.fs import LOCAL, File, FileSystem
from logstore.log import names
from logstore.log.shipped import MANIFEST, Manifest, Place, Progress


def fetch(
    uri: str, target: Path, *, progress: Progress | None = None, fs: FileSystem = LOCAL
) -> Manifest:
    """Make a store in an empty or new directory of what was shipped to a URI.

    Crash order: everything but STORE is written and synced, then STORE: without it the directory is
    no store. NotAStoreError if nothing was shipped there; CorruptionError, SnapshotExpired and
    FileSystemError as the objects are.
    """
    place = Place(uri)
    manifest = place.published()
    if fs.names(target):
        raise OptionError(f"{target} is not empty: give a new or an empty directory for the store")
    for folder in (names.LOG, names.CHECKPOINTS, names.PINS, names.INDEX):
        fs.make_directory(target / folder)
    total = sum(part.size_bytes for part in manifest.parts)
    done, store = 0, b""
    for part in manifest.parts:
        if progress is not None:
            progress(done, total)
        if part.path == names.STORE:
            if part.size_bytes > fmt.STORE_BODY_MAX_BYTES * 2:
                raise CorruptionError(f"{MANIFEST} at {place.shown} is damaged: its STORE is huge")
            store = b"".join(place.chunks(part))
        else:
            _write(fs, target / part.path, place.chunks(part))
        done += part.size_bytes
    if not store:
        raise CorruptionError(f"{MANIFEST} at {place.shown} is damaged: it names no STORE")
    for folder in (names.LOG, names.CHECKPOINTS):
        fs.sync_directory(target / folder)
    fs.write_atomic(target / names.STORE, store)
    return manifest


def _write(fs: FileSystem, path: Path, chunks: Iterator[bytes]) -> None:
    file: File = fs.open_new(path)
    offset = 0
    try:
        for data in chunks:
            file.pwrite(data, offset)
            offset += len(data)
        file.sync()
    finally:
        file.close()
