"""Prevents a writer lock that one process keeps from others, or that readers hold up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.shm.commit_words import Wake
from logstore.engine.shm.writer_lock import PASSED_OVER_MAX, WriterLock
from logstore.fs import LOCAL


def made(folder: Path) -> tuple[Wake, WriterLock, WriterLock]:
    """The words of a store, and LOCK as two processes have it."""
    Wake.create(LOCAL, folder / "WAKE")
    first, second = (WriterLock(LOCAL, folder / "LOCK") for _ in range(2))
    return Wake(LOCAL, folder / "WAKE"), first, second


def test_a_waiter_passed_over_often_gets_the_next_turn(tmp_path: Path) -> None:
    wake, lock, _ = made(tmp_path)
    for _ in range(PASSED_OVER_MAX):
        assert not lock.owes_a_turn
        lock.acquire(wake, 1)
        wake.announce_waiting()  # it wakes, finds the lock taken again, and says once more so
        lock.release(wake)
    assert lock.owes_a_turn
    lock.acquire(wake, 1)
    assert not lock.owes_a_turn
    lock.release(wake)


def test_a_release_that_nobody_waits_for_starts_the_count_anew(tmp_path: Path) -> None:
    wake, lock, _ = made(tmp_path)
    for number in range(3 * PASSED_OVER_MAX):
        lock.acquire(wake, 1)
        if number % PASSED_OVER_MAX:
            wake.announce_waiting()
        lock.release(wake)
        assert not lock.owes_a_turn


def test_a_waiting_process_gets_the_lock_beside_one_that_never_rests(tmp_path: Path) -> None:
    wake, busy, waiting = made(tmp_path)
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            busy.acquire(wake, 60)
            sum(range(20_000))
            busy.release(wake)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            waiting.acquire(wake, 60)
            waiting.release(wake)
    finally:
        over.set()
        thread.join()


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
def test_a_rollback_waits_for_no_reader(
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
