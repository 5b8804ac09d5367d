"""A child process whose k-th system call of a kind kills it, or fails, as strace makes it.

strace is attached when the child is about to begin, so that only what the workload does is counted.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

STRACE = shutil.which("strace")
# Calls that are made to kill the process, and the errors that each may give. A kill at a call that
# only reads leaves what a kill at the next one that changes something does.
CALLS: dict[str, tuple[str, ...]] = {
    "pwrite64": ("KILL", "EIO", "ENOSPC"), "writev": ("KILL", "EIO", "ENOSPC"),
    "fdatasync": ("KILL", "EIO", "ENOSPC"), "fsync": ("KILL", "EIO", "ENOSPC"),
    "ftruncate": ("KILL", "EIO", "ENOSPC"), "rename": ("KILL", "EIO", "ENOSPC"),
    "unlink": ("KILL", "EIO"), "unlinkat": ("KILL", "EIO"), "rmdir": ("KILL", "EIO"),
    "mkdir": ("KILL", "EIO", "ENOSPC"), "fallocate": ("KILL", "EIO", "ENOSPC"),
    "openat": ("KILL", "EIO", "EMFILE"), "mmap": ("KILL", "ENOMEM"), "flock": ("KILL", "EIO"),
    "pread64": ("EIO",), "fcntl": ("EIO",), "newfstatat": ("EIO",), "getdents64": ("EIO",),
}  # fmt: skip
LIMIT_S = 120.0
_PR_SET_PTRACER, _ANYBODY = 0x59616D61, -1


class Hit(NamedTuple):
    """What is to happen at the k-th call; "" and 0: nothing, all calls are counted."""

    call: str = ""
    number: int = 0
    how: str = ""  # KILL, or the name of an error
    more: int = 0  # calls behind it that fail as well

    def options(self) -> list[str]:
        """For strace."""
        if not self.call:
            return ["-e", f"trace={','.join(CALLS)}"]
        what = "signal=KILL" if self.how == "KILL" else f"error={self.how}"
        when = f"{self.number}..{self.number + self.more}"
        return ["-e", f"trace={self.call}", "-e", f"inject={self.call}:{what}:when={when}"]

    def __str__(self) -> str:
        return f"{self.how} at {self.call} {self.number}"


class Outcome(NamedTuple):
    """How it ended."""

    killed: bool
    injected: str  # the line of the call that failed
    calls: Counter[str]


class Refused(Exception):  # noqa: N818  the test skips then
    """strace may not attach."""


def run(
    work: Callable[[], object], folder: Path, hit: Hit, ready: Callable[[], object] = lambda: None
) -> Outcome:
    """Fork a child that works under strace; AssertionError with what it raised.

    What it does to be ready is not counted.
    """
    assert STRACE is not None
    (go_read, go_write), (ready_read, ready_write) = os.pipe(), os.pipe()
    error, trace = folder / "error", folder / "trace"
    pid = os.fork()
    if not pid:
        os.close(go_write)
        os.close(ready_read)
        _child(work, ready, go_read, ready_write, error)
    os.close(go_read)
    os.close(ready_write)
    is_ready = os.read(ready_read, 1)  # not traced before that, or what it does would count
    os.close(ready_read)
    command = [STRACE, "-f", "-qq", "-p", str(pid), "-o", str(trace), *hit.options()]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
    status = -1
    try:
        assert is_ready, error.read_text()
        _attached(pid, tracer)
        os.write(go_write, b"x")
        status = _ended(pid)
    finally:
        if status < 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(go_write)
        tracer.communicate(timeout=LIMIT_S)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or not status, f"{hit}: {error.read_text() if error.exists() else status}"
    text = trace.read_text(errors="replace")
    injected = [line for line in text.splitlines() if "(INJECTED)" in line]
    calls = Counter(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))
    return Outcome(killed, injected[0] if injected else "", calls)


def _child(
    work: Callable[[], object], ready: Callable[[], object], go_read: int, ready_write: int,
    error: Path,
) -> None:  # fmt: skip
    status = 3
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
        ready()
        os.write(ready_write, b"x")
        if os.read(go_read, 1):
            work()
            status = 0
    except BaseException:  # noqa: BLE001  a child must not return into pytest
        error.write_text(traceback.format_exc())
    finally:
        os._exit(status)


def _attached(pid: int, tracer: subprocess.Popen[bytes]) -> None:
    """Wait until the child is traced, and stands in its read."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        told = Path(f"/proc/{pid}/status").read_text()
        traced = "TracerPid:\t0\n" not in told
        if traced and "State:\tS" in told:
            return
        if tracer.poll() is not None or time.monotonic() > deadline:
            assert tracer.stderr is not None
            raise Refused(tracer.stderr.read().decode(errors="replace").strip())
        time.sleep(0.002)


def _ended(pid: int) -> int:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        time.sleep(0.002)
    raise AssertionError("it does not end")
