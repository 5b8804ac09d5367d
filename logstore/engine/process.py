"""Who this process is, and whether another one is alive: pids, start times, namespaces.

Invariants: a pid alone names nobody; it counts together with its start time. Reads /proc where
there is one, and says "unknown" (0) where there is none.
"""

from __future__ import annotations

import os
import struct

from logstore.fs import system_bytes

GONE, RUNS, STOPPED = 0, 1, 2
_PAIR = struct.Struct("<QQ")


def start_ticks(pid: int) -> int:
    """Clock ticks since boot at which ``pid`` started; 0 if it is gone or unknown."""
    try:
        return int(system_bytes(f"/proc/{pid}/stat").rsplit(b")", 1)[1].split()[19])
    except (IndexError, ValueError):
        return 0


def lives(pid: int, start: int) -> bool:
    """Whether the process of this pid and start time runs, or is stopped."""
    return state_of(pid, start) != GONE


def state_of(pid: int, start: int) -> int:
    """``GONE``, ``RUNS``, or ``STOPPED``, by a signal or a debugger: it goes on, or is killed. One
    that only waits to be reaped is gone.
    """
    try:
        fields = system_bytes(f"/proc/{pid}/stat").rsplit(b")", 1)[1].split(None, 20)
        if int(fields[19]) != start or fields[0] in (b"Z", b"X"):
            return GONE
        return STOPPED if fields[0] in (b"T", b"t") else RUNS
    except (IndexError, ValueError):
        return GONE if start else RUNS


def packed_self() -> bytes:
    """This process's pid and start time as two words."""
    pid = os.getpid()
    return _PAIR.pack(pid, start_ticks(pid))


def pid_namespace() -> int:
    """The inode of this process's pid namespace; 1 where there are none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 1


def boot_id() -> str:
    """Names this boot of the machine; empty where the system does not tell."""
    return system_bytes("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()
