"""Prevents a word of WAKE, which others load without a lock, from being seen while it is stored: a
reader that finds a zero there takes what is published for nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.engine.shm import control_block as words
from logstore.engine.shm.control_block import Wake
from logstore.fs import LOCAL
from tests.engine.procs import Forked

STORED = 60_000  # times
VALUES = (3, 1 << 40 | 5)
Store = Callable[[Wake, int], object]


def publish(wake: Wake, value: int) -> None:
    """Where the log stands behind a commit."""
    wake.publish((value, 1, value, 1, 1))


def set_log(wake: Wake, value: int) -> None:
    """Where the log stands, with a generation."""
    wake.set_log(wake.log()._replace(applied=value))


def attribute(name: str) -> Store:
    """A word that is set as an attribute."""
    return lambda wake, value: setattr(wake, name, value)


STORES: dict[str, tuple[Store, int]] = {
    "publish": (publish, words._LOG_OFFSET),
    "set_log": (set_log, words._LOG_OFFSET),
    "reset_durable": (Wake.reset_durable, words._DURABLE_OFFSET),
    "index_files": (lambda wake, value: setattr(wake, "index_files", (value, 1)),
                    words._INDEX_FILES_OFFSET),
    "compacted": (lambda wake, value: setattr(wake, "compacted", (value, 1)),
                  words._COMPACTED_OFFSET),
    "announce_waiting": (lambda wake, _: wake.announce_waiting(), words._WAITING_OFFSET),
    **{name: (attribute(name), offset) for name, offset in {
        "indexed_upto": words._INDEXED_OFFSET, "oldest_unsynced_ms": words._UNSYNCED_OFFSET,
        "failed_at": words._FAILED_OFFSET, "namespace": words._NAMESPACE_OFFSET,
        "dropped": words._DROPPED_OFFSET, "readers_changed": words._READERS_OFFSET,
        "next_due_ms": words._DUE_OFFSET, "lock_file": words._LOCK_FILE_OFFSET,
    }.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", STORES)
def test_a_word_is_stored_whole(name: str, tmp_path: Path) -> None:
    store, offset = STORES[name]
    Wake.create(LOCAL, tmp_path / "WAKE")
    wake = Wake(LOCAL, tmp_path / "WAKE")
    store(wake, VALUES[0])
    ready, go = os.pipe()

    def look() -> None:
        seen, there = set(), memoryview(wake.memory).cast("Q")
        os.write(go, b"x")
        while not there[words._COUNT_OFFSET >> 3]:
            seen |= {there[offset >> 3] for _ in range(100)}
        assert 0 not in seen, sorted(seen)

    with Forked(look):
        os.read(ready, 1)
        try:
            for number in range(STORED):
                store(wake, VALUES[number % 2])
        finally:
            memoryview(wake.memory).cast("Q")[words._COUNT_OFFSET >> 3] = 1
    os.close(ready)
    os.close(go)
