"""Making a store of what was shipped to a URI.

Crash order: as ``filling`` has it; a directory is a store once all of it was fetched and checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from logstore import format as fmt
from logstore.errors import CorruptionError
from logstore.fs import LOCAL, File, FileSystem
from logstore.log import file_names
from logstore.log.shipped import MANIFEST, Manifest, Place, Progress
from logstore.recovery.filling import filling


def fetch(
    uri: str, target: Path, *, progress: Progress | None = None, fs: FileSystem = LOCAL
) -> Manifest:
    """Make a store in an empty or new directory of what was shipped to a URI.

    NotAStoreError if nothing was shipped there; CorruptionError, SnapshotExpiredError and
    FileSystemError as the objects are.
    """
    place = Place(uri)
    manifest = place.published()
    with filling(fs, target, "the store") as made:
        total = sum(part.size_bytes for part in manifest.parts)
        done, store = 0, b""
        for part in manifest.parts:
            if progress is not None:
                progress(done, total)
            if part.path == file_names.STORE:
                if part.size_bytes > fmt.STORE_BODY_MAX_BYTES * 2:
                    raise CorruptionError(
                        f"{MANIFEST} at {place.shown} is damaged: its STORE is huge"
                    )
                store = b"".join(place.chunks(part))
            else:
                _write(made.file(target / part.path), place.chunks(part))
            done += part.size_bytes
        if not store:
            raise CorruptionError(f"{MANIFEST} at {place.shown} is damaged: it names no STORE")
        made.end(store)
    return manifest


def _write(file: File, chunks: Iterator[bytes]) -> None:
    offset = 0
    with closing(file):
        for data in chunks:
            file.pwrite(data, offset)
            offset += len(data)
        file.sync()
