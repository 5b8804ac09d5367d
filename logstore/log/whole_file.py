"""Files that are derived of a sealed segment, and written whole by one of several processes.

Invariants: a file stands under its name only when it is whole and durable. Who finds somebody at
work leaves it to them.
"""

from __future__ import annotations

import errno
from pathlib import Path

from logstore.errors import DiskFullError, FileSystemError
from logstore.fs import File, FileSystem
from logstore.log import file_names


def write_alone(fs: FileSystem, path: Path, data: bytes) -> None:
    """Write a file, all or nothing, by the one process that has the temporary file to itself.

    Nobody holds LOCK here: who cut a file that another one is just giving its name would leave an
    empty one. So the lock is on that very file, and counts only while it has the temporary name.
    """
    temporary = path.with_name(path.name + file_names.TEMPORARY)
    if not _cleared(fs, temporary):
        return
    try:
        file = fs.open(temporary, write=True, exclusive=True)
    except FileSystemError as exc:
        if exc.errno == errno.EEXIST:
            return  # somebody else came first
        raise
    try:
        # Between its making and its locking another one may take it for a leftover.
        if not file.try_lock(exclusive=True) or not _named(fs, file, temporary):
            return
        file.pwrite(data, 0)
        file.sync()
        fs.rename(temporary, path)
        fs.sync_directory(path.parent)
    except DiskFullError:
        fs.remove(temporary)  # half of it would keep its blocks
        raise
    finally:
        file.close()


def _cleared(fs: FileSystem, temporary: Path) -> bool:
    """Remove what a dead process left under that name; False if somebody is writing it now."""
    try:
        left = fs.open(temporary, write=True)
    except FileNotFoundError:
        return True
    except FileSystemError:  # a link, a FIFO: none of ours is one
        fs.remove(temporary)
        return True
    try:
        if not left.try_lock(exclusive=True) or not _named(fs, left, temporary):
            return False
        fs.remove(temporary)
        return True
    finally:
        left.close()


def _named(fs: FileSystem, file: File, path: Path) -> bool:
    """Whether the open file is the one of that name."""
    try:
        return fs.stat(path)[:2] == file.stat()[:2]
    except FileNotFoundError:
        return False
