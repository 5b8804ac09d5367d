"""Disks for the tests of this room; gone when the test is over, however it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.power.disks import KINDS, Disk, why_not

MakeDisk = Callable[[str], Disk]


@pytest.fixture
def make_disk(tmp_path: Path) -> Iterator[MakeDisk]:
    """Makes and mounts a file system; skips, with the reason, where that cannot be done."""
    disks: list[Disk] = []

    def make(name: str) -> Disk:
        why = why_not(name)
        if why:
            print(why)
            pytest.skip(why)
        kind = next(kind for kind in KINDS if kind.name == name)
        disks.append(Disk(tmp_path / f"disk-{len(disks)}", kind))
        disks[-1].mount()
        return disks[-1]

    yield make
    for disk in disks:
        disk.close()
