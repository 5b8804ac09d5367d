"""What the system refuses, as one of our errors: with what to do about it.

Invariants: every OSError has a typed error, which carries its ``errno`` and the path; what tells of
a full disk, a quota or a limit of the file size is one kind. Touches no file.
"""

from __future__ import annotations

import errno
import os

from logstore.errors import DiskFullError, FileSystemError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def typed(exc: OSError, path: str | os.PathLike[str], doing: str) -> FileSystemError:
    """The typed error for an OSError, saying what to do; with its ``errno`` and ``filename``."""
    what = exc.strerror or str(exc)
    name = os.fspath(path)
    made = FileSystemError(
        f"{doing} {name} failed: {what}; look into the system's log for errors of the disk, and "
        "run 'logstore check' when it is sound again"
    )
    if exc.errno in FULL:
        made = DiskFullError(
            f"no space left while {doing} {name}: {what}; delete or trim entries and compact, "
            "or make room on the disk"
        )
    elif exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        made = FileSystemError(
            f"no permission while {doing} {name}: {what}; fix the permissions, "
            "or open with readonly=True"
        )
    elif exc.errno in (errno.EMFILE, errno.ENFILE):
        made = FileSystemError(
            f"too many open files while {doing} {name}: raise the limit with ulimit -n"
        )
    elif exc.errno == errno.ELOOP:
        made = FileSystemError(
            f"{doing} {name} failed: it is a symbolic link, which logstore did not make and does "
            "not follow: move it away, or put the file itself in its place"
        )
    elif exc.errno in (errno.EEXIST, errno.ENOTDIR):
        made = FileSystemError(f"{doing} {name} failed: {what}; give a directory, not a file")
    made.errno, made.filename = exc.errno, name
    return made
