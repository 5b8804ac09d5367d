"""Prevents a process that commits in a loop from keeping the writer lock from one that waits."""

from __future__ import annotations

import threading
from pathlib import Path

from logstore.engine.shm.control_block import Wake
from logstore.engine.shm.writer_lock import PASSED_OVER_MAX, WriterLock
from logstore.fs import LOCAL


def made(folder: Path) -> tuple[Wake, WriterLock, WriterLock]:
    """The words of a store, and LOCK as two processes have it."""
    Wake.create(LOCAL, folder / "WAKE")
    first, second = (WriterLock(LOCAL, folder / "LOCK") for _ in range(2))
    return Wake(LOCAL, folder / "WAKE"), first, second


def test_who_was_passed_over_so_often_has_the_next_turn(tmp_path: Path) -> None:
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


def test_one_that_waits_gets_the_lock_beside_one_that_never_rests(tmp_path: Path) -> None:
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
