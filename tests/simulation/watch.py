"""What must be so at every moment, whoever runs: the words of WAKE beside the log, and LOCK.

The judge hears of a breach only if somebody is told something wrong in the end; this sees it where
it happens. Invariants of the store that are looked at, each at every report of a hand: what is
published stands in the log; what stands behind that is of a commit that is in progress; what is
said to be durable was synced; who publishes holds LOCK. Reads files, takes LOCK only while nobody
runs, and writes nothing.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Mapping
from pathlib import Path

from logstore.engine.shm import commit_words
from logstore.format import position_parts
from logstore.log import file_names
from tests.simulation.judge import Wrong
from tests.simulation.system import STORED

# Words that say where the log stands, as the lane and ``Wake`` store them.
PUBLISHED = ("publish", *(commit_words._LOG_OFFSET + 8 * each for each in range(4)))


def check_words(store: Path, at: tuple[object, ...], synced: Mapping[str, int]) -> None:
    """``Wrong`` if something is not so now.

    Args:
        store: where it is.
        at: what the hand that ran last reports.
        synced: how many bytes of a file were synced, by its name.
    """
    found = _words(store)
    if found is None:
        return
    words, durable, failed = found
    number, end = position_parts(durable)
    there = synced.get(file_names.segment(store, number).name, 0)
    if there < end:
        raise Wrong(f"{at}: durable up to {end} of segment {number}, and {there} bytes were synced")
    number, end = position_parts(words.applied)
    size = _size(file_names.segment(store, number))
    if size < end:
        raise Wrong(f"{at}: published up to {end} of segment {number}, which has {size} bytes")
    alone = number == words.active_segment and not failed
    if alone and size > end and not words.in_progress:
        raise Wrong(f"{at}: behind {end} stand {size - end} bytes, and no commit is in progress")
    if at[:2] == ("at", STORED) and at[2] in PUBLISHED and _is_free(store):
        raise Wrong(f"{at}: it publishes, and LOCK is free")


def _words(store: Path) -> tuple[commit_words.LogWords, int, int] | None:
    """The words, up to where the log is durable, and where a sync failed; None where they do not
    stand for the log yet."""
    try:
        fd = os.open(store / file_names.WAKE, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        data = os.pread(fd, commit_words._WAITING_OFFSET, 0)
    finally:
        os.close(fd)
    words = commit_words.LogWords._make(
        commit_words._WORDS.unpack_from(data, commit_words._LOG_OFFSET)
    )
    if data[: len(commit_words.MAGIC)] != commit_words.MAGIC or not words.active_segment:
        return None
    durable, _, failed = struct.unpack_from("@3Q", data, commit_words._DURABLE_OFFSET)
    return words, durable, failed


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _is_free(store: Path) -> bool:
    fd = os.open(store / file_names.LOCK, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(fd)  # and so it is unlocked
