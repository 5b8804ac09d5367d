"""Waiting on a word of shared memory, waking those who wait there, in any process, and letting them
run.

Invariants: ``wait`` sleeps only if the word holds what was expected, which the kernel compares
under its own lock, so that a change before the sleep is never missed; it may wake without a cause,
and never sleeps longer than asked. The interpreter is let go of meanwhile; a signal ends the sleep.
Elsewhere than Linux waiting is looking at the word again and again, less often the longer it
stays, and waking does nothing.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from functools import cache
from typing import Any

from logstore.mapped import FUTEX_CALLS, NATIVE, system_fence

_FUTEX_WAIT, _FUTEX_WAKE = 0, 1  # shared between processes: without FUTEX_PRIVATE_FLAG
_POLL_S, _POLL_MAX_S = 0.001, 0.032  # between two looks where there is no futex
WAKE_ALL = (1 << 31) - 1

_call = FUTEX_CALLS.get(os.uname().machine) if sys.platform == "linux" else None


@cache
def _ctypes() -> Any:
    """For who has nothing compiled; it takes long to load."""
    import ctypes

    return ctypes


@cache
def _libc() -> Any:
    return None if _call is None else _ctypes().CDLL(None)


def wait(address: int, expected: int, timeout_s: float) -> None:
    """Sleep while the u32 at ``address`` is ``expected``, until woken, at most ``timeout_s``."""
    if timeout_s <= 0:
        return
    if NATIVE is not None:
        NATIVE.sleep_on(address, expected, timeout_s)
        return
    libc = _libc()
    if libc is None:
        _poll(address, expected, timeout_s)
        return
    ctypes, whole = _ctypes(), int(timeout_s)
    timeout = struct.pack("@ll", whole, int((timeout_s - whole) * 1e9))
    word, value = ctypes.c_void_p(address), ctypes.c_uint(expected)
    libc.syscall(_call, word, _FUTEX_WAIT, value, timeout, None, 0)


def _poll(address: int, expected: int, timeout_s: float) -> None:
    """The same where there is no futex."""
    word = _ctypes().c_uint.from_address(address)
    pause_s, end = _POLL_S, time.monotonic() + timeout_s
    while word.value == expected and (left := end - time.monotonic()) > 0:
        time.sleep(min(pause_s, left))
        pause_s = min(2 * pause_s, _POLL_MAX_S)


def fence(address: int) -> None:
    """What was stored before is seen by all before what is loaded after: the kernel does so before
    it looks for sleepers, here on a word on which nobody sleeps.
    """
    if NATIVE is not None or _call is not None:
        wake(address, 1)
    elif (barrier := _barrier()) is not None:
        barrier()


_barrier = cache(system_fence)


def wake(address: int, count: int = WAKE_ALL) -> int:
    """Wake at most ``count`` of those who sleep on the word, the longest sleepers first; how many
    woke."""
    woken: int
    if NATIVE is not None:
        woken = NATIVE.wake(address, count)
        return woken
    libc = _libc()
    if libc is None:
        return 0
    word = _ctypes().c_void_p(address)
    woken = libc.syscall(_call, word, _FUTEX_WAKE, count, None, None, 0)
    return woken


def let_run() -> None:
    """Give this processor to threads that wait for it, such as one that was just woken."""
    if NATIVE is not None:
        NATIVE.let_run()
    elif (libc := _libc()) is not None:
        libc.sched_yield()
