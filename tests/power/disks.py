"""A file system in an image of its own, mounted by a loop device, whose power can be cut.

FS_IOC_SHUTDOWN makes a mounted file system forget at once what it has not written, as a power cut
does; after unmounting and mounting again only what had reached the image is there. Invariants:
nothing but mounts made here is ever unmounted; ``close`` may be called at any time, and again, and
leaves neither mount nor loop device behind. It knows nothing of stores.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

SHUTDOWN = 0x8004587D
LOSES_ALL, KEEPS_METADATA = 2, 1  # NOLOGFLUSH: the journal, too, is lost; LOGFLUSH: it is written
_SEARCHED = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_UNMOUNT_S = 10.0
_PR_SET_PDEATHSIG = 1
_IN_MEMORY = Path("/dev/shm")
_FREE_BYTES = 1 << 30


class Kind(NamedTuple):
    """A file system, how it is made, and with which options it is mounted."""

    name: str
    make: tuple[str, ...]
    options: str
    image_bytes: int

    def __str__(self) -> str:
        return f"{self.name} ({self.options})" if self.options else self.name


_EXT4 = ("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0")
# The last two show what ext4 may leave, too: sizes that grew without their bytes, and old bytes.
KINDS = (
    Kind("ext4", _EXT4, "", 256 << 20),
    Kind("xfs", ("mkfs.xfs", "-q", "-f", "-K"), "", 320 << 20),
    Kind("ext4", _EXT4, "commit=1,data=writeback", 256 << 20),
    Kind("ext4", _EXT4, "data=writeback,nodelalloc,dioread_lock", 256 << 20),
)


def fast() -> bool:
    """Whether images can be kept in memory: a cut is the same, and takes less time."""
    found = shutil.disk_usage(_IN_MEMORY) if os.access(_IN_MEMORY, os.W_OK) else None
    return found is not None and found.free > _FREE_BYTES


class Disk:
    """One image, and where it is mounted; the image is in memory, or ``here`` in the folder."""

    def __init__(self, folder: Path, kind: Kind, *, here: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.kind = kind
        in_memory = fast() and not here
        self._fast = Path(tempfile.mkdtemp(dir=_IN_MEMORY)) if in_memory else None
        self.image = (self._fast or folder) / "image"
        self.at = folder / "mount"
        self.at.mkdir(exist_ok=True)
        self.mounted = False
        self.device = 0
        self._guard = Guard(self.at, self.image)
        try:
            with self.image.open("wb") as file:
                file.truncate(kind.image_bytes)
            self.make()
        except BaseException:
            self.close()
            raise

    def make(self) -> None:
        """Make the file system anew; old bytes stay in the image, as on a used disk."""
        assert not self.mounted
        run_tool(*self.kind.make, str(self.image))

    def mount(self) -> None:
        """Mount it; the loop device goes with the mount."""
        self._mount(self.image, "loop")

    def mount_anew(self) -> None:
        """Unmount and mount, on the same device: only the mount is another one.

        The loop device is kept open in between, or another process would take it.
        """
        before = self.device  # a file system that was shut down does not tell
        device = Path(f"/dev/loop{os.minor(before)}")
        kept = os.open(device, os.O_RDONLY)
        try:
            self.unmount()
            self._mount(device, "rw")
            assert self.at.stat().st_dev == before
        finally:
            os.close(kept)

    def _mount(self, source: Path, option: str) -> None:
        options = ",".join(filter(None, (option, self.kind.options)))
        run_tool("mount", "-t", self.kind.name, "-o", options, str(source), str(self.at))
        self.mounted = True
        self.device = self.at.stat().st_dev

    def cut(self, how: int = LOSES_ALL) -> None:
        """Cut the power."""
        fd = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", how))
        finally:
            os.close(fd)

    def unmount(self) -> None:
        """Unmount it; who used it must be gone."""
        unmount(self.at)
        self.mounted = False

    def close(self) -> None:
        """Leave nothing mounted, whoever still uses it."""
        if self.mounted:
            detach(self.at)
            self.mounted = False
        self._guard.close()
        self.image.unlink(missing_ok=True)
        if self._fast is not None:
            shutil.rmtree(self._fast, ignore_errors=True)


class Guard:
    """Another process, which unmounts and removes an image if this one ends without doing so."""

    def __init__(self, at: Path, image: Path) -> None:
        script = 'cat > /dev/null; while umount -l "$1" 2> /dev/null; do :; done; rm -rf "$2"'
        self._shell = subprocess.Popen(
            ("sh", "-c", script, "sh", str(at), str(image)), stdin=subprocess.PIPE,
            start_new_session=True, env={**os.environ, "PATH": _SEARCHED},
        )  # fmt: skip

    def close(self) -> None:
        """It is unmounted; safe to repeat."""
        if self._shell.returncode is None:
            self._shell.kill()
            self._shell.wait()
            assert self._shell.stdin is not None
            self._shell.stdin.close()


def die_with_parent() -> None:
    """For a child that was forked: be killed when the process that forked it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def unmount(at: Path) -> None:
    """Unmount; waits a little for the last file to be closed."""
    end = time.monotonic() + _UNMOUNT_S
    while True:
        try:
            return run_tool("umount", str(at))
        except subprocess.CalledProcessError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def detach(at: Path) -> None:
    """Unmount now, or as soon as the last user is gone."""
    try:
        run_tool("umount", str(at))
    except subprocess.CalledProcessError:
        run_tool("umount", "-l", str(at))


@cache
def why_not(name: str) -> str:
    """Why power cuts of such a file system cannot be made here; empty if they can."""
    if not sys.platform.startswith("linux"):
        return "power cuts need Linux"
    if os.geteuid():
        return "power cuts need root, for mounting"
    for tool in ("mount", "umount", f"mkfs.{name}"):
        if shutil.which(tool, path=_SEARCHED) is None:
            return f"{tool} is not installed"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    kind = next(kind for kind in KINDS if kind.name == name)
    with tempfile.TemporaryDirectory() as folder:
        disk = None
        try:
            disk = Disk(Path(folder), kind)
            disk.mount()
            disk.cut()
            disk.unmount()
        except (OSError, subprocess.CalledProcessError) as exc:
            said = getattr(exc, "stderr", "") or str(exc)
            return f"{name} cannot be mounted by a loop device and shut down here: {said.strip()}"
        finally:
            if disk is not None:
                disk.close()
    return ""


def run_tool(*command: str) -> None:
    """One of the system's tools; CalledProcessError, with what it said, if it fails."""
    tool = shutil.which(command[0], path=_SEARCHED) or command[0]
    subprocess.run((tool, *command[1:]), check=True, capture_output=True, text=True, timeout=60)
