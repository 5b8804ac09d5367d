"""A control: power cuts of a plain file, without a store.

``python -m tests.power.plain_file_cuts [SECONDS]`` runs it.

One process appends, another syncs again and again and notes what was acknowledged. Shutting a file
system down takes some milliseconds; syncs are acknowledged meanwhile, and not all of them are true:
told here by when the acknowledgement came. What was acknowledged before must be there.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.power.disks import KEEPS_METADATA, KINDS, LOSES_ALL, Disk, Kind

RECORD_BYTES = 64
FILES_MAX = 20
_ACK = struct.Struct("<Qd")  # records acknowledged, when


def main() -> None:
    """So many seconds of each kind of file system; one line each."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            print(kind, _cuts(Path(folder) / "disk", kind, seconds), flush=True)


def _cuts(folder: Path, kind: Kind, seconds: float) -> str:
    folder.mkdir()
    rng, count, meanwhile, lost, broken = random.Random(), 0, 0, 0, 0
    disk = Disk(folder, kind)
    try:
        disk.make()
        disk.mount()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            count += 1
            acked, late, there = _one(disk, disk.at / str(count), rng)
            meanwhile += late
            lost += late and there < acked
            broken += not late and there < acked
            if not count % FILES_MAX:
                for path in disk.at.glob("[0-9]*"):
                    path.unlink()
    finally:
        disk.close()
    return (
        f"{count} cuts; the last sync acknowledged while the power was cut: {meanwhile}, not kept "
        f"{lost}; acknowledged before, not kept: {broken}"
    )


def _one(disk: Disk, path: Path, rng: random.Random) -> tuple[int, bool, int]:
    """One cut: records acknowledged, whether that was while the power was cut, records there."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.fsync(file)
    folder = os.open(disk.at, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    pids = [_forked(lambda: _append(file, shared)), _forked(lambda: _sync(file, shared, rng))]
    time.sleep(rng.random() * 0.15)
    cut_at = time.monotonic()
    disk.cut(rng.choice((LOSES_ALL, KEEPS_METADATA)))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)
    os.close(file)
    acked, at = _ACK.unpack_from(shared, 8)
    disk.unmount()
    disk.mount()
    data = path.read_bytes() if path.exists() else b""
    there = 0
    while data[there * RECORD_BYTES :][:RECORD_BYTES] == _record(there):
        there += 1
    return acked, at > cut_at, there


def _record(number: int) -> bytes:
    return struct.pack("<Q", number + 1) * (RECORD_BYTES // 8)


def _forked(work: Callable[[], None]) -> int:
    pid = os.fork()
    if not pid:
        with suppress(OSError):  # the disk is gone
            work()
        os._exit(0)
    return pid


def _append(file: int, shared: mmap.mmap) -> None:
    number = 0
    while True:
        os.pwrite(file, _record(number), number * RECORD_BYTES)
        number += 1
        struct.pack_into("<Q", shared, 0, number)
        time.sleep(0.0003)


def _sync(file: int, shared: mmap.mmap, rng: random.Random) -> None:
    while True:
        (upto,) = struct.unpack_from("<Q", shared, 0)
        os.fdatasync(file)
        _ACK.pack_into(shared, 8, upto, time.monotonic())
        time.sleep(rng.random() * 0.01)


if __name__ == "__main__":
    main()
