"""Waiting on a word of shared memory, waking those who wait there, in any process, and letting them
run.

Invariants: ``wait`` sleeps only if the word holds what was expected, which the kernel compares
under its own lock, so that a change before the sleep is never missed; it may wake without a cause,
and never sleeps longer than asked. The interpreter is let go of meanwhile; a signal ends the sleep.
Elsewhere than Linux waiting is a short sleep, and waking does nothing: callers look again anyway.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

_FUTEX_WAIT, _FUTEX_WAKE = 0, 1  # shared between processes: without FUTEX_PRIVATE_FLAG
_CALLS = {"x86_64": 202, "aarch64": 98}
_POLL_S = 0.001
WAKE_ALL = (1 << 31) - 1


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


_call = _CALLS.get(os.uname().machine) if sys.platform == "linux" else None
_libc = ctypes.CDLL(None) if _call is not None else None


def wait(address: int, expected: int, timeout_s: float) -> None:
    """Sleep while the u32 at ``address`` is ``expected``, until woken, at most ``timeout_s``."""
    if timeout_s <= 0:
        return
    if _libc is None:
        time.sleep(min(timeout_s, _POLL_S))
        return
    whole = int(timeout_s)
    timeout = _Timespec(whole, int((timeout_s - whole) * 1e9))
    _libc.syscall(
        _call,
        ctypes.c_void_p(address),
        _FUTEX_WAIT,
        ctypes.c_uint(expected),
        ctypes.byref(timeout),
        None,
        0,
    )


def fence(address: int) -> None:
    """What was stored before is seen by all before what is loaded after: the kernel does so before
    it looks for sleepers, here on a word on which nobody sleeps.
    """
    wake(address, 1)


def wake(address: int, count: int = WAKE_ALL) -> int:
    """Wake at most ``count`` of those who sleep on the word, who waits longest first; how many."""
    if _libc is None:
        return 0
    woken: int = _libc.syscall(_call, ctypes.c_void_p(address), _FUTEX_WAKE, count, None, None, 0)
    return woken


def let_run() -> None:
    """Let those run first who wait for this processor, such as one that was just woken."""
    if _libc is not None:
        _libc.sched_yield()
