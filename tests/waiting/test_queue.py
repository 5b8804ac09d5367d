"""Prevents a group's waiters that are served out of turn, or not at all when one of them dies.

Who adds hands nothing out here, but where a test says so: each comes in its turn, and reads.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.shm.waiters import FREE, PACE
from tests.engine.procs import Forked
from tests.support.inside import engine_of
from tests.waiting import crowd

pytestmark = pytest.mark.usefixtures("left_to_readers")
WAITERS = 5
NAMES = [f"w{number}" for number in range(WAITERS)]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("at_once", [True, False])
def test_each_wakes_the_one_behind_it(store: Store[Any], at_once: bool) -> None:
    """The wake-up is passed on by the served: none of them waits for its slice."""
    crowd.group_of(store)
    with ExitStack() as stack:
        for who in NAMES:
            stack.enter_context(crowd.reader(store, who))
        if at_once:
            store.stream("work").add_many({"n": n} for n in range(WAITERS))
        for n in range(0 if at_once else WAITERS):
            store.stream("work").add({"n": n})
        crowd.eventually(lambda: len(crowd.owners(store)) == WAITERS)
    assert crowd.owners(store) == NAMES
    assert crowd.queue(store) == []


@pytest.mark.usefixtures("own_pace")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_cannot_take_its_turn_stands_in_nobodys_way(store: Store[Any], how: int) -> None:
    crowd.group_of(store)
    if how == signal.SIGKILL:
        PACE.stale_ms = 900_000  # seen to be dead, and not merely to have done nothing
    first = crowd.reader(store, "first")
    with crowd.reader(store, "second"):
        with store._live().committer.locked():
            os.kill(first.pid, how)
        store.stream("work").add({"a": "b"})
        crowd.eventually(lambda: crowd.owners(store) == ["second"])
    first.kill()


@pytest.mark.usefixtures("own_pace")
def test_a_wake_up_that_died_with_the_woken_is_not_lost(store: Store[Any]) -> None:
    """The next one looks once a slice, and sees that the first is dead."""
    crowd.group_of(store)
    PACE.stale_ms = 900_000

    def die_at_work() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            crowd.take(theirs, "first", once=lambda: os.kill(os.getpid(), signal.SIGKILL))

    first = crowd.queued(store, die_at_work)
    with crowd.reader(store, "second"):
        store.stream("work").add({"a": "b"})
        os.waitpid(first.pid, 0)
        crowd.eventually(lambda: crowd.owners(store) == ["second"])


def test_records_of_the_dead_are_used_again(store: Store[Any], monkeypatch: Any) -> None:
    """Once they did not stir for a while."""
    crowd.group_of(store)
    monkeypatch.setattr(PACE, "stale_ms", 100)
    for number in range(3):
        child = Forked(lambda number=number: _waits(store, f"w{number}"))  # type: ignore[misc]
        table, key = engine_of(store).wake.waits.waiters, crowd.key_of(store)
        crowd.eventually(lambda: child.pid in [each.pid for each in table.waiting(key)])  # noqa: B023
        child.kill()
        time.sleep(0.3)
    assert engine_of(store).wake.waits.waiters._used() == 1


def _waits(store: Store[Any], who: str, timeout: float = crowd.LONG_S) -> None:
    with logstore.open(store.path, sync="os", background=False) as theirs:
        assert crowd.take(theirs, who, timeout) == []


def test_a_place_is_kept_over_time_outs(store: Store[Any]) -> None:
    """The first to come times out and waits again: it still stands before the second."""
    crowd.group_of(store)
    second = threading.Thread(target=crowd.take, args=(store, "second"))

    def first() -> None:
        assert crowd.take(store, "first", 0.05) == []
        second.start()
        crowd.eventually(lambda: len(crowd.queue(store)) == 1)
        assert crowd.take(store, "first")

    thread = threading.Thread(target=first)
    thread.start()
    crowd.eventually(lambda: len(crowd.queue(store)) == 2)
    for n in (1, 2):
        store.stream("work").add({"n": n})
        crowd.eventually(lambda n=n: len(crowd.owners(store)) == n)  # type: ignore[misc]
    for each in (thread, second):
        each.join(crowd.SOON_S)
    assert crowd.owners(store) == ["first", "second"]


@pytest.mark.usefixtures("patient")
def test_one_that_is_between_two_calls_is_passed_over(store: Store[Any]) -> None:
    crowd.group_of(store)
    assert crowd.take(store, "first", 0.05) == []
    timer = threading.Timer(0.1, lambda: store.stream("work").add({"a": "b"}))
    timer.start()
    began = time.monotonic()
    assert crowd.take(store, "second")
    assert time.monotonic() - began < crowd.SOON_S
    timer.join()


@pytest.mark.usefixtures("patient")
def test_a_time_out_is_neither_early_nor_late(store: Store[Any]) -> None:
    crowd.group_of(store)
    for timeout in (0.0, 0.07, 0.25):
        began = time.monotonic()
        assert crowd.take(store, "me", timeout) == []
        assert timeout <= time.monotonic() - began < crowd.SOON_S


def test_closing_the_store_gives_the_places_back(store: Store[Any]) -> None:
    crowd.group_of(store)
    with Forked(lambda: _waits(store, "x", 0.05)):
        pass
    assert crowd.used(store) == []
    table = engine_of(store).wake.waits.waiters
    assert table._used() == 1
    assert table.record(0).state == FREE


def test_many_threads_and_none_is_left_waiting(store: Store[Any]) -> None:
    """Every entry is read, once, while waiters come and go."""
    count = 200
    crowd.group_of(store)
    taken: list[Any] = []

    def work(who: str) -> None:
        while len(taken) < count:
            taken.extend(each.id for each in crowd.take(store, who, 0.3))

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for n in range(count):
        store.stream("work").add({"n": n})
        if n % 5 == 0:
            time.sleep(0.002)
    for thread in threads:
        thread.join(crowd.SOON_S)
    assert len(taken) == len(set(taken)) == count
