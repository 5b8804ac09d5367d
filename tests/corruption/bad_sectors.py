"""Files with unreadable sectors, on a real file system.

An ext4 in an image, mounted by a loop device. A block of a file is mapped behind a border of the
disk (debugfs), and the image is cut there: reads behind the border fail (EIO), so one page of such
a file does, and all else stays well. Invariants: as of ``power.disks``; what is written after
``spoil`` stays before the border as long as it is little.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.power.disks import Disk, Kind, run_tool, why_not

PAGE_BYTES = 4096
_MAKE = ("mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^has_journal", "-E", "nodiscard")
_KIND = Kind("ext4", _MAKE, "", 384 << 20)
_BORDER_BYTES = 320 << 20


def why_none() -> str:
    """Why there can be no such disk here; empty if there can."""
    if shutil.which("debugfs", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))):
        return why_not("ext4")
    return "debugfs is not installed"


class SpoiledDisk(Disk):
    """A mounted disk of which parts of files can be made unreadable."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, _KIND)
        self._spoiled = 0
        self.mount()

    def spoil(self, *places: tuple[Path, int]) -> None:
        """Make the pages of files that hold these offsets unreadable; nobody has a file open."""
        self.unmount()
        os.truncate(self.image, _KIND.image_bytes)
        for path, offset in places:
            name = "/" + path.relative_to(self.at).as_posix()
            block = _BORDER_BYTES // PAGE_BYTES + 16 + self._spoiled
            self._spoiled += 1
            request = f"bmap {name} {offset // PAGE_BYTES} {block}"
            run_tool("debugfs", "-w", "-R", request, str(self.image))
        self.mount()
        os.truncate(self.image, _BORDER_BYTES)
