"""WAKE, as one sees it who may not write: how far commits are published, and a word to sleep on.

A writer wakes only who announced itself, which one that only reads may not do; so it also calls
those who watch unseen, at most every ``CALL_MS``. A watcher looks every ``LOOK_S`` while things
happen, and sleeps on the word of all streams when nothing did for longer than that: a commit that
called nobody is less than ``CALL_MS`` behind one that did.

Invariants: the file is mapped for reading; it may have been replaced since, so it is opened anew
now and then. Where one cannot sleep on such memory, looking goes on.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from logstore.engine.shm import futex
from logstore.engine.shm.commit_words import MAGIC, SIZE_BYTES
from logstore.engine.shm.wait_words import CALL_MS, every_offset
from logstore.errors import FileSystemError
from logstore.fs import FileSystem
from logstore.mapped import HALF_BYTES, guard_memory, words

LOOK_S = CALL_MS / 1000
BUSY_S = 3 * LOOK_S  # without news for so long it sleeps
_APPLIED_WORD = 1


class _Buffer(ctypes.Structure):
    """Python's Py_buffer: how to come by the address of memory that is not writable."""

    _fields_: ClassVar = [
        ("address", ctypes.c_void_p),
        ("owner", ctypes.py_object),
        ("size", ctypes.c_ssize_t),
        ("item", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


class WakeWatch:
    """The mapped file."""

    def __init__(self, memory: memoryview, address: int) -> None:
        self._words = words(memory, HALF_BYTES)
        self._longs = words(memory)
        self._address = address
        self._news_s = time.monotonic()
        self._seen = self.published()

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._longs.release()

    def published(self) -> tuple[int, int]:
        """How far commits are published, and the word of all streams: something happened if one
        of them changed.
        """
        word = self._words[every_offset() >> 2]  # before what is published before it
        return self._longs[_APPLIED_WORD], word

    def wait(self, timeout_s: float) -> bool:
        """Sleep at most so long; whether something happened since the last call."""
        now = time.monotonic()
        if now - self._news_s >= BUSY_S:
            futex.wait(self._address + every_offset(), self._seen[1], timeout_s)
            if self.published() == self._seen:
                timeout_s -= time.monotonic() - now
        if self.published() == self._seen and timeout_s > 0:
            time.sleep(min(LOOK_S, timeout_s))
        published = self.published()
        news = published != self._seen
        if news:
            self._seen, self._news_s = published, time.monotonic()
        return news


@contextmanager
def watching(fs: FileSystem, path: Path) -> Iterator[WakeWatch | None]:
    """WAKE as it is now; None if there is none."""
    try:
        file = fs.open(path)
    except (FileNotFoundError, FileSystemError):
        yield None
        return
    try:
        whole = file.size_bytes() == SIZE_BYTES
        mapped = file.map() if whole else None
    finally:
        file.close()
    if mapped is None:
        yield None
        return
    if mapped[: len(MAGIC)] != MAGIC:
        mapped.close()
        yield None
        return
    guard = guard_memory(mapped)  # cut, it reads as zeros: nothing happens any more
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapped), ctypes.byref(buffer), 0)
    memory = memoryview(mapped)
    watch = WakeWatch(memory, buffer.address)
    try:
        yield watch
    finally:
        watch.close()
        memory.release()
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
        guard.close()
        mapped.close()
