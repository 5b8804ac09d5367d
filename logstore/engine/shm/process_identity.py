"""The identity of this process, and whether another one is alive: pids, start times, namespaces.

Invariants: a pid alone names nobody; it counts together with its start time. Reads /proc where
there is one, and says "unknown" (0) where there is none, as on macOS; a process that a signal would
reach lives then, and so does one that /proc hides. So there who got the pid of a process that ended
is taken for it, and so is one that ended and was not reaped: what it held is kept until that ends,
too. A file of /proc that is open speaks of the process for which it was
opened, and of none that got its pid since.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache

from logstore.fsinfo import SystemFile, system_bytes
from logstore.tuples import NamedTuple

GONE, RUNS, STOPPED = 0, 1, 2
STAT_MAX_BYTES = 4096
HEAD_BYTES = 256  # pid, name (in brackets, at most 64 bytes), state
WATCHED_MAX = 64
_PAIR = struct.Struct("<QQ")
ANCESTORS_MAX = 64
_STATES = {b"Z": GONE, b"X": GONE, b"T": STOPPED, b"t": STOPPED}
_watched: dict[tuple[int, int], SystemFile] = {}  # other processes' stat


class Identity(NamedTuple):
    """A process, so that others can find out later, also on other hosts, whether it is gone."""

    host: str  # the host's name, for eyes
    system: str  # the boot and the pid namespace in which the pid counts; empty: not known
    pid: int
    start: int  # clock ticks since boot; 0: not known

    def is_gone(self) -> bool:
        """Whether it surely ended; never for a process of another host, boot or namespace. Without
        a /proc there are no namespaces, and a process of another boot has ended as well."""
        if has_proc():
            same = bool(self.system) and self.system == system() and bool(self.start)
        else:
            same = not self.system and self.host == os.uname().nodename
        return same and not lives(self.pid, self.start)


def identity(pid: int = 0) -> Identity:
    """The identity of a process of this host; by default this one."""
    pid = pid or os.getpid()
    return Identity(os.uname().nodename, system(), pid, start_ticks(pid))


def system() -> str:
    """The boot and the pid namespace in which pids of this process count; empty if not known."""
    boot = boot_id()
    return f"{boot}:{pid_namespace()}" if boot else ""


def ancestor(command: str) -> int:
    """The nearest process above this one that runs a command of this name; 0 if there is none."""
    pid = os.getppid()
    for _ in range(ANCESTORS_MAX):
        stat = system_bytes(f"/proc/{pid}/stat")
        head, at, rest = stat.rpartition(b")")
        if not at:
            return 0
        if head.partition(b"(")[2] == command.encode():
            return pid
        pid = int(rest.split()[1])
    return 0


def has_proc() -> bool:
    """Whether the system tells of processes by /proc: else nobody's start is known."""
    return os.path.exists("/proc/self/stat")


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
    that only waits to be reaped is gone. ``start`` 0: it is not known.
    """
    known = _watched.get((pid, start))
    if known is not None:
        data = known.read(HEAD_BYTES)
        return _STATES.get(data[data.rfind(b")") + 2 :][:1], RUNS) if data else GONE
    try:
        file = SystemFile(f"/proc/{pid}/stat")
        fields = file.read(STAT_MAX_BYTES).rsplit(b")", 1)[1].split(None, 20)
        if start and int(fields[19]) != start:
            return GONE
    except (OSError, IndexError, ValueError):
        return RUNS if _exists(pid) else GONE
    if len(_watched) >= WATCHED_MAX:
        forget()
    _watched[pid, start] = file
    return _STATES.get(fields[0], RUNS)


def _exists(pid: int) -> bool:
    """Whether there is a process of this pid though /proc does not show it: there is none, or it is
    mounted with hidepid (ProtectProc of systemd) and hides the processes of other users.

    When such a one started is not known, so it counts as the one that is asked for: what is taken
    over too late waits, what is taken over from the living is damaged.
    """
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def forget() -> None:
    """Close the files that are kept open to look at other processes."""
    _watched.clear()


def packed_self() -> bytes:
    """This process's pid and start time as two words."""
    return _packed(os.getpid())


@lru_cache(maxsize=1)  # of this process: a child of a fork asks for another pid
def _packed(pid: int) -> bytes:
    return _PAIR.pack(pid, start_ticks(pid))


def pid_namespace() -> int:
    """The inode of this process's pid namespace; 1 where there are none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 1


def boot_id() -> str:
    """Names this boot of the machine; empty where the system does not say."""
    return system_bytes("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()
