"""Mapped memory: words of it that processes share, and what becomes of pages that are lost.

``words`` is the one way to such words. Each is loaded and stored whole, and in order: what was
stored before a word is seen by who has loaded that word (a store is a release, a load an acquire).
Processors of the x86 family keep to that by themselves; those of ARM do not, and are told to by
compiled code. Without that each store and load has a call of the system beside it there, which is
slow, and right on Linux and macOS; on other processors nothing is promised without compiled code.

A file may be cut, and a disk not give a page back. Who touches such a page gets SIGBUS, which ends
the process. WAKE has to be mapped, since processes sleep on its words, and LMDB maps its file. So
there is a handler for what lies in these regions: it puts a page of zeros in the place of the one
that is lost, and raises the region's flag, ``lost``. Who reads there looks at the flag afterwards,
and raises a typed error. It is what journald does.

Invariants: a fault elsewhere goes to the handler that was there before (faulthandler's, the host
program's), or ends the process as ever; the handler is there only while a region is. It is put on
top again whenever a region is made: who installs another handler later gets the faults first.
Without the compiled module there is no handler, and nothing is ever lost: the process ends.
``NATIVE`` is that module, if it is there: it also sleeps on words (``engine.shm.futex``), and asks
what ctypes would have to be loaded for, which takes longer than all else of this package.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from logstore.codec import codec_name
from logstore.loading import built_of_others


class Guard(Protocol):
    """A region that is looked after until it is closed, or freed."""

    @property
    def lost(self) -> bool:
        """Whether a page of it was lost: it reads as zeros, and stays so."""
        ...

    def close(self) -> None:
        """Look after it no more; before its memory is unmapped. Safe to repeat."""
        ...


class _None:
    """Of a region that nobody can look after."""

    lost = False

    def close(self) -> None:
        """Nothing is to be done."""


WORD_BYTES, HALF_BYTES = 8, 4
REVISION = 1  # of what the compiled module has: raised there, too, with each change of it


def _load() -> Any:
    """The compiled module. UsageError for one that was built of other sources: it would reach words
    otherwise, or not at all."""
    if codec_name() != "native":  # who asks for the pure codec gets nothing compiled from Cython
        return None
    try:
        found = importlib.import_module("logstore.mapped.native")
    except ImportError:
        return None
    has: dict[str, int] = getattr(found, "numbers", dict)()
    for name in ("REVISION", "WORD_BYTES", "HALF_BYTES"):
        if has.get(name) != globals()[name]:
            raise built_of_others(found, name)
    return found


NATIVE = _load()

# -- words ----------------------------------------------------------------------------------------
IN_ORDER = frozenset({"x86_64", "amd64", "i386", "i686"})  # they never exchange two stores or loads
FUTEX_CALLS = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "loongarch64": 98}
_WAKE_PRIVATE = 1 | 128
_CODES = {WORD_BYTES: "Q", HALF_BYTES: "I"}


class Words(Protocol):
    """Memory as words of one size, by their numbers."""

    def __getitem__(self, at: int) -> int:
        """Load one: what is loaded after it is not older."""
        ...

    def __setitem__(self, at: int, value: int) -> None:
        """Store one: who loads it sees what was stored before it."""
        ...

    def some(self, at: int, count: int) -> tuple[int, ...]:
        """So many from one on, loaded in this order."""
        ...

    def release(self) -> None:
        """Let go of the memory; nothing is loaded or stored after this."""
        ...


class PlainWords:
    """The twin of the compiled ``Words``, for processors that keep stores and loads in order."""

    def __init__(self, memory: Any, size_bytes: int) -> None:
        self._words: memoryview[int] = memoryview(memory).cast("B").cast(_CODES[size_bytes])  # type: ignore[call-overload]

    def __getitem__(self, at: int) -> int:
        """As of ``Words``."""
        return self._words[at]

    def __setitem__(self, at: int, value: int) -> None:
        """As of ``Words``."""
        self._words[at] = value

    def some(self, at: int, count: int) -> tuple[int, ...]:
        """As of ``Words``."""
        return tuple(self[number] for number in range(at, at + count))

    def release(self) -> None:
        """As of ``Words``."""
        self._words.release()


class FencedWords(PlainWords):
    """The same for other processors: ``fence`` keeps what stands before it from what is behind."""

    def __init__(self, memory: Any, size_bytes: int, fence: Callable[[], object]) -> None:
        super().__init__(memory, size_bytes)
        self._fence = fence

    def __getitem__(self, at: int) -> int:
        """As of ``Words``."""
        value = self._words[at]
        self._fence()
        return value

    def __setitem__(self, at: int, value: int) -> None:
        """As of ``Words``."""
        self._fence()
        self._words[at] = value


def system_fence(machine: str = "") -> Callable[[], object] | None:
    """A call that no store or load passes; None where none is known.

    On Linux it wakes those who sleep on a word on which nobody does: the kernel looks for sleepers
    behind a full barrier.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    if sys.platform == "darwin":
        barrier: Callable[[], object] | None = getattr(libc, "OSMemoryBarrier", None)
        return barrier
    call = FUTEX_CALLS.get(machine or os.uname().machine)
    if call is None or sys.platform != "linux":
        return None
    return partial(libc.syscall, call, ctypes.byref(ctypes.c_uint()), _WAKE_PRIVATE, 1, None, None)


_FENCE = None if NATIVE is not None or os.uname().machine in IN_ORDER else system_fence()


def words(memory: Any, size_bytes: int = WORD_BYTES) -> Words:
    """Memory that processes share as words of 8 or 4 bytes, by their numbers."""
    if NATIVE is not None:
        made: Words = NATIVE.Words(memory, size_bytes)
        return made
    if _FENCE is not None:
        return FencedWords(memory, size_bytes, _FENCE)
    return PlainWords(memory, size_bytes)


# -- regions --------------------------------------------------------------------------------------


def nothing() -> Guard:
    """Of no region."""
    return _None()


def guard_memory(memory: Any) -> Guard:
    """Look after the memory of a map, which stays mapped for as long."""
    if NATIVE is None:
        return nothing()
    made: Guard = NATIVE.guard_memory(memory)
    return made


def address_of(memory: Any) -> int:
    """Where the memory of a map that may be written to begins."""
    if NATIVE is None:
        import ctypes

        return ctypes.addressof(ctypes.c_char.from_buffer(memory))
    address: int = NATIVE.address_of(memory)
    return address


def guard_file(inode: int, size_bytes: int) -> Guard:
    """Look after what another library mapped for reading: so many bytes of the file of an inode."""
    if NATIVE is None:
        return nothing()
    made: Guard = NATIVE.guard_file(inode, size_bytes)
    return made
