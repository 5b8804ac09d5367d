"""What the system tells of file systems: their type, and what tells one file or mount from another.

Invariants: 0 or an empty text means "not known", never a guess. Opens nothing of the store, but
files of /proc and /sys.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

from logstore.fs import reach
from logstore.mapped import NATIVE

# At most, at the locks of the system. Beside three processes that do nothing but lock and unlock
# ninety files, one look in 500 misses a line, and one in three has it several times (Linux 6.18).
LOOKS = 5
# Locks, mmap and rename are not what they are on a local disk.
NETWORK_TYPES = frozenset(
    {
        "9p",
        "afs",
        "ceph",
        "cifs",
        "coda",
        "fuse.cephfs",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gfs2",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb3",
        "smbfs",
        "vboxsf",
    }
)

_AT_FDCWD = -100
_STATX_BTIME = 0x800
_STATX_MNT_ID_UNIQUE = 0x4000
_STATX_BASIC = 0x7FF
# struct statx: mask at 0, creation time at 80 (s64, u32), mount id at 144
_BTIME_OFFSET, _MOUNT_OFFSET = 80, 144


class SystemFile:
    """A file of /proc or /sys, open to be read again and again; closed when nobody has it."""

    def __init__(self, path: str) -> None:
        self._fd = -1
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def read(self, size_bytes: int, offset: int = 0) -> bytes:
        """A part of it as it is now; empty if what it tells of is gone."""
        try:
            return os.pread(self._fd, size_bytes, offset)
        except OSError:
            return b""

    def __del__(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)


def system_bytes(path: str) -> bytes:
    """What the system tells in a file of /proc or /sys; empty where it does not."""
    found = b""
    with suppress(OSError):
        file = SystemFile(path)
        while part := file.read(65536, len(found)):
            found += part
    return found


def _unescape(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def mount_type(path: Path, mountinfo: str | None = None) -> str:
    """The type of the file system that holds ``path``; empty where the system does not tell.

    ``mountinfo`` has the form of /proc/self/mountinfo.
    """
    if mountinfo is None:
        mountinfo = system_bytes("/proc/self/mountinfo").decode("utf-8", "surrogateescape")
    best, found = "", ""
    real = os.path.realpath(path)
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        parts = left.split()
        if not dash or len(parts) < 5 or not right:
            continue
        point = _unescape(parts[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, found = point, right.split()[0]
    return found


def space(path: Path) -> tuple[int, int]:
    """Bytes of the file system that holds a path: free for this user, and all that it has for
    users; 0, 0 where the system does not tell."""
    try:
        found = os.statvfs(reach(path))
    except OSError:
        return 0, 0
    used = found.f_blocks - found.f_bfree
    return found.f_bavail * found.f_frsize, (used + found.f_bavail) * found.f_frsize


def file_identity(path: Path) -> tuple[int, int, int, int]:
    """Unique mount id, device, inode, creation time in ns; 0 for what is not known."""
    name = reach(path)
    try:
        plain = os.stat(name)
    except OSError:
        return 0, 0, 0, 0
    buffer = _statx(os.fsencode(name), _STATX_BASIC | _STATX_BTIME | _STATX_MNT_ID_UNIQUE)
    if buffer is None:
        return 0, plain.st_dev, plain.st_ino, 0
    given = struct.unpack_from("<I", buffer, 0)[0]
    seconds, nanoseconds = struct.unpack_from("<qI", buffer, _BTIME_OFFSET)
    mount = struct.unpack_from("<Q", buffer, _MOUNT_OFFSET)[0]
    return (
        mount if given & _STATX_MNT_ID_UNIQUE else 0,
        plain.st_dev,
        plain.st_ino,
        seconds * 1_000_000_000 + nanoseconds if given & _STATX_BTIME else 0,
    )


def _statx(name: bytes, mask: int) -> bytes | None:
    """What statx gives of a file; None if it gives nothing, or is not there."""
    if NATIVE is not None:
        found: bytes | None = NATIVE.statx(name, mask)
        return found
    import ctypes

    if os.name != "posix" or not hasattr(ctypes.CDLL(None), "statx"):
        return None
    buffer = ctypes.create_string_buffer(256)
    failed = ctypes.CDLL(None).statx(_AT_FDCWD, name, 0, mask, ctypes.byref(buffer))
    return None if failed else buffer.raw


def flock_owner(path: Path, locks: str | None = None) -> int:
    """The pid of the process that took a flock on ``path``; 0 if nobody has it, if several have, or
    if it is not known.

    ``locks`` has the form of /proc/locks. The system gives that file in pieces, and lines are left
    out, or come twice, while others lock and unlock: it is read again if none is of this file.
    """
    if locks is None:
        looks = (system_bytes("/proc/locks").decode("ascii", "replace") for _ in range(LOOKS))
        found = next(filter(None, (_flock_pids(path, each) for each in looks)), set[int]())
    else:
        found = _flock_pids(path, locks)
    return max(0, *found) if len(found) == 1 else 0


def _flock_pids(path: Path, locks: str) -> set[int]:
    """Whose flocks on ``path`` are told of. A file system may have another device number there than
    in stat: then the inode alone has to tell."""
    found = os.stat(reach(path))
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    held: set[tuple[str, int]] = set()
    for line in locks.splitlines():
        parts = line.split()  # number, kind, how, which, pid, device and inode, from, to
        if len(parts) < 6 or parts[1] != "FLOCK":  # those who wait have an arrow before the kind
            continue
        where, _, inode = parts[5].rpartition(":")
        if inode == str(found.st_ino):
            held.add((where, int(parts[4])))
    return {pid for where, pid in held if where == device} or {pid for _, pid in held}
