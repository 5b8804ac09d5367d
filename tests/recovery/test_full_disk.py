"""Prevents a disk that is full to its last block from locking the user out of the store: a new
process opens it, after a kill or a reboot, with or without its index, and gives space back.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.log import names
from logstore.recovery.check import check
from tests.waiting.crowd import eventually

DISK_BYTES = 16 << 20
FILL = """
import os, sys, logstore
store = logstore.open(sys.argv[1], segment_bytes=1 << 20, background=False)
stream = store.stream("s")
group = stream.group("g", start="0")
stream.add_many({"n": n, "pad": os.urandom(8000)} for n in range(1000))
group.read("me", count=500)
done = 1000
try:
    while True:
        stream.add({"n": done, "pad": os.urandom(2000)})
        done += 1
except logstore.DiskFullError:
    print(done, flush=True)
sys.stdin.read()
"""
USE = """
import os, sys, logging, logstore
from logstore.engine.shm import process
path, how, command, done = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
logging.basicConfig(stream=sys.stderr)
if "reboot" in how:
    process.boot_id = lambda: "another boot"
if command == "recover":
    from logstore.recovery.recover import recover
    recover(__import__("pathlib").Path(path))
if command == "compact":
    with logstore.open(path, background=False) as store:
        store.compact()
with logstore.open(path) as store:
    stream, group = store.stream("s"), store.stream("s").group("g")
    assert len(stream) == done, (len(stream), done)
    stream.configure(max_bytes=1 << 30)
    ids = [entry.id for entry in stream.range(count=20)]
    assert stream.delete(*ids[:10]) == 10
    assert group.ack(*ids[10:]) == 10
    assert stream.trim(maxlen=500) == done - 510
    store.compact()
    assert len(stream) == 500
    stream.add({"n": "new", "pad": os.urandom(500)})
    assert len(stream) == 501
    assert not os.path.exists(os.path.join(path, "WAKE.tmp"))
    assert os.path.getsize(os.path.join(path, "RESERVE")) == 1 << 20
with logstore.open(path) as store:
    assert len(store.stream("s")) == 501
print("ok")
"""


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A real file system of ``DISK_BYTES``."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(mount)]
    if request.param == "ext4":
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(DISK_BYTES + (8 << 20))
        made = subprocess.run(
            ["mkfs.ext4", "-q", "-m", "0", str(image)], capture_output=True, text=True, check=False
        )
        if made.returncode:
            pytest.skip(f"ext4 cannot be made here: {made.stderr.strip()}")
        command = ["mount", "-o", "loop", str(image), str(mount)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def fill(disk: Path) -> None:
    """Another program takes all that is left, to the last block."""
    fd = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    size = 1 << 20
    while size:
        try:
            os.write(fd, os.urandom(size))
        except OSError as exc:
            if exc.errno != errno.ENOSPC:
                raise
            size //= 2
    os.fsync(fd)
    os.close(fd)


def filled(path: Path) -> int:
    """A store whose writer added until the disk was full, and was killed; how many entries."""
    writer = subprocess.Popen([sys.executable, "-c", FILL, str(path)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert writer.stdout is not None
    done = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    return done


CASES = [
    *(("open", how) for how in ("restart", "reboot", "index", "reboot, WAKE", "index, WAKE")),
    *((command, how) for command in ("recover", "compact") for how in ("reboot", "index, WAKE")),
]


@pytest.mark.parametrize(("command", "how"), CASES)
def test_a_full_disk_locks_nobody_out(disk: Path, command: str, how: str) -> None:
    """What was lost leaves its space to the store; all that was free before is taken by others."""
    path = disk / "store"
    done = filled(path)
    fill(disk)
    if "index" in how:
        shutil.rmtree(path / names.INDEX)
    if "WAKE" in how:
        (path / names.WAKE).unlink()
    used = subprocess.run(
        [sys.executable, "-c", USE, str(path), how, command, str(done)], capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert used.stdout.strip() == "ok", (used.returncode, used.stderr[-3000:])
    assert check(path).damage == []


@pytest.mark.parametrize("how", ["restart", "reboot"])
def test_without_what_was_set_aside_it_opens_and_can_be_read(disk: Path, how: str) -> None:
    """RESERVE is gone too, and somebody else took its blocks: a little room is enough to go on."""
    path = disk / "store"
    done = filled(path)
    (path / names.RESERVE).unlink(missing_ok=True)
    fill(disk)
    read = [
        sys.executable,
        "-c",
        USE.split("    ids = ", maxsplit=1)[0],
        str(path),
        how,
        "open",
        str(done),
    ]
    used = subprocess.run(read, capture_output=True, text=True, check=False)
    assert used.returncode == 0, used.stderr[-3000:]
    os.truncate(disk / "filler", max(0, (disk / "filler").stat().st_size - (2 << 20)))
    use = [sys.executable, "-c", USE, str(path), how, "open", str(done)]
    used = subprocess.run(use, capture_output=True, text=True, check=False)
    assert used.stdout.strip() == "ok", (used.returncode, used.stderr[-3000:])
    assert check(path).damage == []


EMPTY = """
import sys, logstore
with logstore.open(sys.argv[1], background=False) as store:
    store.stream("s").trim(maxlen=0)
    store.compact()
"""


@pytest.mark.parametrize("background", [False, True])
def test_a_process_that_is_open_keeps_no_space_of_a_segment_that_is_gone(
    disk: Path, background: bool
) -> None:
    """One process fills the disk with a single segment, another one trims and compacts: the first
    adds again without being started anew; with its work in the background it need not even add.
    """
    path = disk / "store"
    with logstore.open(path, background=background) as store:
        stream = store.stream("s")
        with pytest.raises(logstore.DiskFullError):
            stream.add_many(({"pad": os.urandom(8000)} for _ in range(10_000)), batch=10)
        emptied = subprocess.run(
            [sys.executable, "-c", EMPTY, str(path)], capture_output=True, text=True, check=False
        )
        assert emptied.returncode == 0, emptied.stderr[-3000:]
        if background:
            eventually(lambda: shutil.disk_usage(disk).free > DISK_BYTES // 2)
        stream.add({"pad": os.urandom(8000)})
        assert len(stream) == 1
        assert shutil.disk_usage(disk).free > DISK_BYTES // 2
    assert check(path).damage == []
