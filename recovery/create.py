"""Making a new store, and where one may be.

Invariants: without STORE it is not a store yet, so STORE comes last; a directory that holds
anything that is not the leftover of a creation is never written to.
"""

from __future__ import annotations

from pathlib import Path

from logstore import format as fmt
from logstore import fsinfo
from logstore.errors import FileSystemError, NotAStoreError
from logstore.fs import FileSystem
from logstore.log import file_names, segment, storefile
from logstore.options import StoreLimits

FOLDERS = (file_names.LOG, file_names.CHECKPOINTS, file_names.PINS, file_names.INDEX)


def place(fs: FileSystem, path: Path, *, create: bool) -> Path:
    """The directory of the store at ``path``, held open: from here on the store is this directory,
    whatever its name. With ``create`` it is made, unless it is there.

    FileSystemError for a network file system, or a part that is a link; NotAStoreError if there is
    no store, or, with ``create``, if the directory holds something else: it stays as it is then.
    """
    check_place(fs, path)
    try:
        held = fs.hold(path)
    except FileNotFoundError:
        if not create:
            storefile.read(fs, path)  # raises, and says why
            raise
        make_place(fs, path)
        held = fs.hold(path)
    others = _refuse_links(fs, held)
    if file_names.STORE not in others:
        if not create:
            storefile.read(fs, held)  # raises, and says why
        check_free(fs, held)
    return held


def store_file(
    fs: FileSystem, path: Path, limits: StoreLimits | None, now_ms: int
) -> tuple[storefile.StoreFile, bool]:
    """STORE, and whether it was made now: with ``limits``, where there was none. LOCK is held."""
    created = limits is not None and not fs.exists(path / file_names.STORE)
    if created and limits is not None:
        create_store(fs, path, limits, now_ms)
    return storefile.read(fs, path), created


def check_place(fs: FileSystem, path: Path) -> None:
    """FileSystemError for a network file system: its locks are no ground for a store."""
    probe = path
    while not fs.exists(probe) and probe != probe.parent:
        probe = probe.parent
    kind = fsinfo.mount_type(probe)
    if kind in fsinfo.NETWORK_TYPES:
        raise FileSystemError(
            f"{path} is on a network file system ({kind}), where locks and syncs cannot be relied "
            "on: keep the store on a local disk"
        )


def make_place(fs: FileSystem, path: Path) -> None:
    """Make the directory of a store, and those above it that are missing; their names are durable.

    A commit that is durable in a directory that is not is lost with it.
    """
    missing = [directory for directory in (path, *path.parents) if not fs.exists(directory)]
    fs.make_directory(path)
    for directory in reversed(missing):
        fs.sync_directory(directory.parent)


def hold(fs: FileSystem, path: Path) -> Path:
    """The directory at ``path``, held open. No part of the path is a link.

    NotAStoreError if there is none; FileSystemError for a part that is a link.
    """
    try:
        held = fs.hold(path)
    except FileNotFoundError:
        storefile.read(fs, path)  # raises, and says why
        raise
    _refuse_links(fs, held)
    return held


def _refuse_links(fs: FileSystem, held: Path) -> set[str]:
    """FileSystemError for a link where a directory of the store is kept; the names of all that is
    no directory."""
    others = fs.other_names(held)
    for folder in others.intersection((*FOLDERS, file_names.QUARANTINE)):
        fs.refuse_link(held / folder)
    return others


def _sync_name(fs: FileSystem, path: Path) -> None:
    """The name of the directory itself: whoever made it may not have come to sync it."""
    try:
        fs.sync_directory(path.parent)
    except FileSystemError as exc:
        if not isinstance(exc.__cause__, PermissionError):
            raise
        # We may not open it, so somebody else made the directory, before.


def create_store(fs: FileSystem, path: Path, limits: StoreLimits, now_ms: int) -> None:
    """Make a new store in an empty or new directory.

    Crash order: directories, first segment, STORE last: without STORE it is not a store yet, and
    creating it again takes the leftovers over. The directory's own name comes first.
    """
    limits.check()
    check_free(fs, path)
    _sync_name(fs, path)
    for folder in FOLDERS:
        fs.make_directory(path / folder)
    uuid = storefile.new_uuid()
    head = segment.SegmentHead(fmt.Role.MAIN, 1, uuid, 0, 0, now_ms)
    segment.create(fs, path, head).close()
    fs.sync_directory(path)
    content = storefile.StoreFile(uuid, limits, now_ms)
    fs.write_atomic(path / file_names.STORE, storefile.pack(content))


def check_free(fs: FileSystem, path: Path) -> None:
    """NotAStoreError if a directory holds what is neither a store nor the beginning of one."""
    there = fs.names(path)
    if file_names.STORE in there:
        return
    others = [name for name in there if name not in (*FOLDERS, file_names.LOCK)]
    # Another process may be making the store: a file that it renames meanwhile counts as empty.
    sizes = [
        fs.size_bytes(path / file_names.LOG / name) for name in fs.names(path / file_names.LOG)
    ]
    if any(not name.endswith(file_names.TEMPORARY) for name in others) or any(
        size > fmt.SEGMENT_HEAD_BYTES for size in sizes
    ):
        raise NotAStoreError(
            f"{path} holds other files and no store (or its file STORE was lost: restore that "
            "from a backup): give an empty or a new directory"
        )
