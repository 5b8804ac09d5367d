"""Prevents readers without rest from holding up who has LOCK.

LMDB's binding aborts a write transaction only at a moment at which no other thread of the process
is inside LMDB (``Generation.leave``): a deletion of nothing took minutes beside three readers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore

READERS = 3
TIMES = 20


def refuse(store: logstore.Store[Any]) -> None:
    """Asks the index, and raises: the group is there already."""
    with pytest.raises(logstore.GroupExistsError):
        store.stream("read").group("g").create()


def delete_nothing(store: logstore.Store[Any]) -> None:
    """Asks the index, and appends nothing."""
    assert store.stream("read").delete("5-5") == 0


def fail_halfway(store: logstore.Store[Any]) -> None:
    """What was applied to the index already is taken back."""
    with pytest.raises(logstore.Error):
        add_both(store)


def add_both(store: logstore.Store[Any]) -> None:
    """The second add refuses: its ID is not above the last."""
    with store.transaction() as txn:
        txn.stream("other").add({"n": 1})
        txn.stream("read").add({"n": 1}, id="1-1")


def roll(store: logstore.Store[Any]) -> None:
    """The segment is full: what was applied is taken back, and decided again for the next one."""
    store.stream("other").add_many([{"n": b"x" * 3000}] * 100)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("work", [refuse, delete_nothing, fail_halfway, roll])
def test_what_is_taken_back_waits_for_no_reader(
    tmp_path: Path, work: Callable[[logstore.Store[Any]], None]
) -> None:
    over = threading.Event()
    with logstore.open(tmp_path / "s", background=False, segment_bytes=1 << 20) as store:
        stream = store.stream("read")
        last = stream.add_many([{"n": number} for number in range(300)])[-1]
        stream.group("g").create()

        def read() -> None:
            while not over.is_set():
                assert stream[last].id == last

        threads = [threading.Thread(target=read) for _ in range(READERS)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(TIMES):
                work(store)
        finally:
            over.set()
            for thread in threads:
                thread.join()
