"""Mapped memory whose file was cut, or whose disk does not give a page back.

Who touches such a page gets SIGBUS, which ends the process. WAKE has to be mapped, since processes
sleep on its words, and LMDB maps its file. So there is a handler for what lies in these regions: it
puts a page of zeros in the place of the one that is lost, and raises the region's flag, ``lost``.
Who reads there looks at the flag afterwards, and raises a typed error. It is what journald does.

Invariants: a fault elsewhere goes to the handler that was there before (faulthandler's, the host
program's), or ends the process as ever; the handler is there only while a region is. It is put on
top again whenever a region is made: who installs another handler later gets the faults first.
Without the compiled module there is no handler, and nothing is ever lost: the process ends.
``NATIVE`` is that module, if it is there: it also sleeps on words (``engine.shm.futex``), and asks
what ctypes would have to be loaded for, which takes longer than all else of this package.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from logstore.codec import codec_name


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


def _load() -> Any:
    if codec_name() != "native":  # who asks for the pure codec gets nothing compiled from Cython
        return None
    try:
        return importlib.import_module("logstore.mapped.native")
    except ImportError:
        return None


NATIVE = _load()


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
