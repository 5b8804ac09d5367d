"""A disk whose syncs really fail: a sparse image on a memory file system of limited size.

The file system in the image believes that it has room. When the memory behind it is used up, the
writes that a sync asks for fail, as on a disk that breaks; given back, they work again.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.power.disks import Disk, Guard, Kind, detach, run_tool

BEHIND_BYTES = 160 << 20
_EXT4 = ("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0")
SPARSE = {
    "ext4": Kind("ext4", _EXT4, "", 256 << 20),
    "xfs": Kind("xfs", ("mkfs.xfs", "-q", "-f", "-K"), "", 320 << 20),
}


class SmallDisk:
    """The two mounts, and what takes the room away."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.behind = folder / "behind"
        self.behind.mkdir(parents=True)
        self._filler = self.behind / "filler"
        self._behind_mounted = False
        self.disk: Disk | None = None
        self._guard = Guard(self.behind, self._filler)
        run_tool("mount", "-t", "tmpfs", "-o", f"size={BEHIND_BYTES}", "tmpfs", str(self.behind))
        self._behind_mounted = True
        try:
            self.disk = Disk(self.behind / "disk", SPARSE[name], here=True)
            self.disk.mount()
        except BaseException:
            self.close()
            raise

    @property
    def at(self) -> Path:
        """Where the file system is."""
        assert self.disk is not None
        return self.disk.at

    def fail(self) -> None:
        """From now on nothing that was never written can be written."""
        fd = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for size in (1 << 20, 4096):
                try:
                    while True:
                        os.write(fd, bytes(size))
                except OSError:
                    continue
        finally:
            os.close(fd)

    def heal(self) -> None:
        """It can be written to again."""
        self._filler.unlink()

    def anew(self) -> None:
        """Unmount and mount: what was only in memory is gone."""
        assert self.disk is not None
        self.disk.unmount()
        self.disk.mount()

    def close(self) -> None:
        """Leave nothing mounted."""
        try:
            if self.disk is not None:
                self.disk.close()
        finally:
            if self._behind_mounted:
                detach(self.behind)
                self._behind_mounted = False
            self._guard.close()
